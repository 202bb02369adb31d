//! The operator's page, and what it lives on: a stream of states and the last hour.
//!
//! Decides what a browser may do with the page (nothing but ask this listener)
//! and how many may watch. The page is part of the program: it loads nothing from
//! elsewhere, holds no data, and asks for the operator's token itself. Never
//! touches a request.

mod events;
mod files;
mod looks;

pub(super) use events::{Feed, Stream};
pub(super) use files::File;
pub(super) use looks::keep_history;
