//! Floor 5: the process: listeners, admin, drain.
