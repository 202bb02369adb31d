//! Floor 5: the simulated engine behind HTTP.
