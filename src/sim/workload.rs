//! Seeded load as plain data: who asks when for how much, and what it really needs.
//!
//! Decides arrivals from a [`WorkloadSpec`]; never sends one. Equal specifications give
//! equal arrivals on every machine, and each flow draws from numbers of its own, so that a
//! change to one flow leaves the others as they were.

use std::time::Duration;

use super::content::{prefix_of_ids, word};
use super::engine::SimRequest;
use super::random::{Random, mix};
use crate::core::demand::TenantId;
use crate::core::prefix::PrefixChain;
use crate::core::time::Time;
use crate::core::units::{BlockSize, Blocks, Tokens};

/// What kind of traffic a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Short prompts, short answers, someone watches.
    Chat,
    /// A long prompt built from retrieved documents.
    Documents,
    /// Larger than anything could ever hold.
    Impossible,
    /// A tenant that sends as if alone.
    Greedy,
}

/// A load to draw arrivals from.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    /// Seed of everything drawn.
    pub seed: u64,
    /// Arrivals come before this.
    pub duration: Duration,
    /// The flows, each on its own.
    pub flows: Vec<Flow>,
}

/// Requests of one kind from one tenant, arriving as a Poisson process.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Who sends them.
    pub tenant: TenantId,
    /// What they are.
    pub class: Class,
    /// When they come.
    pub arrivals: Arrivals,
    /// Prompt lengths in tokens, the shared part included.
    pub prompt: Lengths,
    /// Leading tokens that all prompts of the flow share, such as a system prompt.
    pub shared: Tokens,
    /// Tokens the answers really have.
    pub output: Lengths,
    /// What the requests ask for.
    pub asked: Asked,
}

/// When the requests of a flow come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// This many a second on average, within `from..until`.
    PerSecond {
        /// Mean rate; positive.
        rate: f64,
        /// When the flow begins.
        from: Duration,
        /// When it ends, at the latest with the workload.
        until: Duration,
    },
    /// One, then.
    Once(Duration),
}

/// Log-normally distributed lengths within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// Half of them are shorter.
    pub median: Tokens,
    /// Standard deviation of the logarithm; 0 for always the median.
    pub spread: f64,
    /// The shortest; at least 1.
    pub least: Tokens,
    /// The longest.
    pub most: Tokens,
}

/// The `max_tokens` that clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Always this many, whatever the answer needs; answers are cut there.
    Tokens(Tokens),
    /// Nothing: the engine's default.
    Nothing,
}

/// One request of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Place in the workload, from 0, in order of time.
    pub number: u64,
    /// When it comes.
    pub at: Time,
    /// Who sends it.
    pub tenant: TenantId,
    /// What it is.
    pub class: Class,
    /// Prompt tokens.
    pub prompt: Tokens,
    /// Leading tokens of the prompt that are the same for the whole flow.
    pub shared: Tokens,
    /// What it asks for.
    pub max_tokens: Option<Tokens>,
    /// Tokens its answer really has, where nothing cuts it.
    pub output: Tokens,
    /// What the shared and the own part of the prompt are drawn from.
    content: (u64, u64),
}

/// The tenants of [`WorkloadSpec::mixed`], by index: their names.
pub const TENANTS: [&str; 4] = ["chat", "support", "documents", "greedy"];

// === impl WorkloadSpec ===

impl WorkloadSpec {
    /// The demonstration's load for a pool of `standard` KV tokens: two tenants that chat,
    /// one that asks about long documents, one that floods the fleet for the middle third,
    /// and one request that nothing can hold. Tenants are indices into [`TENANTS`].
    ///
    /// `intensity` scales the rates. At 1, with 32,768 tokens and engines of the default
    /// profile, the chats keep one standard engine at 40 % of its KV and the flood passes
    /// what it holds; at 2 the chats alone fill it.
    pub fn mixed(seed: u64, duration: Duration, standard: Tokens, intensity: f64) -> Self {
        let whole = |rate: f64| Arrivals::PerSecond {
            rate: rate * intensity,
            from: Duration::ZERO,
            until: duration,
        };
        let chat = |tenant| Flow {
            tenant: TenantId(tenant),
            class: Class::Chat,
            arrivals: whole(1.0),
            prompt: Lengths::around(standard.share(0.02), 0.7, standard.share(0.1)),
            shared: standard.share(0.01),
            output: Lengths::around(standard.share(0.012), 0.8, standard.share(0.06)),
            asked: Asked::Tokens(standard.share(0.06)),
        };
        let documents = Flow {
            tenant: TenantId(2),
            class: Class::Documents,
            arrivals: whole(0.12),
            prompt: Lengths::around(standard.share(0.6), 0.4, standard * 2),
            shared: Tokens::ZERO,
            output: Lengths::around(standard.share(0.02), 0.5, standard.share(0.05)),
            asked: Asked::Tokens(standard.share(0.05)),
        };
        let greedy = Flow {
            tenant: TenantId(3),
            class: Class::Greedy,
            arrivals: Arrivals::PerSecond {
                rate: 6.0 * intensity,
                from: duration / 3,
                until: duration * 2 / 3,
            },
            ..chat(3)
        };
        let impossible = Flow {
            tenant: TenantId(2),
            class: Class::Impossible,
            arrivals: Arrivals::Once(duration / 4),
            prompt: Lengths::exactly(standard * 16),
            ..documents.clone()
        };
        Self {
            seed,
            duration,
            flows: vec![chat(0), chat(1), documents, greedy, impossible],
        }
    }

    /// All arrivals, in order of time; equal times keep the order of the flows.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let root = Random::new(self.seed);
        let mut arrivals: Vec<Arrival> = Vec::new();
        for (flow, index) in self.flows.iter().zip(0..) {
            flow.draw(root.fork(index), self.duration, &mut arrivals);
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        for (arrival, number) in arrivals.iter_mut().zip(0..) {
            arrival.number = number;
        }
        arrivals
    }
}

// === impl Flow ===

impl Flow {
    fn draw(&self, mut random: Random, end: Duration, out: &mut Vec<Arrival>) {
        let shared_content = random.next_u64();
        match self.arrivals {
            Arrivals::Once(at) => out.push(self.one(at, shared_content, &mut random)),
            Arrivals::PerSecond { rate, from, until } => {
                let mut at = from.as_secs_f64();
                let until = until.min(end).as_secs_f64();
                loop {
                    at += random.exponential(1.0 / rate);
                    if at >= until {
                        return;
                    }
                    out.push(self.one(Duration::from_secs_f64(at), shared_content, &mut random));
                }
            }
        }
    }

    fn one(&self, at: Duration, shared_content: u64, random: &mut Random) -> Arrival {
        let prompt = self.prompt.draw(random);
        let output = self.output.draw(random);
        Arrival {
            number: 0,
            at: Time::from_start(at),
            tenant: self.tenant,
            class: self.class,
            prompt,
            shared: self.shared.min(prompt),
            max_tokens: match self.asked {
                Asked::Tokens(tokens) => Some(tokens.max(Tokens::new(1))),
                Asked::Nothing => None,
            },
            output,
            content: (shared_content, random.next_u64()),
        }
    }
}

// === impl Lengths ===

impl Lengths {
    /// Lengths around `median` up to `most`.
    pub fn around(median: Tokens, spread: f64, most: Tokens) -> Self {
        let least = Tokens::new(1);
        Self {
            median: median.max(least),
            spread,
            least,
            most: most.max(least),
        }
    }

    /// Always this length.
    pub fn exactly(tokens: Tokens) -> Self {
        Self::around(tokens, 0.0, tokens)
    }

    fn draw(&self, random: &mut Random) -> Tokens {
        let drawn = random.log_normal(self.median.as_f64(), self.spread).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates to the bounds that follow"
        )]
        let drawn = Tokens::new(drawn as u64);
        drawn.clamp(self.least, self.most.max(self.least))
    }
}

// === impl Arrival ===

impl Arrival {
    /// The prompt as token ids, exactly [`Arrival::prompt`] of them. O(prompt).
    pub fn ids(&self) -> Vec<u32> {
        let id = |place| {
            let id = self.number_at(place) % 100_000;
            u32::try_from(id).expect("a remainder of 100000 fits")
        };
        (0..self.prompt.get()).map(id).collect()
    }

    /// The prompt as text of one-token words, as many as [`Arrival::prompt`]. O(prompt).
    pub fn text(&self) -> String {
        (0..self.prompt.get())
            .map(|place| word(self.number_at(place)))
            .collect()
    }

    /// Hashes of the full blocks of [`Arrival::ids`]. O(prompt).
    pub fn prefix(&self, size: BlockSize) -> PrefixChain {
        prefix_of_ids(&self.ids(), size)
    }

    /// The request as an engine gets it without a gateway, `declared` left at zero.
    pub fn request(&self, size: BlockSize) -> SimRequest {
        SimRequest {
            prompt: self.prompt,
            prefix: self.prefix(size),
            samples: 1,
            max_tokens: self.max_tokens,
            output: self.output,
            declared: Blocks::ZERO,
        }
    }

    /// Tokens of output that will really be generated: cut at what was asked.
    pub fn generated(&self) -> Tokens {
        self.max_tokens
            .map_or(self.output, |most| self.output.min(most))
    }

    fn number_at(&self, place: u64) -> u64 {
        let (shared, own) = self.content;
        let content = if place < self.shared.get() {
            shared
        } else {
            own
        };
        mix(content, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(seed: u64) -> WorkloadSpec {
        WorkloadSpec::mixed(seed, Duration::from_secs(120), Tokens::new(32_768), 1.0)
    }

    #[test]
    fn equal_seeds_give_equal_arrivals() {
        assert_eq!(mixed(7).arrivals(), mixed(7).arrivals());
        assert_ne!(mixed(7).arrivals(), mixed(8).arrivals());
    }

    #[test]
    fn the_mixed_load_holds_every_class_in_order_of_time() {
        let arrivals = mixed(7).arrivals();
        assert!(arrivals.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(
            arrivals
                .iter()
                .zip(0..)
                .all(|(arrival, number)| arrival.number == number)
        );
        let count = |class| {
            arrivals
                .iter()
                .filter(|arrival| arrival.class == class)
                .count()
        };
        assert_eq!(count(Class::Impossible), 1);
        // Rates of 2, 0.12 and 6 a second, the last for a third of 120 s.
        assert!(
            (190..290).contains(&count(Class::Chat)),
            "{}",
            count(Class::Chat)
        );
        assert!(
            (6..26).contains(&count(Class::Documents)),
            "{}",
            count(Class::Documents)
        );
        assert!(
            (190..290).contains(&count(Class::Greedy)),
            "{}",
            count(Class::Greedy)
        );
    }

    #[test]
    fn the_impossible_request_is_larger_than_any_pool_of_the_fleet() {
        let arrivals = mixed(7).arrivals();
        let impossible = arrivals
            .iter()
            .find(|arrival| arrival.class == Class::Impossible)
            .unwrap();
        assert_eq!(impossible.prompt, Tokens::new(16 * 32_768));
        let documents = |arrival: &&Arrival| arrival.class == Class::Documents;
        assert!(
            arrivals
                .iter()
                .filter(documents)
                .all(|arrival| arrival.prompt <= Tokens::new(65_536))
        );
    }

    #[test]
    fn a_change_to_one_flow_leaves_the_others_as_they_were() {
        let before = mixed(7);
        let mut after = mixed(7);
        after.flows[3].arrivals = Arrivals::Once(Duration::from_secs(1));
        let documents = |spec: &WorkloadSpec| -> Vec<(Time, Tokens)> {
            let arrivals = spec.arrivals().into_iter();
            let of_class = arrivals.filter(|arrival| arrival.class == Class::Documents);
            of_class
                .map(|arrival| (arrival.at, arrival.prompt))
                .collect()
        };
        assert_eq!(documents(&before), documents(&after));
    }

    #[test]
    fn a_flow_shares_its_leading_tokens() {
        let arrivals = mixed(7).arrivals();
        let chats: Vec<&Arrival> = arrivals
            .iter()
            .filter(|arrival| arrival.tenant == TenantId(0))
            .take(2)
            .collect();
        let shared = usize::try_from(chats[0].shared.min(chats[1].shared).get()).unwrap();
        let (one, two) = (chats[0].ids(), chats[1].ids());
        assert_eq!(one[..shared], two[..shared]);
        assert_ne!(one[shared..], two[shared..]);
        assert_eq!(u64::try_from(one.len()).unwrap(), chats[0].prompt.get());
        assert_eq!(chats[0].text().matches(' ').count(), one.len());
    }
}
