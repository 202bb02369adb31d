//! Floor 1: a pure model of a vLLM engine and of the load on it.
