//! Wire formats: what a client sends, what an engine answers, and the few edits we make.
//!
//! Decides what a body means to the engine ([`request`]), where an edit goes
//! ([`splice()`]) and what a stream has said so far ([`sse`]). Never opens a
//! socket, never waits, never re-serialises what it passes on: bytes that no
//! edit names leave exactly as they came.

mod aside;
mod audio;
mod built;
mod chat;
pub mod error;
mod fields;
mod form;
mod lax;
pub mod links;
mod messages;
pub mod models;
mod multipart;
mod object;
pub mod pairs;
mod pooling;
mod prompt;
mod python;
pub mod request;
mod responses;
pub mod route;
mod skim;
pub mod splice;
pub mod sse;
pub mod usage;
mod wave;

pub use audio::parse_form;
pub use error::{Code, ErrorBody};
pub use request::{Request, RequestError, parse};
pub use route::{Dialect, Matched, Route, RouteError, WorkKind, dialect_of, route};
pub use splice::{Edit, Key, TopLevel, limit_output, splice};
pub use sse::{EndState, Facts, ScanMode, Scanner, StreamError, Tail};
pub use usage::{Answer, Finish, Usage, answer_of_body, usage_of_body, usage_of_tail};
