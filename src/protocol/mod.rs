//! Floor 1: the wire formats: requests, event streams, usage, errors.
