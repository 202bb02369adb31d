//! From traces to calls: which part, at what load, with which seed.
//!
//! Decides when each call comes and how long its answer is. Never thins: a load of 2 is
//! the same calls in half the time. Seeds draw the place of each request within its bin,
//! where a file's clock is coarse, and deal the answers anew within each class (tenant,
//! kind, prompt and `max_tokens` to a power of two), so that totals stay; the first seed
//! leaves the answers where they were. What a seed draws does not depend on the load.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Format, Row, Trace};
use crate::core::demand::{Kind, TenantId};
use crate::core::time::Time;
use crate::core::units::Tokens;
use crate::replay::Call;
use crate::sim::random::{Random, mix};

/// Rows that share an instant, on average, from which on a file's clock is called coarse.
const CROWDED: usize = 2;

/// The part of a trace that is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Seconds of the trace, before any scaling.
    pub window: Range<Duration>,
    /// Prompts of at least this many tokens, by place of the file.
    pub least_prompt: Vec<Tokens>,
    /// A tenant that suddenly asks for more.
    pub surge: Option<Surge>,
}

/// A tenant that asks for `factor` times as much for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Surge {
    /// Its name in the trace.
    pub tenant: String,
    /// How many times as many requests; at least 1.
    pub factor: u32,
    /// When, in seconds of the trace.
    pub window: Range<Duration>,
}

/// What is played, before load and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    rows: Vec<Planned>,
    /// Names of the tenants, by [`TenantId`].
    pub tenants: Vec<String>,
    /// Rows outside the window.
    pub outside: u64,
    /// Rows with prompts that are too short.
    pub too_short: u64,
    /// Rows whose answer is drawn, since it was refused then.
    pub unanswered: u64,
}

/// A row and what a seed may change of it.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    row: Row,
    tenant: TenantId,
    kind: Kind,
    /// How far a seed may move it; zero where the clock is fine.
    bin: Duration,
}

/// Requests whose answers are alike.
type Class = (TenantId, Kind, u32, Option<u32>);

// === impl Part ===

impl Part {
    /// Everything.
    pub fn whole() -> Self {
        Self {
            window: Duration::ZERO..Duration::MAX,
            least_prompt: Vec::new(),
            surge: None,
        }
    }

    fn least_prompt(&self, file: usize) -> Tokens {
        self.least_prompt.get(file).copied().unwrap_or(Tokens::ZERO)
    }
}

// === impl Schedule ===

impl Schedule {
    /// Merges the part of each trace, in time. Tenants of equal name are one tenant; rows
    /// without a tenant are the file's own.
    ///
    /// # Errors
    /// Nothing is left, no row has an answer to draw from, or a surge names a tenant that
    /// is not there.
    pub fn new(traces: &[Trace], part: &Part) -> Result<Self, String> {
        let mut schedule = Self {
            rows: Vec::new(),
            tenants: Vec::new(),
            outside: 0,
            too_short: 0,
            unanswered: 0,
        };
        let mut kinds = Vec::new();
        for (file, trace) in traces.iter().enumerate() {
            schedule.merge(trace, (file, part), &mut kinds);
        }
        schedule.rows.sort_by_key(|planned| planned.row.at);
        if schedule.rows.is_empty() {
            let (outside, short) = (schedule.outside, schedule.too_short);
            return Err(format!(
                "nothing to replay: {outside} rows are outside the window, {short} have too short a prompt"
            ));
        }
        if schedule
            .rows
            .iter()
            .all(|planned| planned.row.output.is_none())
        {
            return Err("nothing to replay: no request of this part was answered".to_owned());
        }
        if let Some(surge) = &part.surge {
            schedule.surge(surge, part.window.start)?;
        }
        Ok(schedule)
    }

    /// Requests that are played.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is played; never, by [`Schedule::new`].
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// From the first request to the last, before any scaling.
    pub fn span(&self) -> Duration {
        let ends = self.rows.first().zip(self.rows.last());
        ends.map_or(Duration::ZERO, |(first, last)| last.row.at - first.row.at)
    }

    /// The calls of `seed`, time compressed by `load`. `load` must be positive.
    pub fn calls(&self, load: f64, seed: u64) -> Vec<Call> {
        let random = Random::new(seed);
        let answers = self.answers(&random, seed);
        let mut bins = random.fork(1);
        let mut calls: Vec<Call> = self
            .rows
            .iter()
            .zip(answers)
            .map(|(planned, (output, asked))| Call {
                at: Time::from_start(
                    (planned.row.at + planned.bin.mul_f64(bins.unit())).div_f64(load),
                ),
                tenant: planned.tenant,
                kind: planned.kind,
                prompt: planned.row.prompt,
                output,
                asked,
                chunks: Arc::clone(&planned.row.chunks),
            })
            .collect();
        calls.sort_by_key(|call| call.at);
        calls
    }

    fn merge(&mut self, trace: &Trace, (file, part): (usize, &Part), kinds: &mut Vec<(usize, u8)>) {
        let tenants: Vec<TenantId> = trace
            .tenants
            .iter()
            .map(|name| self.tenant(name, trace))
            .collect();
        let bin = bin(&trace.rows);
        // Ids of two files mean different prompts; those of two logs of one gateway do not.
        let space = if trace.format == Format::AccessLog {
            None
        } else {
            Some(file)
        };
        for row in &trace.rows {
            if !part.window.contains(&row.at) {
                self.outside += 1;
                continue;
            }
            if row.prompt < part.least_prompt(file) {
                self.too_short += 1;
                continue;
            }
            self.unanswered += u64::from(row.output.is_none());
            let tenant = usize::try_from(row.tenant).expect("an index fits");
            self.rows.push(Planned {
                tenant: tenants[tenant],
                kind: kind(kinds, (file, row.kind)),
                bin,
                row: Row {
                    at: row.at - part.window.start,
                    chunks: spaced(&row.chunks, space),
                    ..row.clone()
                },
            });
        }
    }

    fn tenant(&mut self, name: &str, trace: &Trace) -> TenantId {
        let name = if name.is_empty() {
            stem(&trace.name)
        } else {
            name
        };
        let place = self.tenants.iter().position(|known| known == name);
        let place = place.unwrap_or_else(|| {
            self.tenants.push(name.to_owned());
            self.tenants.len() - 1
        });
        TenantId(u32::try_from(place).expect("tenants are fewer than rows that fit memory"))
    }

    /// Copies of the tenant's requests, each within ten seconds of the original. Their
    /// prompts are nobody else's.
    fn surge(&mut self, surge: &Surge, start: Duration) -> Result<(), String> {
        let place = self.tenants.iter().position(|name| *name == surge.tenant);
        let place =
            place.ok_or_else(|| format!("surge: no tenant {:?} in the trace", surge.tenant))?;
        let tenant = TenantId(u32::try_from(place).expect("an index of tenants fits"));
        let window =
            surge.window.start.saturating_sub(start)..surge.window.end.saturating_sub(start);
        let surging =
            |planned: &&Planned| planned.tenant == tenant && window.contains(&planned.row.at);
        let mut random = Random::new(u64::from(surge.factor));
        let copies: Vec<Planned> = self
            .rows
            .iter()
            .filter(surging)
            .flat_map(|planned| {
                std::iter::repeat_n(
                    planned,
                    usize::try_from(surge.factor - 1).expect("a factor fits"),
                )
            })
            .map(|planned| {
                let mut copy = planned.clone();
                copy.row.at += Duration::from_secs(10).mul_f64(random.unit());
                copy.row.chunks = Arc::from([]);
                copy
            })
            .collect();
        self.rows.extend(copies);
        self.rows.sort_by_key(|planned| planned.row.at);
        Ok(())
    }

    /// Output and bound of each row.
    fn answers(&self, random: &Random, seed: u64) -> Vec<(Tokens, Option<Tokens>)> {
        let mut classes: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
        for (place, planned) in self.rows.iter().enumerate() {
            classes.entry(planned.class()).or_default().push(place);
        }
        let known: Vec<Tokens> = self
            .rows
            .iter()
            .filter_map(|planned| planned.row.output)
            .collect();
        let mut draws = random.fork(2);
        let mut deals = random.fork(3);
        let mut answers = vec![(Tokens::new(1), None); self.rows.len()];
        for places in classes.values() {
            let in_class = places
                .iter()
                .filter_map(|place| self.rows[*place].row.output);
            let in_class: Vec<Tokens> = in_class.collect();
            let pool = if in_class.is_empty() {
                &known
            } else {
                &in_class
            };
            let mut dealt: Vec<(Tokens, Option<Tokens>)> = places
                .iter()
                .map(|place| &self.rows[*place].row)
                .map(|row| {
                    (
                        row.output.unwrap_or_else(|| one_of(pool, &mut draws)),
                        row.asked,
                    )
                })
                .map(|(output, asked)| (output.min(asked.unwrap_or(output)), asked))
                .collect();
            if seed > 1 {
                shuffle(&mut dealt, &mut deals);
            }
            for (place, answer) in places.iter().zip(dealt) {
                answers[*place] = answer;
            }
        }
        answers
    }
}

// === impl Planned ===

impl Planned {
    fn class(&self) -> Class {
        let log2 = |tokens: Tokens| tokens.get().checked_ilog2().unwrap_or(0);
        (
            self.tenant,
            self.kind,
            log2(self.row.prompt),
            self.row.asked.map(log2),
        )
    }
}

/// The usual gap of a coarse clock; zero for a fine one.
fn bin(rows: &[Row]) -> Duration {
    let mut gaps: Vec<Duration> = rows
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .filter(|gap| !gap.is_zero())
        .collect();
    if rows.len() < CROWDED * (gaps.len() + 1) {
        return Duration::ZERO;
    }
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(Duration::ZERO)
}

/// Chunks of one file apart from those of another.
fn spaced(chunks: &Arc<[u64]>, space: Option<usize>) -> Arc<[u64]> {
    match space {
        Some(space) => {
            let space = u64::try_from(space).unwrap_or(u64::MAX);
            chunks.iter().map(|chunk| mix(space, *chunk)).collect()
        }
        None => Arc::clone(chunks),
    }
}

/// Kinds of all files, numbered as they come; past 255 they share a number.
fn kind(kinds: &mut Vec<(usize, u8)>, wanted: (usize, u8)) -> Kind {
    let place = kinds.iter().position(|known| *known == wanted);
    let place = place.unwrap_or_else(|| {
        kinds.push(wanted);
        kinds.len() - 1
    });
    Kind(u8::try_from(place).unwrap_or(u8::MAX))
}

/// A file's name without folder and ending.
fn stem(name: &str) -> &str {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    name.split('.').next().unwrap_or(name)
}

/// One of `pool`; it must not be empty.
fn one_of(pool: &[Tokens], random: &mut Random) -> Tokens {
    pool[below(pool.len(), random)]
}

/// Fisher and Yates.
fn shuffle<T>(dealt: &mut [T], random: &mut Random) {
    for last in (1..dealt.len()).rev() {
        dealt.swap(last, below(last + 1, random));
    }
}

fn below(many: usize, random: &mut Random) -> usize {
    let most = u64::try_from(many).expect("a length fits") - 1;
    usize::try_from(random.between(0, most)).expect("it is below a length")
}

#[cfg(test)]
mod tests;
