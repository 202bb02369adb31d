//! Floor 3: talking to the engines: requests, probes, metrics.
//!
//! | module | holds |
//! |---|---|
//! | [`client`] | pooled HTTP/1.1 to engines, generic over the transport |
//! | [`probe`] | one task per endpoint: health, capacity, restarts |
//! | [`capacity`] | KV an engine can hold, from what it advertises |
//! | [`scrape`], [`prometheus`] | metrics over all their renamings |
//! | [`tokenize`] | the engine's own count of a prompt |

pub mod capacity;
pub mod client;
pub mod probe;
pub mod prometheus;
pub mod scrape;
pub mod tokenize;
pub mod version;

#[cfg(test)]
mod fixture;
