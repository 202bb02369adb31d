//! Floor 2: the async shell of the core.
