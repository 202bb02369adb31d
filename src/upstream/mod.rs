//! Floor 3: talking to the engines: requests, probes, metrics.

pub mod prometheus;
pub mod version;
