//! Rate limits of tenants: requests and tokens a minute, over all their pools.
//!
//! Decides whether a request keeps to its tenant's rates, and keeps the books of
//! what it was charged: the most it may use when it joins the line, what it did
//! use when it is over. Never looks at KV (that is the ledger's) and never waits.
//! Books are kept by the tenant's name and limits come with each request, so that
//! a reload changes limits and not what is used up. Reads the time itself, since
//! what ends a request is often a drop, which nobody hands the time.
//! Invariant: what a tenant has booked is the sum over its live [`Charge`]s.

mod books;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use thiserror::Error;

use crate::config::Limits;
use crate::core::rate::{Meter, Rate};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::gate::Clock;

use books::{Books, tuned};

/// The rates of every tenant there is or was in this process.
#[derive(Debug, Default)]
pub(super) struct Rates(DashMap<String, Arc<TenantRates>>);

/// What one tenant has used of its rates.
#[derive(Debug)]
pub struct TenantRates {
    clock: Clock,
    /// Protects both meters; held for a few additions.
    books: Mutex<Books>,
}

/// Both meters at one moment; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Requests a minute.
    pub requests: Option<Gauge>,
    /// Tokens a minute.
    pub tokens: Option<Gauge>,
    /// Tokens charged to requests that are not over.
    pub booked: Tokens,
}

/// One meter at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The limit.
    pub rate: Rate,
    /// Units that would be let in now.
    pub remaining: u64,
    /// Until all of the burst is free again, where nothing more comes.
    pub full_in: Duration,
}

/// What a request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Tokens of all its prompts, each once.
    pub prompt: Tokens,
    /// The most it may generate over all sequences, as far as that is known.
    pub output: Tokens,
}

/// A request does not keep to a rate of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RateError {
    /// Too many requests.
    #[error("more than {per_minute} requests a minute")]
    Requests {
        /// The limit.
        per_minute: u64,
        /// When the next one is let in.
        retry_after: Duration,
    },
    /// Too many tokens.
    #[error("{asked} tokens are asked, {remaining} are left of {per_minute} a minute")]
    Tokens {
        /// What this request would be charged.
        asked: Tokens,
        /// What is left at this moment.
        remaining: Tokens,
        /// The limit.
        per_minute: Tokens,
        /// When this request is let in.
        retry_after: Duration,
    },
    /// It asks for more than the rate ever lets through at once.
    #[error("{asked} tokens are asked, at most {burst} pass at once")]
    AboveBurst {
        /// What this request would be charged.
        asked: Tokens,
        /// The burst.
        burst: Tokens,
    },
}

/// What a request has been charged; settles itself when dropped.
///
/// A request that no engine was given costs nothing. One that an engine was
/// given costs what [`settle`](Self::settle) says, or, where nobody says, its
/// prompt and what it was seen to generate.
#[derive(Debug)]
pub struct Charge {
    rates: Arc<TenantRates>,
    /// `None` where the tenant has no limit.
    booked: Option<Tokens>,
    prompt: Tokens,
    used: Used,
}

/// What a charge would be settled at.
#[derive(Clone, Copy, Debug)]
enum Used {
    /// No engine has it.
    Nothing,
    /// An engine has it, and has generated so much.
    Prompt { generated: Tokens },
    /// So much in all.
    Known(Tokens),
}

// === impl Rates ===

impl Rates {
    /// The books of the tenant `name`.
    pub(super) fn of(&self, name: &str) -> Arc<TenantRates> {
        Arc::clone(&self.0.entry(name.to_owned()).or_default())
    }
}

// === impl TenantRates ===

impl TenantRates {
    /// Takes one request of those `limits` allow. O(1).
    ///
    /// # Errors
    /// [`RateError::Requests`] where the rate is used up; nothing is taken.
    pub fn request(&self, limits: &Limits) -> Result<(), RateError> {
        let (mut books, now) = self.open();
        books.take_request(limits, now)
    }

    /// Whether a request would be let in that may cost `cost`, were it sent now;
    /// takes nothing. O(1).
    ///
    /// # Errors
    /// What [`request`](Self::request) would say, or else [`charge`](Self::charge).
    pub fn look(&self, limits: &Limits, cost: Option<Cost>) -> Result<(), RateError> {
        let (books, now) = self.open();
        let mut imagined = books.clone();
        drop(books);
        imagined.take_request(limits, now)?;
        let taken = cost.map(|cost| imagined.take_tokens(limits, cost, now));
        taken.transpose().map(drop)
    }

    /// Books the most that a request may cost. O(1).
    ///
    /// # Errors
    /// Where the rate does not let it through; nothing is booked. It is told to
    /// come back when both its tokens and one more request would be let in.
    pub fn charge(self: &Arc<Self>, limits: &Limits, cost: Cost) -> Result<Charge, RateError> {
        let (mut books, now) = self.open();
        let booked = books.take_tokens(limits, cost, now)?;
        Ok(Charge {
            rates: Arc::clone(self),
            booked,
            prompt: cost.prompt,
            used: Used::Nothing,
        })
    }

    /// Both meters at this moment, as far as `limits` has them.
    pub fn standing(&self, limits: &Limits) -> Standing {
        let (mut guard, now) = self.open();
        let books = &mut *guard;
        let gauge = |meter: &mut Meter| Gauge {
            rate: meter.rate(),
            remaining: meter.remaining(now),
            full_in: meter.empty_in(now),
        };
        Standing {
            requests: tuned(&mut books.requests, limits.requests, now).map(gauge),
            tokens: tuned(&mut books.tokens, limits.tokens, now).map(gauge),
            booked: books.booked,
        }
    }

    fn settle(&self, booked: Tokens, used: Tokens) {
        let (mut books, now) = self.open();
        books.booked = books.booked.saturating_sub(booked);
        let Some(meter) = &mut books.tokens else {
            return;
        };
        if used > booked {
            meter.debit((used - booked).get(), now);
        } else {
            meter.credit((booked - used).get(), now);
        }
    }

    /// A panic under this lock leaves one charge half booked, no more.
    fn open(&self) -> (MutexGuard<'_, Books>, Time) {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        (books, self.clock.now())
    }
}

impl Default for TenantRates {
    /// Books of a tenant that has used nothing.
    fn default() -> Self {
        Self {
            clock: Clock::start(),
            books: Mutex::default(),
        }
    }
}

// === impl Charge ===

impl Charge {
    /// What was booked: the most the request may cost; `None` without a limit.
    pub const fn booked(&self) -> Option<Tokens> {
        self.booked
    }

    /// An engine is given the request: from now on it costs its prompt.
    pub fn sent(&mut self) {
        self.used = Used::Prompt {
            generated: Tokens::ZERO,
        };
    }

    /// The engine did not take a byte of it after all, or answered that it
    /// would not serve it: it costs nothing.
    pub fn unspent(&mut self) {
        self.used = Used::Nothing;
    }

    /// The request's sequences have generated `total` tokens together. A smaller
    /// total than before is ignored.
    pub fn on_generated(&mut self, total: Tokens) {
        if let Used::Prompt { generated } = &mut self.used {
            *generated = total.max(*generated);
        }
    }

    /// The request is over and has used `tokens`, prompt and output.
    pub fn settle(mut self, tokens: Tokens) {
        self.used = Used::Known(tokens);
    }

    /// What it would be settled at, were it dropped at this moment.
    pub fn used(&self) -> Tokens {
        match self.used {
            Used::Nothing => Tokens::ZERO,
            Used::Prompt { generated } => self.prompt.saturating_add(generated),
            Used::Known(tokens) => tokens,
        }
        .believable()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(booked) = self.booked {
            self.rates.settle(booked, self.used());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests: u64, tokens: u64) -> Limits {
        Limits {
            requests: Some(Rate::per_minute(requests)),
            tokens: Some(Rate::per_minute(tokens)),
            ..Limits::default()
        }
    }

    fn cost(prompt: u64, output: u64) -> Cost {
        Cost {
            prompt: Tokens::new(prompt),
            output: Tokens::new(output),
        }
    }

    /// A tenant's books, with its limits.
    struct One(Arc<TenantRates>, Limits);

    fn one(limits: Limits) -> One {
        One(Rates::default().of("one"), limits)
    }

    impl One {
        fn charge(&self, cost: Cost) -> Result<Charge, RateError> {
            self.0.charge(&self.1, cost)
        }

        fn request(&self) -> Result<(), RateError> {
            self.0.request(&self.1)
        }
    }

    /// Tokens left, and tokens booked.
    fn left(one: &One) -> (u64, u64) {
        let standing = one.0.standing(&one.1);
        let remaining = standing.tokens.map_or(0, |gauge| gauge.remaining);
        (remaining, standing.booked.get())
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_at_once_pass_no_more_than_the_limit_holds() {
        let rates = one(limits(100, 1000));
        let charges: Vec<_> = (0..50)
            .filter_map(|_| rates.charge(cost(100, 100)).ok())
            .collect();
        assert_eq!(charges.len(), 5);
        assert_eq!(left(&rates), (0, 1000));
        let refused = rates.charge(cost(100, 100)).err();
        let tokens = RateError::Tokens {
            asked: Tokens::new(200),
            remaining: Tokens::ZERO,
            per_minute: Tokens::new(1000),
            retry_after: Duration::from_secs(12),
        };
        assert_eq!(refused, Some(tokens));
        drop(charges);
        assert_eq!(left(&rates), (1000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_says_what_a_request_would_be_told_and_takes_nothing() {
        let rates = one(limits(2, 1000));
        let look = |cost| rates.0.look(&rates.1, cost);
        for _ in 0..10 {
            assert_eq!(look(None), Ok(()));
            assert_eq!(look(Some(cost(500, 500))), Ok(()));
        }
        assert_eq!(left(&rates), (1000, 0));
        rates.request().unwrap();
        let charge = rates.charge(cost(500, 400)).unwrap();
        let told = look(Some(cost(100, 100)));
        rates.request().unwrap();
        assert_eq!(told, rates.charge(cost(100, 100)).map(drop));
        assert!(matches!(told, Err(RateError::Tokens { .. })), "{told:?}");
        assert_eq!(look(None), rates.request());
        assert!(matches!(look(None), Err(RateError::Requests { .. })));
        drop(charge);
    }

    #[tokio::test(start_paused = true)]
    async fn a_charge_is_settled_by_whatever_ended_the_request() {
        let rates = one(limits(100, 1000));
        let charge = || rates.charge(cost(100, 100)).unwrap();
        // Refused later, expired, left: no engine had it.
        drop(charge());
        assert_eq!(left(&rates), (1000, 0));
        // Refused by the engine, or never taken by it.
        let mut refused = charge();
        refused.sent();
        refused.unspent();
        drop(refused);
        assert_eq!(left(&rates), (1000, 0));
        // Cut off after 30 tokens.
        let mut cut = charge();
        cut.sent();
        cut.on_generated(Tokens::new(30));
        cut.on_generated(Tokens::new(20));
        drop(cut);
        assert_eq!(left(&rates), (870, 0));
        // More than was booked.
        let mut long = charge();
        long.sent();
        long.settle(Tokens::new(370));
        assert_eq!(left(&rates), (500, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_gives_the_charge_back() {
        let rates = one(limits(100, 1000));
        let held = One(Arc::clone(&rates.0), rates.1.clone());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _charge = held.charge(cost(100, 100)).unwrap();
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        assert_eq!(left(&rates), (1000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_fits_is_told_so_with_its_numbers() {
        let rates = one(limits(100, 1000));
        let never = RateError::AboveBurst {
            asked: Tokens::new(1001),
            burst: Tokens::new(1000),
        };
        assert_eq!(rates.charge(cost(1001, 0)).err(), Some(never));
    }

    #[tokio::test(start_paused = true)]
    async fn one_each_ten_seconds_at_the_limit_is_never_refused() {
        let rates = one(limits(6, 1200));
        for _ in 0..30 {
            assert_eq!(rates.request(), Ok(()));
            let mut charge = rates.charge(cost(100, 100)).unwrap();
            charge.sent();
            charge.settle(Tokens::new(200));
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        for _ in 0..6 {
            assert_eq!(rates.request(), Ok(()));
        }
        let Err(RateError::Requests { retry_after, .. }) = rates.request() else {
            panic!("the seventh within a moment");
        };
        assert_eq!(retry_after, Duration::from_secs(10));
        tokio::time::advance(retry_after).await;
        assert_eq!(rates.request(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_refusal_waits_for_the_request_rate_too() {
        let rates = one(limits(1, 600));
        assert_eq!(rates.request(), Ok(()));
        let _held = rates.charge(cost(600, 0)).unwrap();
        let Err(RateError::Tokens { retry_after, .. }) = rates.charge(cost(100, 0)) else {
            panic!("all is booked");
        };
        assert_eq!(retry_after, Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reload_changes_limits_and_not_what_is_used_up() {
        let all = Rates::default();
        let under = |limits: Limits| One(all.of("one"), limits);
        let rates = under(limits(100, 1000));
        let held = rates.charge(cost(800, 0)).unwrap();
        let again = under(limits(100, 2000));
        assert_eq!(left(&again), (1200, 800));
        let two = One(all.of("two"), limits(100, 2000));
        assert_eq!(left(&two), (2000, 0));
        // Without a limit for a while, and with one again.
        let free = under(Limits::default());
        assert!(free.charge(cost(1_000_000, 0)).is_ok());
        let none = free.0.standing(&free.1);
        assert_eq!((none.requests, none.tokens), (None, None));
        assert_eq!(left(&rates), (200, 800));
        drop(held);
        assert_eq!(left(&again), (2000, 0));
    }
}
