//! Was a refusal right? The schedule that was accepted is played again with the call in it.
//!
//! A refusal was wrong if there is an engine and an instant (on arrival, or after a
//! quarter, half or three quarters of what its first token may take) at which the call,
//! sent beside all that was really sent there, would have been good without making another
//! good call bad. Each try plays that engine from the instant to the end of the call and of
//! all that ran beside it; what came later is taken to be as it was. It asks no more than
//! whether the engines had room: what waited in the gateway keeps its times.
//! Where engines died or calls went past the gateway nothing is said.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judged, Measured};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::replay::record::Outcome;
use crate::replay::setup::{Call, Node};
use crate::sim::engine::{Engine, RequestId, SimEvent, SimRequest};

/// Instants that are tried for each engine.
const TRIES: u32 = 4;

/// How many refusals of a sample were right, and of how many.
pub(super) fn right(judged: &[Judged<'_>], measured: Measured<'_>) -> (usize, usize) {
    let refused: Vec<&Judged<'_>> = judged
        .iter()
        .filter(|judged| matches!(judged.outcome, Outcome::Refused { .. }))
        .collect();
    let whole = judged.len() == measured.calls.len()
        && !judged
            .iter()
            .any(|judged| matches!(judged.outcome, Outcome::Failed { .. }));
    if !whole || measured.sample == 0 {
        return (0, 0);
    }
    let sample = evenly(&refused, measured.sample);
    let mut tries: Vec<(Time, usize)> = sample
        .iter()
        .flat_map(|judged| {
            let within = measured.fleet.slo.first_token_within(judged.call.prompt);
            (0..TRIES).map(move |quarter| (judged.call.at + within * quarter / TRIES, judged.place))
        })
        .collect();
    tries.sort_unstable();
    let mut wrong = BTreeSet::new();
    for (place, node) in measured.fleet.nodes.iter().enumerate() {
        let sent = sends(judged, place);
        let mut lane = Lane {
            engine: Engine::new(node.spec.clone()),
            sent: &sent,
            next: 0,
            owners: Vec::new(),
            judged,
            measured,
            events: Vec::new(),
        };
        for &(at, call) in &tries {
            if wrong.contains(&call) || !holds(node, &measured.calls[call]) {
                continue;
            }
            lane.advance(at);
            lane.events.clear();
            if lane.clone().fits(at, call) {
                wrong.insert(call);
            }
        }
    }
    (sample.len() - wrong.len(), sample.len())
}

/// At most `most` of them, evenly over time.
fn evenly<'a, 'b>(refused: &[&'a Judged<'b>], most: usize) -> Vec<&'a Judged<'b>> {
    let every = refused.len().div_ceil(most.max(1)).max(1);
    refused.iter().copied().step_by(every).collect()
}

fn holds(node: &Node, call: &Call) -> bool {
    let pool = node.spec.usable().tokens(node.spec.block_size);
    call.prompt < node.spec.max_model_len.min(pool)
}

/// What was sent to an engine, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    at: Time,
    /// Whether it had waited: then an engine's step of that instant came before it.
    waited: bool,
    call: usize,
    generated: Tokens,
}

fn sends(judged: &[Judged<'_>], place: usize) -> Vec<Sent> {
    let sent = judged.iter().filter_map(|judged| match *judged.outcome {
        Outcome::Finished {
            node,
            queued,
            generated,
            ..
        } if node == place => Some(Sent {
            at: judged.call.at + queued,
            waited: !queued.is_zero(),
            call: judged.place,
            generated,
        }),
        _ => None,
    });
    let mut sent: Vec<Sent> = sent.collect();
    sent.sort_unstable();
    sent
}

/// One engine and what is sent to it.
#[derive(Clone)]
struct Lane<'a> {
    engine: Engine,
    sent: &'a [Sent],
    /// The first of `sent` that is still to come.
    next: usize,
    /// Calls of the engine's requests, by their number.
    owners: Vec<usize>,
    judged: &'a [Judged<'a>],
    measured: Measured<'a>,
    events: Vec<SimEvent>,
}

/// How far the calls of a lane have come in a try.
struct Try {
    /// The call that is put in.
    call: usize,
    /// First tokens of those that have theirs.
    first: BTreeMap<usize, Time>,
    /// Whom it may hurt: those that ran beside it. `None` until its end.
    beside: Option<BTreeSet<usize>>,
}

/// What an event says of a try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Fits,
    Breaks,
}

// === impl Lane ===

impl Lane<'_> {
    /// Plays what is sent before `at`, and the engine's steps before it.
    fn advance(&mut self, at: Time) {
        while let Some(now) = self.due().filter(|now| *now < at) {
            self.play(now);
        }
    }

    /// Whether `call`, sent at `at`, is good and makes no good call bad.
    fn fits(mut self, at: Time, call: usize) -> bool {
        let mut attempt = Try {
            call,
            first: BTreeMap::new(),
            beside: None,
        };
        let window = self.engine.spec().max_model_len;
        self.send(at, call, self.measured.calls[call].generates(window));
        while let Some(now) = self.due() {
            self.play(now);
            for event in std::mem::take(&mut self.events) {
                match self.judge(&mut attempt, event) {
                    Verdict::Open => {}
                    Verdict::Fits => return true,
                    Verdict::Breaks => return false,
                }
            }
            if now > self.latest(call) && !attempt.first.contains_key(&call) {
                return false;
            }
        }
        attempt.beside.is_some()
    }

    /// When its first token is too late.
    fn latest(&self, call: usize) -> Time {
        let call = &self.measured.calls[call];
        call.at + self.measured.fleet.slo.first_token_within(call.prompt)
    }

    /// The next instant at which something happens.
    fn due(&self) -> Option<Time> {
        let sent = self.sent.get(self.next).map(|sent| sent.at);
        [sent, self.engine.next_step()].into_iter().flatten().min()
    }

    fn play(&mut self, now: Time) {
        let step = self.engine.next_step().filter(|at| *at <= now);
        let first = self.sent.get(self.next).filter(|sent| sent.at <= now);
        match first.copied() {
            Some(sent) if step.is_none() || !sent.waited => {
                self.next += 1;
                self.send(now, sent.call, sent.generated);
            }
            _ => self.engine.step(now, &mut self.events),
        }
    }

    fn send(&mut self, now: Time, call: usize, generated: Tokens) {
        let size = self.engine.spec().block_size;
        let request = SimRequest {
            prefix: self.measured.calls[call].prefix(size),
            ..SimRequest::new(self.measured.calls[call].prompt, generated)
        };
        let id = self.engine.add(now, request);
        debug_assert_eq!(usize::try_from(id.0), Ok(self.owners.len()));
        self.owners.push(call);
    }

    fn owner(&self, request: RequestId) -> usize {
        self.owners[usize::try_from(request.0).expect("requests are numbered from 0")]
    }

    fn judge(&self, attempt: &mut Try, event: SimEvent) -> Verdict {
        match event {
            SimEvent::FirstToken { request, at, .. } => {
                let owner = self.owner(request);
                attempt.first.entry(owner).or_insert(at);
                let matters = owner == attempt.call || self.judged[owner].good;
                if matters && at > self.latest(owner) {
                    return Verdict::Breaks;
                }
                Verdict::Open
            }
            SimEvent::Finished {
                request,
                at,
                generated,
                ..
            } => self.ended(attempt, self.owner(request), (at, generated)),
            _ => Verdict::Open,
        }
    }

    fn ended(&self, attempt: &mut Try, owner: usize, (at, generated): (Time, Tokens)) -> Verdict {
        let matters = owner == attempt.call || self.judged[owner].good;
        if matters && self.is_slow(attempt, owner, (at, generated)) {
            return Verdict::Breaks;
        }
        if owner == attempt.call {
            let live = self
                .owners
                .iter()
                .zip(0..)
                .filter(|(_, id)| self.engine.is_live(RequestId(*id)));
            attempt.beside = Some(live.map(|(owner, _)| *owner).collect());
        }
        let Some(beside) = &mut attempt.beside else {
            return Verdict::Open;
        };
        beside.remove(&owner);
        if beside.is_empty() {
            return Verdict::Fits;
        }
        Verdict::Open
    }

    fn is_slow(&self, attempt: &Try, owner: usize, (end, generated): (Time, Tokens)) -> bool {
        let slo = self.measured.fleet.slo;
        // What had its first token before the try has it in the record.
        let first =
            attempt
                .first
                .get(&owner)
                .copied()
                .or_else(|| match *self.judged[owner].outcome {
                    Outcome::Finished { first_token, .. } => Some(first_token),
                    _ => None,
                });
        let gaps = u32::try_from(generated.get().saturating_sub(1)).unwrap_or(u32::MAX);
        let pace = first.and_then(|first| (end - first).checked_div(gaps));
        pace.is_some_and(|pace| pace > slo.token_pace)
    }
}
