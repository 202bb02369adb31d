//! Floor 3: talking to the engines: requests, probes, metrics.

pub mod capacity;
pub mod prometheus;
pub mod scrape;
pub mod version;
