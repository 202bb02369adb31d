//! What is known of an endpoint, as plain data for `/state`, logs and the list
//! of models.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Duty, Problem};
use crate::core::backend::{BackendId, Capacity, Health, Tier, Trust};
use crate::protocol::models::ModelCard;
use crate::upstream::scrape::Origin;

/// One endpoint as the probe sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointView {
    /// Its configured name.
    pub name: Arc<str>,
    /// Its `host:port`.
    pub authority: String,
    /// Its tier.
    pub tier: Tier,
    /// Its release as it writes it; `None` until it has said.
    pub version: Option<String>,
    /// The models it lists.
    pub models: Vec<ModelCard>,
    /// Its state.
    pub health: Health,
    /// How much it is given, by how requests went.
    pub trust: Trust,
    /// What the operator wants of it.
    pub duty: Duty,
    /// Why it is not simply up.
    pub problem: Option<Problem>,
    /// Its engines that are booked apart; the first is always there.
    pub ranks: Vec<RankView>,
    /// Data-parallel engines its metrics show, which may be more.
    pub engines_shown: usize,
    /// Who writes its metrics.
    pub metrics: Origin,
    /// Time since its models were read; `None` before that.
    pub models_age: Option<Duration>,
    /// Time since its last readable metrics; `None` before the first.
    pub scrape_age: Option<Duration>,
    /// Probes since the gateway's start that brought no metrics.
    pub scrapes_failed: u64,
    /// Restarts seen since the gateway's start.
    pub restarts: u64,
}

/// One data-parallel engine of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankView {
    /// Its identity in the pool.
    pub backend: BackendId,
    /// Its capacity and where that comes from; `None` until known.
    pub capacity: Option<Capacity>,
}
