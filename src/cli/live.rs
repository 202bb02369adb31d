//! The live half of `tidegate check`: asks every backend what it is, those behind
//! names too, and the engines' `/tokenize` what they count.
//!
//! Decides what an operator should know before traffic comes. Never changes
//! anything on a backend; every question is bounded in time and size.

mod counts;
mod findings;
mod names;
mod seen;

use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::Failure;
use super::plain::one_line;
use super::table::Table;
use crate::config::{Backend, Config, Model};
use crate::tokenize::ModelCounter;
use crate::upstream::client::{Client, Timing};

use counts::Compared;
use findings::{Finding, Weight};
pub(super) use seen::Seen;

/// What the backends said and what follows from it.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    backends: Vec<Seen>,
    counts: Vec<Compared>,
    findings: Vec<Finding>,
}

/// One backend to be asked, with what is asked for.
#[derive(Clone)]
struct Asked {
    config: Arc<Config>,
    counters: Arc<[ModelCounter]>,
    client: Client,
    /// Places in `config.models` and in the model's `backends`.
    place: (usize, usize),
}

/// Asks all backends of `config` at one time. `counters` are those of its
/// models, in order.
///
/// # Errors
///
/// The process cannot start a runtime. Backends that do not answer are findings.
pub(super) fn ask(config: Config, counters: Vec<ModelCounter>) -> Result<Live, Failure> {
    let (runtime, first, missing) = prepared(config, counters)?;
    let mut live = runtime.block_on(ask_all(first))?;
    live.findings.splice(0..0, missing);
    Ok(live)
}

/// A runtime, the first to be asked, and the names behind which there is nobody.
fn prepared(
    config: Config,
    counters: Vec<ModelCounter>,
) -> Result<(Runtime, Asked, Vec<Finding>), Failure> {
    let failed = |error| Failure::Run(format!("cannot start a runtime: {error}"));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let timing = Timing {
        connect: config.upstream.connect_timeout,
        first_byte: None,
        pool_idle: config.upstream.pool_idle_timeout,
        max_age: config.upstream.max_connection_age,
    };
    let (config, missing) = runtime.block_on(names::look_up(&config));
    let first = Asked {
        config: Arc::new(config),
        counters: counters.into(),
        client: Client::tcp(timing),
        place: (0, 0),
    };
    Ok((runtime, first, missing))
}

/// Asks all backends of `config` what they are, and counts nothing.
///
/// # Errors
///
/// The process cannot start a runtime.
pub(super) fn engines(config: Config) -> Result<Vec<Seen>, Failure> {
    let (runtime, first, _) = prepared(config, Vec::new())?;
    runtime.block_on(async move {
        let mut looking = JoinSet::new();
        for asked in first.each() {
            looking.spawn(async move { (asked.place, seen::look(&asked).await.0) });
        }
        let mut seen = looking.join_all().await;
        seen.sort_by_key(|(place, _)| *place);
        Ok(seen.into_iter().map(|(_, seen)| seen).collect())
    })
}

async fn ask_all(first: Asked) -> Result<Live, Failure> {
    let mut asking = JoinSet::new();
    for asked in first.each() {
        asking.spawn(async move { (asked.place, seen::see(&asked).await) });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(place, _)| *place);
    let answers = answers.into_iter().map(|(_, answer)| answer);
    let (backends, counts): (Vec<_>, Vec<_>) = answers.unzip();
    let counts: Vec<_> = counts.into_iter().flatten().collect();
    let findings = findings::find(&first.config, &backends, &counts);
    Ok(Live {
        backends,
        counts,
        findings,
    })
}

// === impl Asked ===

impl Asked {
    /// All backends of all models, in order.
    fn each(&self) -> Vec<Self> {
        let models = self.config.models.iter().enumerate();
        let places =
            models.flat_map(|(index, model)| (0..model.backends.len()).map(move |b| (index, b)));
        let asked = |place| Self {
            place,
            ..self.clone()
        };
        places.map(asked).collect()
    }

    fn model(&self) -> &Model {
        &self.config.models[self.place.0]
    }

    fn backend(&self) -> &Backend {
        &self.model().backends[self.place.1]
    }

    fn counter(&self) -> &ModelCounter {
        &self.counters[self.place.0]
    }
}

// === impl Live ===

impl Live {
    /// Prints tables of backends and counts, then the findings, one a line.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<(), Failure> {
        let mut backends = Table::new(Seen::COLUMNS);
        self.backends
            .iter()
            .flat_map(Seen::rows)
            .for_each(|row| backends.row(row));
        let mut counts = Table::new(Compared::COLUMNS);
        self.counts
            .iter()
            .map(Compared::row)
            .for_each(|row| counts.row(row));
        write!(out, "{backends}\n{counts}")?;
        for finding in &self.findings {
            let text = one_line(&finding.text);
            writeln!(out, "{}: {text}", finding.weight.name())?;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// A backend cannot be used as configured, or a count is wrong.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let failures = self
            .findings
            .iter()
            .filter(|finding| finding.weight == Weight::Failure);
        match failures.count() {
            0 => Ok(()),
            1 => Err(Failure::Run("1 failure was found".to_owned())),
            many => Err(Failure::Run(format!("{many} failures were found"))),
        }
    }
}

#[cfg(test)]
mod tests;
