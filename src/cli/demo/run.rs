//! The two runs: one fleet after the other, under the same load.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use thiserror::Error;

use super::board::Board;
use super::fleet::{EnginePlan, Fleet};
use super::gateway::{Gateway, GatewayError};
use super::live::{Live, Scene, Show};
use super::load::{Aim, Balancer, Load, Prepared, Record};
use super::report::{Comparison, Outcome};
use crate::cli::plain::say;
use crate::core::backend::Tier;
use crate::sim::workload::WorkloadSpec;

/// What is compared.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) engines: Vec<EnginePlan>,
    pub(super) workload: WorkloadSpec,
    /// Real seconds per second of engine time.
    pub(super) scale: f64,
    pub(super) show: Show,
}

/// Both runs, and the second fleet with its gateway, still up.
pub(super) struct Compared {
    pub(super) comparison: Comparison,
    pub(super) gateway: Gateway,
    pub(super) fleet: Arc<Fleet>,
}

/// Why there is nothing to compare.
#[derive(Debug, Error)]
pub(super) enum DemoError {
    /// A simulated engine has no port.
    #[error("a simulated engine does not start: {0}")]
    Engine(#[from] io::Error),
    /// There is no gateway.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

// === impl Plan ===

impl Plan {
    /// Both runs, one after the other. Dropping the future ends what runs.
    ///
    /// # Errors
    /// An engine or the gateway does not start.
    pub(super) async fn compare(&self) -> Result<Compared, DemoError> {
        let arrivals = self.workload.arrivals();
        let requests: Arc<[Prepared]> = arrivals.iter().map(Prepared::new).collect();
        load_vocabulary().await;
        let without = self.without(&requests).await?;
        let fleet = Arc::new(Fleet::start(&self.engines, self.scale)?);
        let gateway = Gateway::start(&fleet, self.scale).await?;
        if self.show != Show::Nothing {
            say(format_args!("watch it at http://{}/", gateway.admin_addr()));
        }
        let aim = Aim::Gateway(format!("http://{}", gateway.addr()));
        let scene = Scene {
            books: Some(gateway.books()),
            ..self.scene("with tidegate", &fleet)
        };
        let gated = self.load(&requests, aim, scene).await;
        Ok(Compared {
            comparison: Comparison {
                without,
                with: Outcome::new(&gated, &fleet.stats()),
            },
            gateway,
            fleet,
        })
    }

    /// The load straight at a fleet that ends with it.
    async fn without(&self, requests: &Arc<[Prepared]>) -> Result<Outcome, DemoError> {
        let fleet = Arc::new(Fleet::start(&self.engines, self.scale)?);
        let aim = Aim::Engines(balancer(&fleet));
        let scene = self.scene("without", &fleet);
        let records = self.load(requests, aim, scene).await;
        Ok(Outcome::new(&records, &fleet.stats()))
    }

    fn scene(&self, title: &'static str, fleet: &Arc<Fleet>) -> Scene {
        Scene {
            title,
            fleet: Arc::clone(fleet),
            board: Arc::new(Board::default()),
            books: None,
            scale: self.scale,
        }
    }

    async fn load(&self, requests: &Arc<[Prepared]>, aim: Aim, scene: Scene) -> Vec<Record> {
        let load = Load {
            requests: Arc::clone(requests),
            aim: Arc::new(aim),
            board: Arc::clone(&scene.board),
            scale: self.scale,
        };
        let live = Live::start(scene, self.show);
        let records = load.run().await;
        live.stop().await;
        records
    }
}

/// The engines read prompts with a vocabulary that is loaded on first use: before the clock
/// starts, or the first run would pay for it with its first chats.
async fn load_vocabulary() {
    let loading = tokio::task::spawn_blocking(|| {
        tiktoken_rs::o200k_base_singleton();
    });
    loading.await.expect("the vocabulary is part of the binary");
}

/// Standard and large take turns; the slow engine is kept for what both refuse.
fn balancer(fleet: &Fleet) -> Balancer {
    let urls = |reserve: bool| {
        let engines = fleet
            .engines
            .iter()
            .filter(move |engine| (engine.tier == Tier::Offload) == reserve);
        engines.map(|engine| engine.server.url()).collect()
    };
    Balancer {
        turns: urls(false),
        reserves: urls(true),
        next: AtomicUsize::new(0),
    }
}
