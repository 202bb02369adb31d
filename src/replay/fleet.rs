//! Fleets as files: the engines of a replay, what their clients expect, what is changed.
//!
//! Decides nothing of a run. A [`FleetFile`] is the text as it is written, every key known;
//! [`FleetFile::plan`] makes of it what a run takes. A [`Change`] is one question of
//! `--what-if`, answered by another file.

mod change;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::setup::{Fleet, Node, Slo};
use super::traces::Format;
use super::traces::schedule::Surge;
use crate::core::backend::Tier;
use crate::core::placement::{LongOnStandard, TierPolicy};
use crate::core::units::Tokens;
use crate::sim::engine::EngineSpec;
use crate::sim::engine::StepTime;

pub use change::Change;

/// A fleet as its file tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetFile {
    /// Output that worst-case reservation assumes of requests without `max_tokens`.
    assumed_max_tokens: u64,
    slo: SloFile,
    #[serde(default)]
    tiers: TiersFile,
    /// By name of a trace format: prompts shorter than this are left out.
    #[serde(default)]
    min_prompt: BTreeMap<String, u64>,
    surge: Option<SurgeFile>,
    nodes: Vec<NodeFile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SloFile {
    /// To the first token …
    #[serde(with = "text")]
    first_token: Duration,
    /// … and prompt tokens over this many a second on top.
    prompt_tokens_per_second: f64,
    /// Mean time between the tokens after it.
    #[serde(with = "text")]
    token_pace: Duration,
}

/// Settings of the core's tiers, as `[admission]` of a gateway's configuration has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TiersFile {
    long_share: Option<f64>,
    free_reserve: Option<f64>,
    long_on_standard: Option<LongRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LongRule {
    Never,
    WhenNothingLarger,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SurgeFile {
    tenant: String,
    factor: u32,
    #[serde(with = "text")]
    from: Duration,
    #[serde(with = "text")]
    to: Duration,
}

/// `count` engines of one make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: String,
    count: u32,
    tier: TierName,
    profile: Profile,
    /// How many times faster than the profile's hardware.
    #[serde(default = "one")]
    speed: f64,
    kv_tokens: u64,
    max_model_len: u64,
    #[serde(default)]
    max_num_seqs: Option<u32>,
    #[serde(default)]
    max_num_batched_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TierName {
    Standard,
    Large,
    Offload,
}

/// Measured hardware.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Profile {
    #[serde(rename = "rtx_pro_6000_8b")]
    RtxPro6000,
    #[serde(rename = "rtx_4090_8b")]
    Rtx4090,
}

/// What a run takes of a fleet's file.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The engines and what clients expect.
    pub fleet: Fleet,
    /// Rules of the core's tiers.
    pub tiers: TierPolicy,
    /// Prompts shorter than this are left out, by format of the trace.
    pub least_prompt: BTreeMap<Format, Tokens>,
    /// A tenant that asks for more for a while.
    pub surge: Option<Surge>,
}

/// Why a fleet cannot be built.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct FleetError(pub(in crate::replay) String);

// === impl FleetFile ===

impl FleetFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is not TOML, has a key that is not known or a value that makes no fleet.
    pub fn read(text: &str) -> Result<Self, FleetError> {
        let file: Self = toml::from_str(text).map_err(|error| FleetError(error.to_string()))?;
        file.plan()?;
        Ok(file)
    }

    /// What a run takes of it.
    ///
    /// # Errors
    /// A value makes no fleet.
    pub fn plan(&self) -> Result<Plan, FleetError> {
        let nodes: Vec<Vec<Node>> = self
            .nodes
            .iter()
            .map(NodeFile::nodes)
            .collect::<Result<_, _>>()?;
        let fleet = Fleet {
            nodes: nodes.into_iter().flatten().collect(),
            slo: self.slo.slo()?,
            assumed_output: Tokens::new(self.assumed_max_tokens),
        };
        if fleet.nodes.is_empty() {
            return Err(FleetError("nodes: a fleet needs an engine".to_owned()));
        }
        if self.assumed_max_tokens == 0 {
            return Err(FleetError(
                "assumed_max_tokens = 0: must be at least 1".to_owned(),
            ));
        }
        Ok(Plan {
            fleet,
            tiers: self.tiers.policy()?,
            least_prompt: self.least_prompt()?,
            surge: self.surge.as_ref().map(SurgeFile::surge).transpose()?,
        })
    }

    fn least_prompt(&self) -> Result<BTreeMap<Format, Tokens>, FleetError> {
        let known = |(name, tokens): (&String, &u64)| match Format::parse(name) {
            Some(format) => Ok((format, Tokens::new(*tokens))),
            None => {
                let names = Format::ALL.map(Format::name).join(", ");
                Err(FleetError(format!(
                    "min_prompt.{name}: no format of traces; known are {names}"
                )))
            }
        };
        self.min_prompt.iter().map(known).collect()
    }
}

// === impl SloFile ===

impl SloFile {
    fn slo(&self) -> Result<Slo, FleetError> {
        let rate = self.prompt_tokens_per_second;
        if !(rate.is_finite() && rate > 0.0) {
            return Err(FleetError(format!(
                "slo.prompt_tokens_per_second = {rate}: must be above 0"
            )));
        }
        Ok(Slo {
            first_token: self.first_token,
            per_prompt_token: Duration::from_secs_f64(1.0 / rate),
            token_pace: self.token_pace,
        })
    }
}

// === impl TiersFile ===

impl TiersFile {
    fn policy(&self) -> Result<TierPolicy, FleetError> {
        let mut policy = TierPolicy::default();
        let shares = [
            ("long_share", self.long_share, &mut policy.long_share),
            ("free_reserve", self.free_reserve, &mut policy.free_reserve),
        ];
        for (name, share, place) in shares {
            let Some(share) = share else { continue };
            if !(0.0..=1.0).contains(&share) {
                return Err(FleetError(format!(
                    "tiers.{name} = {share}: must be within 0 and 1"
                )));
            }
            *place = share;
        }
        if let Some(rule) = self.long_on_standard {
            policy.long_on_standard = match rule {
                LongRule::Never => LongOnStandard::Never,
                LongRule::WhenNothingLarger => LongOnStandard::WhenNothingLarger,
            };
        }
        Ok(policy)
    }
}

// === impl SurgeFile ===

impl SurgeFile {
    fn surge(&self) -> Result<Surge, FleetError> {
        if self.factor == 0 || self.from >= self.to {
            let problem = "surge: factor must be at least 1 and from before to";
            return Err(FleetError(problem.to_owned()));
        }
        Ok(Surge {
            tenant: self.tenant.clone(),
            factor: self.factor,
            window: self.from..self.to,
        })
    }
}

// === impl NodeFile ===

impl NodeFile {
    fn nodes(&self) -> Result<Vec<Node>, FleetError> {
        let wrong = |problem: String| Err(FleetError(format!("nodes {:?}: {problem}", self.name)));
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return wrong(format!("speed = {} must be above 0", self.speed));
        }
        let mut spec = EngineSpec {
            max_model_len: Tokens::new(self.max_model_len),
            step: self.profile.step().compressed(self.speed),
            ..EngineSpec::with_pool(Tokens::new(self.kv_tokens))
        };
        spec.max_num_seqs = self.max_num_seqs.unwrap_or(spec.max_num_seqs);
        let chunk = self.max_num_batched_tokens.map(Tokens::new);
        spec.max_num_batched_tokens = chunk.unwrap_or(spec.max_num_batched_tokens);
        if spec.usable().is_zero() || self.max_model_len < 2 {
            return wrong("kv_tokens and max_model_len must hold a request".to_owned());
        }
        if spec.max_num_seqs == 0 || spec.max_num_batched_tokens.is_zero() {
            return wrong("max_num_seqs and max_num_batched_tokens must be at least 1".to_owned());
        }
        let node = |number: u32| Node {
            name: format!("{}-{number}", self.name),
            tier: self.tier.tier(),
            spec: spec.clone(),
        };
        Ok((0..self.count).map(node).collect())
    }
}

// === impl TierName ===

impl TierName {
    const fn tier(self) -> Tier {
        match self {
            Self::Standard => Tier::Standard,
            Self::Large => Tier::Large,
            Self::Offload => Tier::Offload,
        }
    }
}

// === impl Profile ===

impl Profile {
    fn step(self) -> StepTime {
        match self {
            Self::RtxPro6000 => StepTime::rtx_pro_6000_8b(),
            Self::Rtx4090 => StepTime::rtx_4090_8b(),
        }
    }
}

const fn one() -> f64 {
    1.0
}

/// Times with their unit, as `"2s"`.
mod text {
    use serde::{Serializer, de::Error as _};

    use super::{Deserialize, Deserializer, Duration, SignedDuration};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}ms", time.as_millis()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let parsed: Option<SignedDuration> = text.parse().ok();
        let time = parsed.and_then(|time| Duration::try_from(time).ok());
        time.ok_or_else(|| {
            D::Error::custom(format!("{text:?} is no time with its unit, as \"2s\""))
        })
    }
}
