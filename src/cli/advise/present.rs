//! What runs at present, from wherever it can be known.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::Failure;
use crate::cli::live::Seen;
use crate::config::{Config, ReservationKind};
use crate::core::backend::Tier;
use crate::core::units::{BlockSize, Tokens};
use crate::sizing::advise::present::{Engine, Present, Reservation};

/// The present, as far as somebody has said.
#[derive(Debug, Default)]
pub(super) struct Known(Present);

/// What is read of `/state`.
#[derive(Deserialize)]
struct State {
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    model: String,
    reservation: Option<String>,
    backends: Vec<Backend>,
}

#[derive(Deserialize)]
struct Backend {
    name: String,
    tier: String,
    capacity: Option<Capacity>,
}

#[derive(Deserialize)]
struct Capacity {
    block_size: u32,
    tokens: u64,
    max_model_len: u64,
}

// === impl Known ===

impl Known {
    /// As the configuration says: its settings, and what the operator knows of backends.
    pub(super) fn of_config(config: &Config) -> Self {
        let engines = config.models.iter().flat_map(|model| {
            model.backends.iter().flat_map(|backend| {
                let kv = &backend.kv;
                let blocks = kv.blocks.zip(kv.block_size);
                let pool = blocks.map(|(blocks, size)| blocks.tokens(size));
                let engine = Engine {
                    name: backend.name.clone(),
                    model: model.name.clone(),
                    tier: backend.tier,
                    pool: kv.tokens.or(pool),
                    block_size: kv.block_size,
                    max_model_len: kv.max_model_len,
                };
                (0..backend.data_parallel_ranks).map(move |_| engine.clone())
            })
        });
        Self(Present {
            engines: engines.collect(),
            reservation: Some(match config.admission.reservation {
                ReservationKind::Strict => Reservation::Strict,
                ReservationKind::Forecast => Reservation::Forecast,
            }),
            open_output: Some(config.admission.open_output_tokens),
        })
    }

    /// Engines that answered stand in for what the configuration says of them.
    pub(super) fn engines_say(&mut self, seen: &[Seen]) {
        for seen in seen.iter().filter(|seen| !seen.ranks.is_empty()) {
            let engines = &mut self.0.engines;
            engines.retain(|engine| engine.name != seen.backend || engine.model != seen.model);
            engines.extend(seen.ranks.iter().map(|rank| Engine {
                name: seen.backend.clone(),
                model: seen.model.clone(),
                tier: tier(seen.tier),
                pool: Some(Tokens::new(rank.kv_tokens)),
                block_size: BlockSize::new(rank.block_size),
                max_model_len: seen.max_model_len.map(Tokens::new),
            }));
        }
    }

    /// A running gateway knows its engines better than anybody.
    ///
    /// # Errors
    /// The answer is not that of a gateway.
    pub(super) fn gateway_says(&mut self, state: &Value) -> Result<(), Failure> {
        let state = State::deserialize(state);
        let state = state.map_err(|error| {
            Failure::Run(format!("/state is not as this version reads it: {error}"))
        })?;
        self.0.engines.clear();
        for pool in state.pools {
            let kept = pool.reservation.as_deref().and_then(Reservation::parse);
            self.0.reservation = kept.or(self.0.reservation);
            let engines = pool.backends.into_iter().map(|backend| {
                let capacity = backend.capacity;
                let figure = |of: fn(&Capacity) -> u64| capacity.as_ref().map(of).map(Tokens::new);
                Engine {
                    name: backend.name,
                    model: pool.model.clone(),
                    tier: tier(&backend.tier),
                    pool: figure(|capacity| capacity.tokens),
                    block_size: capacity.as_ref().and_then(|c| BlockSize::new(c.block_size)),
                    max_model_len: figure(|capacity| capacity.max_model_len),
                }
            });
            self.0.engines.extend(engines);
        }
        Ok(())
    }

    /// Flags fill in what nobody has said: `max_model_len` and KV tokens of all engines
    /// together, which are spread evenly over them.
    pub(super) fn flags_say(&mut self, models: &[String], told: [Option<Tokens>; 2]) {
        let [max_model_len, kv_tokens] = told;
        if told == [None, None] {
            return;
        }
        if self.0.engines.is_empty() {
            self.0.engines.extend(models.iter().map(|model| Engine {
                name: String::new(),
                model: model.clone(),
                tier: Tier::Standard,
                pool: None,
                block_size: None,
                max_model_len: None,
            }));
        }
        let engines = u64::try_from(self.0.engines.len()).unwrap_or(u64::MAX);
        let each = kv_tokens.map(|tokens| Tokens::new(tokens.get() / engines));
        for engine in &mut self.0.engines {
            engine.max_model_len = engine.max_model_len.or(max_model_len);
            engine.pool = engine.pool.or(each);
        }
    }

    /// The present.
    pub(super) fn present(&self) -> Present {
        self.0.clone()
    }

    /// Flags and keys that a round of tuning is remembered by.
    pub(super) fn flags(&self) -> BTreeMap<String, String> {
        let mut flags = BTreeMap::new();
        for engine in &self.0.engines {
            if let Some(limit) = engine.max_model_len {
                let place = format!("{} {} --max-model-len", engine.model, engine.tier);
                flags.insert(place, limit.to_string());
            }
        }
        let reservation = self.0.reservation.map(|one| one.name().to_owned());
        let open = self.0.open_output.map(|open| open.to_string());
        let settings = [("reservation", reservation), ("open_output_tokens", open)];
        for (key, value) in settings {
            flags.extend(value.map(|value| (key.to_owned(), value)));
        }
        flags
    }
}

/// The tier of that name; an unknown one is none of ours and taken for the first.
fn tier(name: &str) -> Tier {
    let mut tiers = Tier::ALL.into_iter();
    tiers
        .find(|tier| tier.name() == name)
        .unwrap_or(Tier::Standard)
}
