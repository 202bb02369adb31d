//! How fast a backend works, learned from what a gateway sees of it.
//!
//! Two lines are fitted: the time a prefill takes, by its tokens and by the pairs
//! of tokens its attention computes, and the time of a decode step, by the context
//! it reads and the sequences in it. Both are least squares over what was seen,
//! newer observations counting more, with coefficients that cannot be negative.
//! What has been seen of the other backends of a tier stands in until a backend
//! has been seen itself; before that a prior does. Never decides anything.
//!
//! The shape of both lines is that of measured kernels (LLMServingSim's profiles
//! of vLLM 0.19): dense layers are linear in the tokens of a step, attention is
//! linear in tokens times context.

use super::backend::Tier;
use super::demand::Demand;
use super::units::Tokens;

/// What an observation is worth after each later one: some two hundred count.
const KEEP: f64 = 0.995;

/// Every how many observations of a tier its backends are told.
const TOLD_EVERY: u32 = 16;

/// Observations that the rest of a tier counts for on a backend's own line.
const SIBLINGS: f64 = 4.0;

/// A backend with this many observations no longer changes with its siblings'.
const SEEN_ENOUGH: f64 = 40.0;

/// An observation counts as no more than this many times what was foreseen, once
/// the line is learned: an engine that stalls says little about its pace.
const BELIEVED: f64 = 4.0;

/// How far the prior may be off before it pulls, as a factor.
const PRIOR_DOUBT: f64 = 5.0;

/// Error of a foreseen time that is normal, as a share and in seconds.
const NORMAL_ERROR: (f64, f64) = (0.1, 0.02);

/// Rounds of coordinate descent at each observation; it starts from the last line.
const SWEEPS: u32 = 24;

/// One prompt's prefill as work: what its time depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Prefill {
    /// Thousands of tokens to compute.
    tokens: f64,
    /// Millions of pairs of a token and one before it.
    pairs: f64,
}

/// Non-negative coefficients of three features, and what they were fitted to.
#[derive(Clone, Debug)]
struct Line {
    sums: Sums,
    prior: [f64; 3],
    coefficients: [f64; 3],
}

/// The normal equations of what was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    gram: [[f64; 3]; 3],
    moments: [f64; 3],
    /// Observations, each decayed by those since.
    count: f64,
}

/// The pace of one backend, or of all those of a tier together.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    prefill: Line,
    step: Line,
    /// Whether anything was seen, here or on a sibling.
    knows_prefill: bool,
    knows_step: bool,
    /// Observations so far, and when its tier last told its news.
    seen: u64,
    seen_at_news: u64,
}

/// Something that was seen of a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sample {
    /// This much prefill was done in so many seconds of nothing but waiting for it,
    /// beside what was being decoded.
    Prefill(Prefill, Load, f64),
    /// A step without prefill took so many seconds.
    Step(Load, f64),
}

/// What is being decoded on a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Tokens of KV that a step reads.
    pub(super) context: Tokens,
    /// Sequences in the step.
    pub(super) sequences: u64,
}

// === impl Prefill ===

impl Prefill {
    /// Computing `tokens` after `cached` ones that are there already.
    pub(super) fn new(tokens: Tokens, cached: Tokens) -> Self {
        let (tokens, cached) = (tokens.as_f64() / 1e3, cached.as_f64() / 1e3);
        Self {
            tokens,
            pairs: tokens * (cached + tokens / 2.0),
        }
    }

    /// All prompts of `demand`, none of them cached.
    pub(super) fn of(demand: &Demand) -> Self {
        let mut all = Self::default();
        for &prompt in &demand.prompts {
            all.add(Self::new(prompt, Tokens::ZERO));
        }
        all
    }

    /// How long it takes where a thousand tokens and a million pairs take that.
    pub(super) fn seconds(self, (tokens, pairs): (f64, f64)) -> f64 {
        (tokens * self.tokens + pairs * self.pairs).max(0.0)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.pairs += other.pairs;
    }

    pub(super) fn remove(&mut self, other: Self) {
        self.tokens -= other.tokens;
        self.pairs -= other.pairs;
    }
}

// === impl Load ===

impl Load {
    fn features(self) -> [f64; 3] {
        #[expect(clippy::cast_precision_loss, reason = "sequences stay far below 2^53")]
        let sequences = self.sequences as f64;
        [1.0, self.context.as_f64() / 1e4, sequences / 10.0]
    }
}

// === impl Pace ===

impl Pace {
    /// The prior of a tier. A thousand tokens take a tenth of a second on one GPU
    /// and an eight-billion model, and two seconds on a CPU.
    pub(super) fn of_tier(tier: Tier) -> Self {
        let thousand = match tier {
            Tier::Standard | Tier::Large => 0.1,
            Tier::Offload => 2.0,
        };
        Self {
            prefill: Line::new([1.0, thousand, thousand / 50.0]),
            step: Line::new([0.02, 0.001, 0.0005]),
            knows_prefill: false,
            knows_step: false,
            seen: 0,
            seen_at_news: 0,
        }
    }

    /// Whether the last observation is worth telling those that follow: the first
    /// ones are, and later one in sixteen, since each costs every sibling a fit.
    pub(super) const fn is_news(&self) -> bool {
        self.seen <= 8 || self.seen.is_multiple_of(TOLD_EVERY as u64)
    }

    /// What the observations of a backend that was sent nothing are worth once its
    /// tier, of so many `backends`, has told its news: they age with those of its
    /// siblings, or one that looked slow once would never be seen again.
    pub(super) fn aged(backends: usize) -> f64 {
        let backends = u32::try_from(backends).unwrap_or(u32::MAX).max(1);
        KEEP.powf(f64::from(TOLD_EVERY) / f64::from(backends))
    }

    /// Takes in what was seen of this backend. `tier` has taken it in already.
    pub(super) fn learn(&mut self, sample: Sample, tier: Option<&Self>) {
        self.seen += 1;
        match sample {
            Sample::Prefill(work, load, seconds) => {
                let features = [self.guessed_step(load), work.tokens, work.pairs];
                self.prefill
                    .observe(features, seconds, tier.map(|tier| &tier.prefill));
                self.knows_prefill = true;
            }
            Sample::Step(load, seconds) => {
                self.step
                    .observe(load.features(), seconds, tier.map(|tier| &tier.step));
                self.knows_step = true;
            }
        }
    }

    /// Siblings were seen: what is not known here, or no longer, is taken from all
    /// of them. `aged` is what the own observations are still worth if there were none
    /// since the last news, see [`Self::aged`].
    pub(super) fn follow(&mut self, tier: &Self, aged: f64) {
        if self.seen == self.seen_at_news {
            self.prefill.sums.age(aged);
            self.step.sums.age(aged);
        }
        self.seen_at_news = self.seen;
        if self.prefill.sums.count < SEEN_ENOUGH {
            self.prefill.solve(Some(&tier.prefill.sums));
            self.knows_prefill |= tier.knows_prefill;
        }
        if self.step.sums.count < SEEN_ENOUGH {
            self.step.solve(Some(&tier.step.sums));
            self.knows_step |= tier.knows_step;
        }
    }

    /// Seconds of prefill that `work` is.
    pub(super) fn prefill(&self, work: Prefill) -> f64 {
        work.seconds(self.prefill_pace())
    }

    /// Seconds of a thousand tokens of prefill, and of a million pairs.
    pub(super) const fn prefill_pace(&self) -> (f64, f64) {
        let [_, tokens, pairs] = self.prefill.coefficients;
        (tokens, pairs)
    }

    /// Whether that was seen, here or on a sibling.
    pub(super) const fn knows_prefill(&self) -> bool {
        self.knows_prefill
    }

    /// The same, or zero where it is only guessed: whoever is refused for it must
    /// really have no chance.
    pub(super) fn known_prefill(&self, work: Prefill) -> f64 {
        if self.knows_prefill {
            self.prefill(work)
        } else {
            0.0
        }
    }

    /// Seconds that pass before and after the prefill itself under `load`: the step
    /// under way and the decoding of its own. It grows with what runs there, so that
    /// of two idle lines the one of the emptier engine is the shorter.
    pub(super) fn delay(&self, load: Load) -> f64 {
        self.prefill.coefficients[0] * self.guessed_step(load)
    }

    /// Seconds of a decode step under `load`, prefill left out; `None` until one
    /// was seen.
    pub(super) fn step(&self, load: Load) -> Option<f64> {
        self.knows_step.then(|| self.guessed_step(load))
    }

    /// The same, by the prior until one was seen.
    fn guessed_step(&self, load: Load) -> f64 {
        dot(self.step.coefficients, load.features())
    }
}

// === impl Line ===

impl Line {
    fn new(prior: [f64; 3]) -> Self {
        Self {
            sums: Sums::default(),
            prior,
            coefficients: prior,
        }
    }

    fn observe(&mut self, features: [f64; 3], seen: f64, siblings: Option<&Self>) {
        let foreseen = dot(self.coefficients, features);
        let learned = self.sums.count >= SIBLINGS;
        let most = if learned {
            BELIEVED * foreseen + NORMAL_ERROR.1
        } else {
            f64::MAX
        };
        let error = NORMAL_ERROR.0 * foreseen + NORMAL_ERROR.1;
        self.sums
            .add(features, seen.clamp(0.0, most), 1.0 / (error * error));
        self.solve(siblings.map(|line| &line.sums));
    }

    /// The non-negative coefficients of least squares, by coordinate descent.
    fn solve(&mut self, siblings: Option<&Sums>) {
        let mut gram = self.sums.gram;
        let mut moments = self.sums.moments;
        if let Some(sums) = siblings {
            let share = SIBLINGS / sums.count.max(SIBLINGS);
            for (row, other) in gram.iter_mut().zip(sums.gram) {
                for (cell, more) in row.iter_mut().zip(other) {
                    *cell += share * more;
                }
            }
            for (moment, more) in moments.iter_mut().zip(sums.moments) {
                *moment += share * more;
            }
        }
        for index in 0..3 {
            let pull = (PRIOR_DOUBT * self.prior[index]).powi(-2);
            gram[index][index] += pull;
            moments[index] += pull * self.prior[index];
        }
        for _ in 0..SWEEPS {
            for index in 0..3 {
                let others = dot(gram[index], self.coefficients)
                    - gram[index][index] * self.coefficients[index];
                let best = (moments[index] - others) / gram[index][index];
                self.coefficients[index] = best.max(0.0);
            }
        }
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, features: [f64; 3], seen: f64, weight: f64) {
        self.age(KEEP);
        for (index, row) in self.gram.iter_mut().enumerate() {
            for (cell, feature) in row.iter_mut().zip(features) {
                *cell += weight * features[index] * feature;
            }
            self.moments[index] += weight * features[index] * seen;
        }
        self.count += 1.0;
    }

    /// Keeps a share of all that was seen.
    fn age(&mut self, kept: f64) {
        for cell in self.gram.as_flattened_mut() {
            *cell *= kept;
        }
        for moment in &mut self.moments {
            *moment *= kept;
        }
        self.count *= kept;
    }
}

fn dot(left: [f64; 3], right: [f64; 3]) -> f64 {
    left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Load = Load {
        context: Tokens::ZERO,
        sequences: 0,
    };

    /// An RTX PRO 6000: 26,000 tokens a second, 1.9 ns a pair, 20 ms about it.
    fn real(tokens: u64) -> (Prefill, f64) {
        let work = Prefill::new(Tokens::new(tokens), Tokens::ZERO);
        (work, 0.02 + 0.038 * work.tokens + 0.0019 * work.pairs)
    }

    fn seconds(pace: &Pace, tokens: u64) -> f64 {
        pace.prefill(Prefill::new(Tokens::new(tokens), Tokens::ZERO))
    }

    #[test]
    fn three_first_tokens_bring_a_pace_within_a_fifth_of_the_truth() {
        let mut pace = Pace::of_tier(Tier::Standard);
        let (work, _) = real(2000);
        assert_eq!(
            (pace.known_prefill(work), seconds(&pace, 1000) > 0.1),
            (0.0, true)
        );
        for tokens in [800, 3000, 6000] {
            let (work, passed) = real(tokens);
            pace.learn(Sample::Prefill(work, IDLE, passed), None);
        }
        let (work, passed) = real(4000);
        let foreseen = pace.delay(IDLE) + pace.prefill(work);
        assert!((foreseen / passed - 1.0).abs() < 0.2, "{foreseen} {passed}");
    }

    #[test]
    fn a_hundred_mixed_prompts_bring_it_within_three_percent_at_any_length() {
        let mut pace = Pace::of_tier(Tier::Standard);
        for round in 0..100_u64 {
            let (work, passed) = real(200 + round * 7919 % 30_000);
            // A step of 15 ms more or less, as it falls.
            let jitter = if round % 2 == 0 { 0.0075 } else { -0.0075 };
            pace.learn(Sample::Prefill(work, IDLE, passed + jitter), None);
        }
        for tokens in [500, 5000, 30_000, 100_000] {
            let (work, passed) = real(tokens);
            let foreseen = pace.delay(IDLE) + pace.prefill(work);
            assert!(
                (foreseen / passed - 1.0).abs() < 0.08,
                "{tokens}: {foreseen} {passed}"
            );
        }
    }

    #[test]
    fn a_cpu_is_known_after_four_prompts_of_a_hundred_tokens() {
        let mut pace = Pace::of_tier(Tier::Standard);
        for tokens in [100, 120, 80, 100] {
            let seen = 0.002 * f64::from(tokens);
            let work = Prefill::new(Tokens::new(u64::try_from(tokens).unwrap()), Tokens::ZERO);
            pace.learn(Sample::Prefill(work, IDLE, seen), None);
        }
        let foreseen = pace.delay(IDLE) + seconds(&pace, 100);
        assert!((0.16..0.24).contains(&foreseen), "{foreseen}");
    }

    #[test]
    fn one_stall_of_a_minute_moves_a_learned_pace_by_less_than_a_tenth() {
        let mut pace = Pace::of_tier(Tier::Standard);
        for round in 0..60_u64 {
            let (work, passed) = real(500 + round * 997 % 8000);
            pace.learn(Sample::Prefill(work, IDLE, passed), None);
        }
        let before = seconds(&pace, 8000);
        pace.learn(Sample::Prefill(real(3000).0, IDLE, 60.0), None);
        let after = seconds(&pace, 8000);
        assert!((after / before - 1.0).abs() < 0.1, "{before} {after}");
    }

    #[test]
    fn a_backend_not_seen_yet_starts_from_its_siblings() {
        let mut tier = Pace::of_tier(Tier::Large);
        for round in 0..30_u64 {
            let (work, passed) = real(500 + round * 997 % 8000);
            tier.learn(Sample::Prefill(work, IDLE, passed), None);
        }
        let mut fresh = Pace::of_tier(Tier::Large);
        fresh.follow(&tier, 1.0);
        let (fresh, tier) = (seconds(&fresh, 6000), seconds(&tier, 6000));
        assert!((fresh / tier - 1.0).abs() < 0.1, "{fresh} {tier}");
    }

    #[test]
    fn a_decode_step_is_known_by_its_context_and_its_sequences() {
        let mut pace = Pace::of_tier(Tier::Standard);
        let load = |context, sequences| Load {
            context: Tokens::new(context),
            sequences,
        };
        assert_eq!(pace.step(load(1000, 1)), None);
        for round in 0..60_u64 {
            let (context, sequences) = (round * 5000 % 90_000, 1 + round % 40);
            let seen = 0.012 + 0.0925e-6 * f64::from(u32::try_from(context).unwrap());
            pace.learn(Sample::Step(load(context, sequences), seen), None);
        }
        let full = pace.step(load(90_000, 30)).expect("seen");
        assert!((0.0195..0.0213).contains(&full), "{full}");
    }
}
