//! The prefill that is on its way to a backend, and what its first tokens say of
//! the backend's pace.
//!
//! A request counts from its grant to its first token; one whose tokens are not
//! seen counts for as long as its prefill was foreseen to take. An engine works on
//! prompts in the order they came, so the time between two first tokens was spent
//! on what came to its first token with the later one: sums of such intervals are
//! right even where several prompts share a step, and time in which no prompt was
//! under way is never counted. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::ledger::LeaseId;
use super::pace::{Load, Pace, Prefill, Sample};
use super::time::Time;
use super::units::Tokens;

/// First tokens this close came out of one step of the engine.
const TOGETHER: Duration = Duration::from_millis(2);

/// Tokens of a sequence between two looks at its pace.
const STRIDE: u64 = 16;

/// Share of a prefill that may pass as done before its first token is there.
const ALMOST: f64 = 0.9;

/// What is on its way to one backend.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    jobs: BTreeMap<LeaseId, Job>,
    /// All of `jobs` together.
    total: Prefill,
    /// When the prefill of each job without seen tokens is taken to be done.
    assumed: BTreeSet<(Time, LeaseId)>,
    /// First tokens of the last moment, which may not be all of their step yet.
    clump: Option<Clump>,
    /// Until when the engine's time is accounted for.
    accounted: Time,
    /// Whether something went on since then that has no first token.
    blurred: bool,
    /// Since when nothing is on its way.
    idle_since: Time,
    /// How far each stream had come when its pace was looked at.
    marks: BTreeMap<LeaseId, Mark>,
}

/// One request before its first token.
#[derive(Clone, Copy, Debug)]
struct Job {
    work: Prefill,
    sent: Time,
    assumed: Option<Time>,
}

/// Prefill that came to its end in one step.
#[derive(Clone, Copy, Debug)]
struct Clump {
    from: Time,
    until: Time,
    work: Prefill,
    load: Load,
    blurred: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    tokens: Tokens,
}

/// Prefill on its way to a backend, of which its engine works on the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Coming {
    /// All of it.
    seconds: f64,
    /// Since when the engine works on it, and how much may pass as done.
    begun: Time,
    most: f64,
}

/// A request that goes to a backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) work: Prefill,
    pub(super) first_token: FirstToken,
    /// What is being decoded there.
    pub(super) load: Load,
}

/// Whether a request's first token will be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstToken {
    Seen,
    Unseen,
}

// === impl Ahead ===

impl Ahead {
    /// A request goes there.
    pub(super) fn on_sent(&mut self, now: Time, pace: &Pace, lease: LeaseId, sent: Sent) {
        let work = sent.work;
        let assumed = match sent.first_token {
            FirstToken::Seen => None,
            FirstToken::Unseen => {
                let takes = self.seconds(now, pace) + pace.prefill(work) + pace.delay(sent.load);
                Some(now + span(takes))
            }
        };
        if let Some(end) = assumed {
            self.assumed.insert((end, lease));
            self.blurred = true;
        }
        let job = Job {
            work,
            sent: now,
            assumed,
        };
        self.total.add(work);
        self.jobs.insert(lease, job);
    }

    /// Its first token is there, beside `load`: what that says of the pace, once it
    /// says anything.
    pub(super) fn on_first_token(
        &mut self,
        now: Time,
        lease: LeaseId,
        load: Load,
    ) -> Option<Sample> {
        let oldest = self.jobs.first_key_value().map(|(_, job)| job.sent);
        let job = self.take(now, lease)?;
        let mut sample = None;
        match &mut self.clump {
            Some(clump) if now - clump.until <= TOGETHER => {
                clump.until = now;
                clump.work.add(job.work);
            }
            clump => {
                sample = clump.take().and_then(Clump::sample);
                let from = self.accounted.max(oldest.unwrap_or(job.sent));
                *clump = Some(Clump {
                    from,
                    until: now,
                    work: job.work,
                    load,
                    blurred: std::mem::take(&mut self.blurred) || !self.assumed.is_empty(),
                });
            }
        }
        self.accounted = now;
        if self.jobs.is_empty() && sample.is_none() {
            sample = self.clump.take().and_then(Clump::sample);
        }
        sample
    }

    /// The request has ended, with or without a first token.
    pub(super) fn on_ended(&mut self, now: Time, lease: LeaseId) {
        self.marks.remove(&lease);
        if self.take(now, lease).is_some() {
            self.blurred = true;
        }
    }

    /// Each sequence of a stream has emitted `generated` tokens: what that says of
    /// a decode step, where no prefill can have been in it.
    pub(super) fn on_growth(
        &mut self,
        now: Time,
        lease: LeaseId,
        generated: Tokens,
        load: Load,
    ) -> Option<Sample> {
        let mark = Mark {
            at: now,
            tokens: generated,
        };
        let last = *self.marks.entry(lease).or_insert(mark);
        let steps = generated.saturating_sub(last.tokens).get();
        if steps < STRIDE {
            return None;
        }
        self.marks.insert(lease, mark);
        let alone = self.jobs.is_empty() && self.idle_since <= last.at;
        let seconds = (now - last.at).as_secs_f64() / Tokens::new(steps).as_f64();
        alone.then_some(Sample::Step(load, seconds))
    }

    /// Forgets requests without seen tokens whose prefill is taken to be done.
    pub(super) fn forget_assumed(&mut self, now: Time) {
        while let Some(&(end, lease)) = self.assumed.first().filter(|(end, _)| *end <= now) {
            self.take(end, lease);
        }
    }

    /// When the next of them is.
    pub(super) fn next_assumed(&self) -> Option<Time> {
        self.assumed.first().map(|&(end, _)| end)
    }

    /// Predicted seconds of prefill without a first token, started or not.
    pub(super) fn seconds(&self, now: Time, pace: &Pace) -> f64 {
        let over = self.assumed.range(..=(now, LeaseId(u64::MAX)));
        let done = over.clone().count();
        if done == self.jobs.len() {
            return 0.0;
        }
        let over = over.map(|(_, lease)| pace.prefill(self.jobs[lease].work));
        (pace.prefill(self.total) - over.sum::<f64>()).max(f64::MIN_POSITIVE)
    }

    /// The same without what the engine has done of it by now, as far as foreseen.
    pub(super) fn remaining(&self, now: Time, pace: &Pace) -> f64 {
        self.coming(now, pace).remaining(now)
    }

    /// What is on its way at `now`, and how that goes on until the next
    /// [end](Self::next_end).
    pub(super) fn coming(&self, now: Time, pace: &Pace) -> Coming {
        let Some((_, head)) = self.jobs.first_key_value() else {
            return Coming::default();
        };
        Coming {
            seconds: self.seconds(now, pace),
            begun: self.accounted.max(head.sent),
            most: ALMOST * pace.prefill(head.work),
        }
    }

    /// When, after `now`, time alone changes what is on its way; [`Time::NEVER`]
    /// where it does not.
    pub(super) fn next_end(&self, now: Time) -> Time {
        let after = (now, LeaseId(u64::MAX));
        let mut later = self
            .assumed
            .range((Bound::Excluded(after), Bound::Unbounded));
        later.next().map_or(Time::NEVER, |&(end, _)| end)
    }

    fn take(&mut self, at: Time, lease: LeaseId) -> Option<Job> {
        let job = self.jobs.remove(&lease)?;
        self.total.remove(job.work);
        if let Some(end) = job.assumed {
            self.assumed.remove(&(end, lease));
        }
        if self.jobs.is_empty() {
            // Sums of floats keep crumbs.
            self.total = Prefill::default();
            self.idle_since = at;
        }
        Some(job)
    }
}

// === impl Coming ===

impl Coming {
    /// Seconds that are left of it.
    pub(super) fn remaining(self, now: Time) -> f64 {
        let spent = (now - self.begun).as_secs_f64();
        (self.seconds - spent.min(self.most)).max(0.0)
    }
}

// === impl Clump ===

impl Clump {
    fn sample(self) -> Option<Sample> {
        let seconds = (self.until - self.from).as_secs_f64();
        (!self.blurred).then_some(Sample::Prefill(self.work, self.load, seconds))
    }
}

/// `seconds` as a duration, at most a day.
pub(super) fn span(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
}
