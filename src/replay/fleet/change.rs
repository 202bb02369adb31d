//! What-if questions: one change to a fleet, as `what=value`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{FleetError, FleetFile, NodeFile, SurgeFile, TierName};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `add=NAME:COUNT`: more engines like those.
    Add {
        /// Name of the engines, their tier, or `node` for the first of the file.
        like: String,
        /// How many.
        count: u32,
    },
    /// `max_model_len=TOKENS` or `max_model_len=NAME:TOKENS`.
    MaxModelLen {
        /// Which engines; `None` for all.
        of: Option<String>,
        /// The new length.
        tokens: u64,
    },
    /// `kv=fp8`: each token takes half the memory, so the pool holds twice as many.
    Fp8,
    /// `tier=NAME:TIER`.
    Tier {
        /// Which engines.
        of: String,
        /// `standard`, `large` or `offload`.
        tier: String,
    },
    /// `surge=TENANT*FACTOR@FROM-TO`: a tenant asks for that many times as much in those
    /// seconds of the trace.
    Surge {
        /// Its name in the trace.
        tenant: String,
        /// How many times.
        factor: u32,
        /// First second.
        from: u64,
        /// Last second.
        to: u64,
    },
}

// === impl Change ===

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.split_once('=').and_then(|(what, value)| match what {
            "add" => {
                let (like, count) = value.split_once(':')?;
                let count = count.parse().ok().filter(|count| *count > 0)?;
                let like = like.to_owned();
                Some(Self::Add { like, count })
            }
            "max_model_len" => {
                let (of, tokens) = match value.split_once(':') {
                    Some((name, tokens)) => (Some(name.to_owned()), tokens),
                    None => (None, value),
                };
                let tokens = tokens.parse().ok()?;
                Some(Self::MaxModelLen { of, tokens })
            }
            "kv" => (value == "fp8").then_some(Self::Fp8),
            "tier" => {
                let (of, tier) = value.split_once(':')?;
                TierName::parse(tier)?;
                let (of, tier) = (of.to_owned(), tier.to_owned());
                Some(Self::Tier { of, tier })
            }
            "surge" => Self::surge(value),
            _ => None,
        });
        read.ok_or_else(|| {
            "must be add=NAME:COUNT, max_model_len=TOKENS, max_model_len=NAME:TOKENS, kv=fp8, \
             tier=NAME:TIER or surge=TENANT*FACTOR@FROM-TO"
                .to_owned()
        })
    }
}

impl Change {
    fn surge(value: &str) -> Option<Self> {
        let (tenant, rest) = value.rsplit_once('*')?;
        let (factor, window) = rest.split_once('@')?;
        let (from, to) = window.split_once('-')?;
        Some(Self::Surge {
            tenant: tenant.to_owned(),
            factor: factor.parse().ok()?,
            from: from.parse().ok()?,
            to: to.parse().ok()?,
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { like, count } => write!(f, "add={like}:{count}"),
            Self::MaxModelLen { of: None, tokens } => write!(f, "max_model_len={tokens}"),
            Self::MaxModelLen {
                of: Some(of),
                tokens,
            } => write!(f, "max_model_len={of}:{tokens}"),
            Self::Fp8 => f.write_str("kv=fp8"),
            Self::Tier { of, tier } => write!(f, "tier={of}:{tier}"),
            Self::Surge {
                tenant,
                factor,
                from,
                to,
            } => {
                write!(f, "surge={tenant}*{factor}@{from}-{to}")
            }
        }
    }
}

// === impl FleetFile ===

impl FleetFile {
    /// This fleet after all of `changes`, in their order.
    ///
    /// # Errors
    /// A change names engines that are not there, or makes no fleet.
    pub fn changed(&self, changes: &[Change]) -> Result<Self, FleetError> {
        let mut file = self.clone();
        for change in changes {
            file.change(change)?;
        }
        file.plan()?;
        Ok(file)
    }

    fn change(&mut self, change: &Change) -> Result<(), FleetError> {
        match change {
            Change::Add { like, count } => {
                let node = self.node(like)?;
                let more = node.count.checked_add(*count);
                node.count = more.ok_or_else(|| FleetError(format!("add={like}: too many")))?;
            }
            Change::MaxModelLen {
                of: Some(name),
                tokens,
            } => {
                self.node(name)?.max_model_len = *tokens;
            }
            Change::MaxModelLen { of: None, tokens } => {
                for node in &mut self.nodes {
                    node.max_model_len = *tokens;
                }
            }
            Change::Fp8 => {
                for node in &mut self.nodes {
                    node.kv_tokens = node.kv_tokens.saturating_mul(2);
                }
            }
            Change::Tier { of, tier } => {
                let tier = TierName::parse(tier).expect("a change was read with a tier's name");
                self.node(of)?.tier = tier;
            }
            Change::Surge {
                tenant,
                factor,
                from,
                to,
            } => {
                self.surge = Some(SurgeFile {
                    tenant: tenant.clone(),
                    factor: *factor,
                    from: Duration::from_secs(*from),
                    to: Duration::from_secs(*to),
                });
            }
        }
        Ok(())
    }

    /// Engines by name, by tier, or the first.
    fn node(&mut self, name: &str) -> Result<&mut NodeFile, FleetError> {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let names = names.join(", ");
        let tier = TierName::parse(name);
        let named = self.nodes.iter().position(|node| node.name == name);
        let place = named
            .or_else(|| self.nodes.iter().position(|node| Some(node.tier) == tier))
            .or((name == "node").then_some(0));
        place
            .and_then(|place| self.nodes.get_mut(place))
            .ok_or_else(|| FleetError(format!("no engines {name:?} in the fleet, it has {names}")))
    }
}

// === impl TierName ===

impl TierName {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "standard" => Some(Self::Standard),
            "large" => Some(Self::Large),
            "offload" => Some(Self::Offload),
            _ => None,
        }
    }
}
