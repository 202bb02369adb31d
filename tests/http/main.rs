//! The gateway over real sockets: every answer, every way to leave, every way
//! an engine fails. Long timers run in memory on a paused clock (`timers`).

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/hub.rs"]
#[expect(dead_code, reason = "the hub's own tests use the rest")]
mod hub;

mod answers;
mod apis;
mod audio;
mod beginnings;
mod books;
mod browsers;
mod bytes;
mod connection;
mod content;
mod counting;
mod crowd;
mod crowds;
mod dashboard;
mod discovery;
mod drain;
mod effort;
mod explain;
mod failover;
mod follow;
mod foreign;
mod harness;
mod http2;
mod hygiene;
mod identity;
mod labels;
mod leaving;
mod lengths;
mod loss;
mod odd;
mod operator;
mod packed;
mod queues;
mod quiet;
mod rates;
mod refusals;
mod reload;
mod room;
mod routes;
mod scripts;
mod secured;
mod selfcheck;
mod shadow;
mod slow;
mod streams;
mod tenants;
mod tiers;
mod timers;
mod tls;
mod tokenizers;
mod traces;
mod weight;
mod zero;
