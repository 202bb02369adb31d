//! Nobody is passed for ever: a long request among small ones that never end.

use std::collections::BTreeMap;

use super::*;
use crate::core::ledger::LeaseId;

/// Tokens that every sequence emits in a step of the world, and how long that takes.
const STEP: (u64, f64) = (5, 0.1);

/// A draw for each call, the same for the same seed (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }
}

/// A request that runs.
struct Running {
    lease: LeaseId,
    emitted: u64,
    output: u64,
}

/// A pool, what runs in it, and a stream of small requests that is more than it holds.
struct Crowd {
    pool: Admission,
    draw: Draw,
    blocks: u64,
    now: f64,
    running: Vec<Running>,
    /// Bounds of those that wait.
    bounds: BTreeMap<TicketId, u64>,
}

impl Crowd {
    fn new(reservation: Reservation, seed: u64) -> Self {
        let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let blocks = draw.between(60, 200);
        let backends = vec![(STANDARD, blocks); usize::try_from(draw.between(1, 3)).unwrap()];
        let (pool, _) = pool(policy(reservation), &backends);
        Self {
            pool,
            draw,
            blocks,
            now: 0.0,
            running: Vec::new(),
            bounds: BTreeMap::new(),
        }
    }

    /// A bound of at most 400 tokens; how many there will be is up to it.
    fn ask(&mut self, prompt: u64, first_token: Option<f64>) -> Option<TicketId> {
        let bound = self.draw.between(16, 400);
        let asked = Demand {
            first_token_by: first_token.map(|within| at(self.now + within)),
            ..demand(prompt.max(1), bound)
        };
        match submit(&mut self.pool, self.now, asked) {
            Verdict::Admit(grant) => {
                self.start(grant.lease, bound);
                None
            }
            Verdict::Wait(ticket) => {
                self.bounds.insert(ticket, bound);
                Some(ticket)
            }
            Verdict::Reject(reject) => panic!("{reject:?}"),
        }
    }

    fn ask_small(&mut self) {
        let prompt = self.blocks * 16 * self.draw.between(3, 15) / 100;
        self.ask(prompt, None);
    }

    fn start(&mut self, lease: LeaseId, bound: u64) {
        let output = self.draw.between(1, bound);
        self.running.push(Running {
            lease,
            emitted: 0,
            output,
        });
    }

    /// Does what follows; what becomes of the long one, if anything.
    fn apply(&mut self, mut out: Vec<Effect>, long: TicketId) -> Option<Left> {
        let mut found = None;
        while !out.is_empty() {
            let again = out.contains(&Effect::Again);
            for effect in std::mem::take(&mut out) {
                match effect {
                    Effect::Grant { ticket, .. } if ticket == long => {
                        found = Some(Left::In(self.now))
                    }
                    Effect::Grant { ticket, grant } => {
                        let bound = self.bounds.remove(&ticket);
                        self.start(grant.lease, bound.expect("it waited"));
                    }
                    Effect::Refuse { ticket, reject } => {
                        assert_eq!(ticket, long, "small ones wait for ever");
                        let told = reject.retry_after().expect("it was too late");
                        found = Some(Left::Refused(told.as_secs_f64()));
                    }
                    Effect::Again => {}
                }
            }
            if again {
                self.pool.handle_timeout(at(self.now), &mut out);
            }
        }
        found
    }

    /// A tenth of a second: everybody emits, some end, more come.
    fn step(&mut self, long: TicketId) -> Option<Left> {
        self.now += STEP.1;
        let mut found = None;
        for mut one in std::mem::take(&mut self.running) {
            one.emitted += STEP.0;
            let (now, mut out) = (at(self.now), Vec::new());
            if one.emitted < one.output {
                let emitted = Tokens::new(one.emitted);
                self.pool.on_growth(now, one.lease, emitted, &mut out);
                self.running.push(one);
            } else {
                let end = End::Finished {
                    prompt: Tokens::new(1),
                    generated: Tokens::new(one.output),
                };
                self.pool.release(now, one.lease, end, &mut out);
            }
            found = self.apply(out, long).or(found);
        }
        if self.pool.poll_timeout(at(self.now)) <= Some(at(self.now)) {
            let mut out = vec![];
            self.pool.handle_timeout(at(self.now), &mut out);
            found = self.apply(out, long).or(found);
        }
        while self.pool.state(at(self.now)).queue.requests < 8 {
            self.ask_small();
        }
        found
    }
}

/// How a request has left the line.
enum Left {
    /// When it was let in.
    In(f64),
    /// After how many seconds it should come back.
    Refused(f64),
}

/// A crowd, and a prompt of more than half of a backend.
fn crowd(reservation: Reservation, seed: u64) -> (Crowd, u64) {
    let mut crowd = Crowd::new(reservation, seed);
    for _ in 0..30 {
        crowd.ask_small();
    }
    let share = crowd.draw.between(55, 95);
    let all = crowd.blocks * 16;
    (crowd, (all * share / 100).min(all - 400))
}

/// Seconds that a long request waits among a crowd.
fn waits(reservation: Reservation, seed: u64) -> f64 {
    let (mut crowd, prompt) = crowd(reservation, seed);
    let Some(long) = crowd.ask(prompt, None) else {
        return 0.0;
    };
    let left = (0..1200).find_map(|_| crowd.step(long));
    match left {
        Some(Left::In(when)) => when,
        Some(Left::Refused(_)) => panic!("seed {seed}: refused"),
        None => panic!("seed {seed}: it waits for ever"),
    }
}

/// Seconds that one waits once it is back, that was refused since it wanted its first
/// token within two.
fn waits_when_back(reservation: Reservation, seed: u64) -> f64 {
    let (mut crowd, prompt) = crowd(reservation, seed);
    let Some(long) = crowd.ask(prompt, Some(2.0)) else {
        return 0.0;
    };
    let told = match (0..1200).find_map(|_| crowd.step(long)) {
        Some(Left::Refused(told)) => told,
        Some(Left::In(_)) => return 0.0,
        None => panic!("seed {seed}: it waits for ever"),
    };
    let back = crowd.now + told;
    while crowd.now < back {
        assert!(crowd.step(long).is_none());
    }
    let back = crowd.now;
    let Some(long) = crowd.ask(prompt, Some(110.0)) else {
        return 0.0;
    };
    match (0..1200).find_map(|_| crowd.step(long)) {
        Some(Left::In(when)) => when - back,
        _ => panic!("seed {seed}: refused again, or never let in"),
    }
}

fn worst(waits: impl Fn(u64) -> f64) -> f64 {
    (1..=1000).map(waits).fold(0.0, f64::max)
}

fn forecast() -> Reservation {
    Reservation::Forecast(ForecastPolicy::default())
}

#[test]
fn among_small_ones_that_never_end_a_long_one_waits_its_bound_and_for_who_was_there() {
    // Its bound is five seconds; then come those before it in line, one after the other,
    // and no answer takes longer than eight.
    for (reservation, most) in [(Reservation::Strict, 60.0), (forecast(), 60.0)] {
        let waited = worst(|seed| waits(reservation, seed));
        assert!(waited <= most, "{waited} s, {reservation:?}");
    }
}

#[test]
fn one_that_was_too_late_and_comes_back_as_told_is_let_in_though_small_ones_never_end() {
    for reservation in [Reservation::Strict, forecast()] {
        let waited = worst(|seed| waits_when_back(reservation, seed));
        assert!(waited <= 60.0, "{waited} s, {reservation:?}");
    }
}
