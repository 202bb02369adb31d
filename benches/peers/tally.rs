//! What a load has seen: counts that only grow, samples, and what they sum up to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer::Flaw;
use super::link::Taken;
use super::proc::Used;

/// One good answer.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// When its request was to be sent.
    due: Instant,
    taken: Taken,
}

/// Shared by all that send.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    requests: AtomicU64,
    pieces: AtomicU64,
    errors: AtomicU64,
    reopened: AtomicU64,
    first_flaw: Mutex<Option<Flaw>>,
    samples: Mutex<Vec<Sample>>,
}

/// The counts of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Instant,
    requests: u64,
    pieces: u64,
    used: Option<Used>,
}

// === impl Tally ===

impl Tally {
    /// An answer is complete and right.
    pub(crate) fn answered(&self, due: Instant, taken: Taken) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut samples = self.samples.lock().expect("no holder panics");
        samples.push(Sample { due, taken });
    }

    /// So many pieces have come.
    pub(crate) fn saw(&self, pieces: u32) {
        self.pieces.fetch_add(u64::from(pieces), Ordering::Relaxed);
    }

    /// An answer is wrong.
    pub(crate) fn failed(&self, flaw: Flaw) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first_flaw.lock().expect("no holder panics");
        first.get_or_insert(flaw);
    }

    /// A request was sent again, since the other side had closed an idle connection.
    pub(crate) fn reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts now, and what the watched process has used.
    pub(crate) fn moment(&self, watched: Option<u32>) -> Moment {
        Moment {
            at: Instant::now(),
            requests: self.requests.load(Ordering::Relaxed),
            pieces: self.pieces.load(Ordering::Relaxed),
            used: watched.map(Used::of),
        }
    }

    /// What happened between two moments. Times are of the requests that were due in
    /// between, in microseconds; errors are of the whole run.
    pub(crate) fn report(&self, from: &Moment, to: &Moment) -> Value {
        let samples = self.samples.lock().expect("no holder panics");
        let counted = samples
            .iter()
            .filter(|sample| from.at <= sample.due && sample.due < to.at);
        let times = |end: fn(&Taken) -> Instant| {
            let times = counted
                .clone()
                .map(|sample| end(&sample.taken) - sample.due);
            quantiles(times.collect())
        };
        let flaw = self.first_flaw.lock().expect("no holder panics");
        let cpu = to.used.as_ref().zip(from.used.as_ref());
        json!({
            "seconds": (to.at - from.at).as_secs_f64(),
            "requests": to.requests - from.requests,
            "pieces": to.pieces - from.pieces,
            "errors": self.errors.load(Ordering::Relaxed),
            "first_error": flaw.as_ref().map(Flaw::to_string),
            "reopened": self.reopened.load(Ordering::Relaxed),
            "whole_us": times(|taken| taken.last),
            "first_us": times(|taken| taken.first),
            "cpu_us": cpu.map(|(to, from)| micros(to.since(from))),
        })
    }
}

/// Median, p90, p99 and largest, in microseconds; the nearest rank, rounded up.
fn quantiles(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let Some(&most) = times.last() else {
        return Value::Null;
    };
    let rank = |thousandths: usize| {
        let rank = (times.len() * thousandths).div_ceil(1000).max(1);
        micros(times[rank - 1])
    };
    json!({"p50": rank(500), "p90": rank(900), "p99": rank(990), "most": micros(most)})
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
