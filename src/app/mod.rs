//! Floor 5: the process: listeners, admin, drain.

mod counters;

pub use counters::load_counter;
