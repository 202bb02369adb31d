//! Counters that are labelled with reasons, begun at 0.
//!
//! Decides which ends a request can come to by this gateway's own doing; those
//! that an engine's status makes are counted when they come.

use crate::config::Config;
use crate::telemetry::Metrics;

use super::reason::Reason;
use super::rescue::status_and_code;

/// Why an answer that has begun may break off.
const BREAKS: [Reason; 3] = [
    Reason::UpstreamFailed,
    Reason::UpstreamTimeout,
    Reason::ServerShutdown,
];

/// Begins them for every model of `config`. Again at each reload.
pub fn begin(metrics: &Metrics, config: &Config) {
    let refused = Reason::ALL.map(|reason| {
        let (status, _) = status_and_code(reason);
        (Some(status.as_u16()), Some(reason.label()))
    });
    let broken = BREAKS.map(|reason| (Some(200), Some(reason.label())));
    // Answered well, refused by the engine, and left by the client.
    let plain = [(Some(200), None), (Some(400), None), (None, None)];
    metrics.begin_ends(&[&plain[..], &refused, &broken].concat());
    metrics.begin_shadow(config, &Reason::OF_ADMISSION.map(Reason::label));
}
