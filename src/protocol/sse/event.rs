//! Looks into one event.
