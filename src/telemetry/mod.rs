//! Floor 3: metrics, the access log.
