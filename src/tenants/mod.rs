//! Floor 3: who asks, by which key.
