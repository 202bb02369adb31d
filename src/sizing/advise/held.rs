//! KV held over time, put together from when requests were granted and ended.
//!
//! Decides nothing; each request holds the same amount from its grant to its end, which
//! is more than an engine held while the answer grew. Prefixes that requests shared count
//! once for each. Invariant: levels are of the span from the first grant to the last end.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::log::Held;
use crate::core::units::Tokens;

/// One request's KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// When.
    pub held: Held,
    /// How much.
    pub tokens: Tokens,
    /// Whose, by place.
    pub tenant: usize,
}

/// How much was held together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Level {
    /// The most at one time, in KV tokens.
    pub peak_tokens: u64,
    /// When that was first so, in UTC.
    pub peak_at: Option<String>,
    /// For 99 % of the time it was not more, in KV tokens.
    pub p99_tokens: u64,
    /// On average over the time, in KV tokens.
    pub mean_tokens: f64,
    /// Integrated over the time.
    pub token_seconds: f64,
    /// Requests that held KV at the peak.
    pub requests_at_peak: u64,
    #[serde(skip)]
    peak: Option<Duration>,
}

/// What a tenant held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantUse {
    /// Its name.
    pub tenant: String,
    /// Its requests that held KV.
    pub requests: u64,
    /// KV tokens at the peak of all.
    pub tokens_at_peak: u64,
    /// Share of that peak, 0..=1.
    pub share_at_peak: f64,
    /// Integrated over the time.
    pub token_seconds: f64,
    /// Share of what all held, 0..=1.
    pub share: f64,
}

// === impl Level ===

impl Level {
    /// Of these. An end frees before a grant of the same instant takes, and what is held
    /// for no time is not held. O(n log n).
    pub fn of(holdings: &[Holding]) -> Self {
        let mut changes = Vec::with_capacity(2 * holdings.len());
        let lasting = |holding: &&Holding| !holding.held.time().is_zero();
        for holding in holdings.iter().filter(lasting) {
            changes.push((holding.held.from, true, holding.tokens));
            changes.push((holding.held.to, false, holding.tokens));
        }
        changes.sort_unstable();
        let (mut now, mut count) = (Tokens::ZERO, 0);
        let mut level = Self::default();
        let mut times: BTreeMap<Tokens, Duration> = BTreeMap::new();
        let mut changes = changes.into_iter().peekable();
        while let Some((at, takes, tokens)) = changes.next() {
            if takes {
                (now, count) = (now.saturating_add(tokens), count + 1);
            } else {
                (now, count) = (now.saturating_sub(tokens), count - 1);
            }
            if takes && now.get() > level.peak_tokens {
                level.peak_tokens = now.get();
                level.peak = Some(at);
                level.requests_at_peak = count;
            }
            let until = changes.peek().map_or(at, |next| next.0);
            *times.entry(now).or_default() += until.saturating_sub(at);
        }
        level.peak_at = level.peak.and_then(written);
        level.weigh(&times);
        level
    }

    /// The share of `pool` that was held at the most; above 1 where the books exceeded it.
    pub fn usage(&self, pool: Tokens) -> Option<f64> {
        (!pool.is_zero()).then(|| Tokens::new(self.peak_tokens).as_f64() / pool.as_f64())
    }

    fn weigh(&mut self, times: &BTreeMap<Tokens, Duration>) {
        let span: Duration = times.values().sum();
        let weighed = times
            .iter()
            .map(|(held, time)| held.as_f64() * time.as_secs_f64());
        self.token_seconds = weighed.sum();
        if span.is_zero() {
            return;
        }
        self.mean_tokens = self.token_seconds / span.as_secs_f64();
        let mut before = Duration::ZERO;
        let reached = times.iter().find(|(_, time)| {
            before += **time;
            before.as_secs_f64() >= 0.99 * span.as_secs_f64()
        });
        self.p99_tokens = reached.map_or(0, |(held, _)| held.get());
    }
}

/// What each tenant had of `level`, which is that of `holdings`: most at the peak first.
pub fn tenants(holdings: &[Holding], level: &Level, names: &[String]) -> Vec<TenantUse> {
    let mut uses: BTreeMap<usize, TenantUse> = BTreeMap::new();
    for holding in holdings {
        let one = uses.entry(holding.tenant).or_insert_with(|| TenantUse {
            tenant: names.get(holding.tenant).cloned().unwrap_or_default(),
            requests: 0,
            tokens_at_peak: 0,
            share_at_peak: 0.0,
            token_seconds: 0.0,
            share: 0.0,
        });
        one.requests += 1;
        one.token_seconds += holding.tokens.as_f64() * holding.held.time().as_secs_f64();
        let Held { from, to } = holding.held;
        if level.peak.is_some_and(|peak| from <= peak && peak < to) {
            one.tokens_at_peak = one.tokens_at_peak.saturating_add(holding.tokens.get());
        }
    }
    let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let peak = Tokens::new(level.peak_tokens).as_f64();
    let mut uses: Vec<TenantUse> = uses.into_values().collect();
    for one in &mut uses {
        one.share_at_peak = of(Tokens::new(one.tokens_at_peak).as_f64(), peak);
        one.share = of(one.token_seconds, level.token_seconds);
    }
    uses.sort_by(|a, b| {
        let most = b.tokens_at_peak.cmp(&a.tokens_at_peak);
        most.then(b.token_seconds.total_cmp(&a.token_seconds))
            .then_with(|| a.tenant.cmp(&b.tenant))
    });
    uses
}

fn written(at: Duration) -> Option<String> {
    let seconds = i64::try_from(at.as_secs()).ok()?;
    let stamp = Timestamp::from_second(seconds).ok()?;
    Some(stamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(from: u64, to: u64, tokens: u64, tenant: usize) -> Holding {
        Holding {
            held: Held {
                from: Duration::from_secs(from),
                to: Duration::from_secs(to),
            },
            tokens: Tokens::new(tokens),
            tenant,
        }
    }

    #[test]
    fn the_peak_is_where_most_was_held_and_an_end_frees_first() {
        // 100 from 0 to 100, 50 from 10 to 20, 60 from 20 to 21, nothing to 200.
        let holdings = [
            holding(0, 100, 100, 0),
            holding(10, 20, 50, 1),
            holding(20, 21, 60, 2),
            holding(199, 200, 5, 2),
        ];
        let level = Level::of(&holdings);
        assert_eq!(level.peak_tokens, 160);
        assert_eq!(level.peak_at.as_deref(), Some("1970-01-01T00:00:20Z"));
        assert_eq!(level.requests_at_peak, 2);
        assert_eq!(level.token_seconds, 10_000.0 + 500.0 + 60.0 + 5.0);
        assert_eq!(level.mean_tokens, 10_565.0 / 200.0);
        // Above 150 for 1 s of 200, so 150 covers 99.5 % of them.
        assert_eq!(level.p99_tokens, 150);
        assert_eq!(level.usage(Tokens::new(320)), Some(0.5));
        let names = ["a", "b", "c"].map(str::to_owned);
        let uses = tenants(&holdings, &level, &names);
        let told: Vec<_> = uses
            .iter()
            .map(|one| (one.tenant.as_str(), one.requests, one.tokens_at_peak))
            .collect();
        assert_eq!(told, [("a", 1, 100), ("c", 2, 60), ("b", 1, 0)]);
        assert_eq!(uses[0].share_at_peak, 0.625);
        assert_eq!(uses[1].share, 65.0 / 10_565.0);
    }

    #[test]
    fn nothing_held_is_a_level_of_zero() {
        let level = Level::of(&[]);
        assert_eq!(level, Level::default());
        assert_eq!(Level::of(&[holding(3, 3, 9, 0)]).mean_tokens, 0.0);
        assert_eq!(level.usage(Tokens::ZERO), None);
    }
}
