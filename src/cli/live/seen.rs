//! What one backend says of itself.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::Asked;
use super::counts::{self, Compared};
use crate::core::backend::Capacity;
use crate::core::units::Tokens;
use crate::protocol::models::{ModelCard, read_models};
use crate::upstream::capacity::{Evidence, Operator, capacity, ranks};
use crate::upstream::client::{Bounds, Endpoint};
use crate::upstream::scrape;
use crate::upstream::version::Version;

/// Bounds of every question: a busy engine's metrics are some 100 kB.
pub(super) const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    bytes: 16 << 20,
};

/// A backend as it answered.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(in crate::cli) struct Seen {
    pub(in crate::cli) model: String,
    pub(in crate::cli) backend: String,
    pub(super) url: String,
    pub(in crate::cli) tier: &'static str,
    /// Its release, as it writes it.
    pub(super) version: Option<String>,
    /// Ids it lists.
    pub(super) serves: Vec<String>,
    pub(in crate::cli) max_model_len: Option<u64>,
    /// Data-parallel engines its metrics show.
    pub(super) engines: usize,
    /// Those that are booked apart; empty where it did not answer.
    pub(in crate::cli) ranks: Vec<Rank>,
    /// Questions it did not answer, and how.
    pub(in crate::cli) errors: Vec<String>,
}

/// One data-parallel engine of a backend.
#[derive(Debug, PartialEq, Serialize)]
pub(in crate::cli) struct Rank {
    pub(super) rank: u32,
    pub(in crate::cli) kv_tokens: u64,
    pub(super) kv_blocks: u64,
    pub(in crate::cli) block_size: u32,
    /// Where the capacity comes from.
    pub(super) source: &'static str,
    /// Longest context of one request here.
    pub(in crate::cli) context_limit: u64,
    pub(super) max_num_seqs: Option<u32>,
    pub(super) lookahead_tokens: u64,
}

/// Asks one backend everything, and one that lists its models for its counts.
pub(super) async fn see(asked: &Asked) -> (Seen, Vec<Compared>) {
    let (seen, endpoint) = look(asked).await;
    let compared = match endpoint {
        Some(endpoint) => counts::compare(asked, &endpoint).await,
        None => Vec::new(),
    };
    (seen, compared)
}

/// Asks one backend what it is; `None` beside it where it does not list its models.
pub(super) async fn look(asked: &Asked) -> (Seen, Option<Endpoint>) {
    let backend = asked.backend();
    let mut seen = Seen {
        model: asked.model().name.clone(),
        backend: backend.name.clone(),
        url: backend.url.to_string(),
        tier: backend.tier.name(),
        ..Seen::default()
    };
    let endpoint = match Endpoint::of(backend) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            seen.errors.push(error.to_string());
            return (seen, None);
        }
    };
    let Some(models) = get(asked, &endpoint, "/v1/models", &mut seen).await else {
        return (seen, None);
    };
    let cards = read_models(&models).unwrap_or_else(|error| {
        seen.errors.push(format!("/v1/models: {error}"));
        Vec::new()
    });
    let version = get(asked, &endpoint, "/version", &mut seen).await;
    let metrics = get(asked, &endpoint, "/metrics", &mut seen).await;
    seen.version = version.as_deref().and_then(Version::text_of_answer);
    let evidence = Evidence {
        scrape: scrape::read(metrics.as_deref().unwrap_or_default()),
        max_model_len: context(&cards, &asked.model().name).map(Tokens::new),
        version: seen.version.as_deref().and_then(Version::parse),
    };
    seen.max_model_len = evidence.max_model_len.map(Tokens::get);
    seen.serves = cards.into_iter().map(|card| card.id).collect();
    seen.engines = evidence.scrape.engines.len();
    seen.ranks = figures(asked, &evidence);
    (seen, Some(endpoint))
}

/// The answer of a GET; anything but 200 is an error of `seen`.
async fn get(
    asked: &Asked,
    endpoint: &Endpoint,
    path: &'static str,
    seen: &mut Seen,
) -> Option<Bytes> {
    let error = match asked.client.get(endpoint, path, BOUNDS).await {
        Ok(answer) if answer.status.is_success() => return Some(answer.body),
        Ok(answer) => format!("{path}: status {}", answer.status.as_u16()),
        Err(error) => format!("{path}: {error}"),
    };
    seen.errors.push(error);
    None
}

/// `max_model_len` of the card of `name`, or of the model it derives from.
fn context(cards: &[ModelCard], name: &str) -> Option<u64> {
    let card = |id: &str| cards.iter().find(|card| card.id == id);
    let own = card(name)?;
    own.max_model_len
        .or_else(|| card(own.parent.as_deref()?)?.max_model_len)
}

fn figures(asked: &Asked, evidence: &Evidence) -> Vec<Rank> {
    let backend = asked.backend();
    let operator = Operator {
        overrides: backend.kv.clone(),
        layout: asked.model().kv_layout,
        assumed: asked.config.admission.assumed_kv_tokens,
    };
    let ranks = 0..ranks(evidence, backend.data_parallel_ranks);
    let figures = ranks.map(|rank| Rank::new(rank, &capacity(rank, evidence, &operator)));
    figures.collect()
}

// === impl Rank ===

impl Rank {
    fn new(rank: u32, capacity: &Capacity) -> Self {
        Self {
            rank,
            kv_tokens: capacity.pool().get(),
            kv_blocks: capacity.blocks.get(),
            block_size: capacity.block_size.get(),
            source: capacity.source.name(),
            context_limit: capacity.context_limit().get(),
            max_num_seqs: capacity.max_num_seqs,
            lookahead_tokens: capacity.lookahead.get(),
        }
    }
}

// === impl Seen ===

impl Seen {
    pub(super) const COLUMNS: [&str; 8] = [
        "BACKEND",
        "MODEL",
        "TIER",
        "VERSION",
        "MAX MODEL LEN",
        "RANK",
        "KV TOKENS",
        "SOURCE",
    ];

    /// One row for each rank; a backend that did not answer has one without figures.
    pub(super) fn rows(&self) -> Vec<[String; 8]> {
        let rank = |rank: &Rank| {
            let tokens = rank.kv_tokens.to_string();
            self.cells(rank.rank.to_string(), tokens, rank.source.to_owned())
        };
        if self.ranks.is_empty() {
            let none = "-".to_owned();
            return vec![self.cells(none.clone(), none.clone(), none)];
        }
        self.ranks.iter().map(rank).collect()
    }

    fn cells(&self, rank: String, tokens: String, source: String) -> [String; 8] {
        let length = self
            .max_model_len
            .map_or_else(|| "-".to_owned(), |length| length.to_string());
        let version = self.version.clone().unwrap_or_else(|| "-".to_owned());
        let tier = self.tier.to_owned();
        [
            self.backend.clone(),
            self.model.clone(),
            tier,
            version,
            length,
            rank,
            tokens,
            source,
        ]
    }
}
