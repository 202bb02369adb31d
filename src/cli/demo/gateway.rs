//! The gateway of the demo: a real configuration, read and served as any other.
//!
//! Decides the configuration text and nothing else: what runs is [`crate::app::start`].
//! Its waiting limits are engine time: a compressed minute is a minute of its line.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::fleet::{Fleet, MODEL};
use super::mix::TENANTS;
use crate::app::{self, Running};
use crate::config::{self, Problems};
use crate::core::backend::Health;
use crate::core::stats::{BackendState, PoolState};
use crate::layers::pool::Pools;
use crate::sim_server::CHAT_TEMPLATE;

/// How long the gateway may find nothing more of its engines and its tokenizer, in
/// real time. A machine that is busy with other things takes its time for each.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at until then.
const READY_LOOK: Duration = Duration::from_millis(10);

/// A gateway in front of a fleet.
pub(super) struct Gateway {
    running: Running,
}

/// The pools of a gateway, for a look at its line.
#[derive(Clone)]
pub(super) struct Books(Arc<Pools>);

/// Why there is no gateway.
#[derive(Debug, Error)]
pub(super) enum GatewayError {
    /// The demo's own configuration is refused.
    #[error("the demo's configuration: {0}")]
    Config(#[from] Problems),
    /// It does not start.
    #[error(transparent)]
    Start(#[from] app::Error),
    /// The chat template has no file.
    #[error(
        "cannot write the chat template under {folder}: {0}; TMPDIR names another folder",
        folder = std::env::temp_dir().display()
    )]
    Template(#[from] io::Error),
    /// Its engines or its tokenizer were not found in time.
    #[error("the gateway found {known} of {engines} engines and then nothing for {} s", PATIENCE.as_secs())]
    NotReady {
        /// Engines that it knows.
        known: usize,
        /// Engines there are.
        engines: usize,
    },
}

/// Engines of a pool that it can use.
fn known(state: &PoolState) -> usize {
    let usable =
        |backend: &&BackendState| backend.health == Health::Up && backend.capacity.is_some();
    state.backends.iter().filter(usable).count()
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway for `fleet` and waits until it knows every engine. One second of
    /// engine time lasts `scale` real ones.
    pub(super) async fn start(fleet: &Fleet, scale: f64) -> Result<Self, GatewayError> {
        let template = TemplateFile::create()?;
        let config = config::load(&text(fleet, &template, scale))?;
        let running = app::start(config).await?;
        let gateway = Self { running };
        gateway.ready(fleet.engines.len()).await?;
        Ok(gateway)
    }

    /// Waits as long as it gets on. The template file is read once this returns.
    async fn ready(&self, engines: usize) -> Result<(), GatewayError> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let pools = self.running.pools();
            let known = pools.all().iter().map(|pool| known(&pool.gate().state()));
            let known = known.sum();
            if known == engines && pools.all().iter().all(|pool| pool.is_ready()) {
                return Ok(());
            }
            if known > most {
                (most, since) = (known, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(GatewayError::NotReady { known, engines });
            }
            tokio::time::sleep(READY_LOOK).await;
        }
    }

    /// Where clients connect.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Where operators connect.
    pub(super) const fn admin_addr(&self) -> SocketAddr {
        self.running.admin_addr()
    }

    /// Its books.
    pub(super) fn books(&self) -> Books {
        Books(self.running.pools())
    }

    /// Ends it within its drain timeout.
    pub(super) async fn shutdown(self) {
        self.running.shutdown().await;
    }
}

// === impl Books ===

impl Books {
    /// The books of the demo's only pool.
    pub(super) fn state(&self) -> PoolState {
        self.0.all()[0].gate().state()
    }
}

/// The configuration of a gateway for `fleet`.
fn text(fleet: &Fleet, template: &TemplateFile, scale: f64) -> String {
    let engine_time = |seconds: u64| {
        let real = Duration::from_secs(seconds).mul_f64(scale);
        format!("{}ms", real.as_millis().max(100))
    };
    let (max_wait, max_bypass) = (engine_time(120), engine_time(10));
    let template = template.0.display().to_string();
    let mut text = format!(
        r#"[server]
listen = "127.0.0.1:0"
drain_timeout = "1s"

[admin]
listen = "127.0.0.1:0"

[probe]
interval = "100ms"

[queue]
max_wait = "{max_wait}"
max_bypass = "{max_bypass}"

[admission]
open_output_tokens = 512 # what chats that set no limit usually come to

[log]
access_log = "off"

[[models]]
name = "{MODEL}"
tokenizer = "tiktoken:o200k_base"
chat_template_file = {template:?}
"#
    );
    for engine in &fleet.engines {
        let (name, url, tier) = (engine.name, engine.server.url(), engine.tier);
        let backend = format!(
            "\n[[models.backends]]\nname = \"{name}\"\nurl = \"{url}\"\ntier = \"{tier}\"\n"
        );
        text.push_str(&backend);
    }
    text.push_str(&tenants());
    text
}

/// Everybody who sends the load, and whoever tries the gateway by hand.
fn tenants() -> String {
    let limits = [
        // People wait: first in line.
        "weight = 4",
        "length = \"long\"\nweight = 2",
        // Beside the documents, in two fifths of their engine at most; and a line that ends.
        "tiers = [\"large\"]\nmax_in_flight_tokens = 65536\nmax_waiting = 32",
    ];
    let mut text = String::new();
    for (name, limits) in TENANTS.iter().zip(limits) {
        let digest = Sha256::digest(name);
        let digest = digest.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a string takes any text");
            hex
        });
        let tenant =
            format!("\n[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{digest}\"]\n{limits}\n");
        text.push_str(&tenant);
    }
    text.push_str("\n[[tenants]]\nname = \"you\"\nanonymous = \"accepted\"\n");
    text
}

/// The engines' chat template as a file of this process, removed when dropped.
struct TemplateFile(PathBuf);

// === impl TemplateFile ===

impl TemplateFile {
    fn create() -> io::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "tidegate-demo-{}-{}.jinja",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let file = Self(std::env::temp_dir().join(name));
        // Never through a file that is there already: somebody else may have put it there.
        std::fs::File::create_new(&file.0)?.write_all(CHAT_TEMPLATE.as_bytes())?;
        Ok(file)
    }
}

impl Drop for TemplateFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary file stays");
        }
    }
}
