//! The binary as an operator and a service manager meet it: what it is given,
//! what it tells, and what it says where something is wrong.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod deploy;
mod manager;
mod mistakes;
mod process;
