//! From what a run told to what it means.
//!
//! Decides the kind of failure. Where memory ran out, the place in the engine
//! decides: while loading the weights are too large, while sizing or running
//! something else is. Never reads a line.

use super::Kind;
use super::facts::Field;
use super::held::{self, Others};
use super::run::{Failure, Quote, Run};
use super::wordings::{Phase, Place, Says};

/// What a run means.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub(super) kind: Kind,
    pub(super) evidence: Option<Quote>,
    /// Where the wording comes from, where it is known.
    pub(super) source: Option<&'static str>,
    /// What the wording means, for people.
    pub(super) means: String,
    /// What the wording itself advises.
    pub(super) advice: Option<(&'static str, &'static str)>,
    pub(super) others: Option<Others>,
    pub(super) place: Option<Place>,
}

/// Judges one run.
pub(super) fn judge(run: &Run) -> Verdict {
    match &run.failure {
        Some(failure) => failed(failure, run),
        None => quiet(run),
    }
}

fn failed(failure: &Failure, run: &Run) -> Verdict {
    let mut verdict = Verdict {
        evidence: Some(failure.quote.clone()),
        source: Some(failure.wording.from),
        means: failure.wording.means.to_owned(),
        advice: failure.wording.advice,
        place: failure.place,
        ..plain(Kind::EngineDied)
    };
    match failure.wording.says {
        Says::Failure(kind) => verdict.kind = kind,
        Says::OutOfMemory => ran_out(failure, run, &mut verdict),
        _ => {}
    }
    verdict
}

fn ran_out(failure: &Failure, run: &Run, verdict: &mut Verdict) {
    let on_host = failure.wording.needle.starts_with("DefaultCPUAllocator");
    let place = failure.place.unwrap_or(match failure.phase {
        Phase::Starting | Phase::Loading => Place::Loading,
        Phase::Loaded => Place::Profiling,
        Phase::Cached => Place::Capturing,
        Phase::Serving | Phase::Stopping => Place::Stepping,
    });
    verdict.place = Some(place);
    verdict.others = held::others(&failure.quote.text, &run.facts);
    if verdict.others.as_ref().is_some_and(|others| others.much) {
        verdict.kind = Kind::MemoryInUse;
        verdict.means = "somebody else held the memory that was missing".to_owned();
        return;
    }
    let (kind, when) = match place {
        Place::Loading => (
            Kind::WeightsDoNotFit,
            "while weights were put on the device",
        ),
        Place::Profiling => (
            Kind::ActivationPeak,
            "in the run that measures the activations",
        ),
        Place::Caching => (Kind::NoCacheBlocks, "while the cache was allocated"),
        Place::Sampling => (Kind::ActivationPeak, "while the sampler was warmed up"),
        Place::Capturing => (
            Kind::ActivationPeak,
            "while graphs were captured or kernels warmed up",
        ),
        Place::Running => (Kind::ActivationPeak, "while the model ran"),
        Place::Stepping => (Kind::ActivationPeak, "in a step of the running engine"),
    };
    let whose = if on_host {
        "the host's memory"
    } else {
        "the device's memory"
    };
    let guessed = failure.place.is_none() && run.phase == Phase::Starting;
    let guess = if guessed {
        "; the log does not tell where, loading is the usual place"
    } else {
        ""
    };
    verdict.kind = kind;
    verdict.means = format!("{whose} ran out {when}{guess}");
}

/// A run no wording of a failure was found in.
fn quiet(run: &Run) -> Verdict {
    let first = run.roots.first();
    if let Some(death) = &run.death {
        let fatal = run.roots.fatal();
        return match (run.served, fatal.or(first)) {
            (true, _) => died(fatal.unwrap_or(death), fatal.is_some()),
            (false, Some(root)) => unknown(root),
            (false, None) => died(death, false),
        };
    }
    let healthy = run.healthy.as_ref();
    let went_on = |root: &&Quote| healthy.is_none_or(|healthy| healthy.line < root.line);
    if run.served && !run.halted {
        return healthy.map_or_else(|| plain(Kind::Healthy), well);
    }
    if let Some(root) = first.filter(went_on) {
        return unknown(root);
    }
    match (healthy, &run.trace) {
        (Some(_), Some(trace)) => cut(trace),
        (Some(healthy), None) if !run.halted => well(healthy),
        _ => ended(run),
    }
}

fn plain(kind: Kind) -> Verdict {
    Verdict {
        kind,
        evidence: None,
        source: None,
        means: String::new(),
        advice: None,
        others: None,
        place: None,
    }
}

fn well(quote: &Quote) -> Verdict {
    Verdict {
        evidence: Some(quote.clone()),
        ..plain(Kind::Healthy)
    }
}

fn died(quote: &Quote, known: bool) -> Verdict {
    let means = if known {
        "an exception took the engine down"
    } else {
        "a process of the engine ended without a word: killed (the kernel's out-of-memory killer writes to dmesg), or crashed in native code"
    };
    Verdict {
        evidence: Some(quote.clone()),
        means: means.to_owned(),
        ..plain(Kind::EngineDied)
    }
}

fn unknown(root: &Quote) -> Verdict {
    Verdict {
        evidence: Some(root.clone()),
        means: "no known wording; this is the first real exception".to_owned(),
        ..plain(Kind::NotRecognised)
    }
}

/// A log that ends within a traceback of the start.
fn cut(trace: &Quote) -> Verdict {
    Verdict {
        evidence: Some(trace.clone()),
        means: "the log ends within this traceback, before its exception".to_owned(),
        ..plain(Kind::NotRecognised)
    }
}

/// A log that says nothing, or stops before it does.
fn ended(run: &Run) -> Verdict {
    let means = match run.phase {
        _ if run.halted => {
            "only the wrapper's line is here; the cause stands above it, in the engine's own output"
        }
        Phase::Loading => "the log ends while the model is loaded, with no failure in it",
        Phase::Loaded => "the log ends while the engine measures its memory, with no failure in it",
        _ => "nothing of an engine's start and no exception is in it",
    };
    Verdict {
        means: means.to_owned(),
        ..plain(Kind::NotRecognised)
    }
}

/// Sizes that follow from those told: what is free after the start, what could
/// hold cache and does not.
pub(super) fn derive(run: &mut Run) {
    let facts = &mut run.facts;
    let gib = |bytes: f64| bytes / 1_073_741_824.0;
    let held = [Field::Weights, Field::KvCache, Field::ActivationPeak];
    let held: Option<f64> = held.iter().map(|field| facts.number(*field)).sum();
    let more = [Field::NonTorch, Field::CudaGraphs];
    let more: f64 = more.iter().filter_map(|field| facts.number(*field)).sum();
    let free = facts.number(Field::FreeAtStart).or_else(|| {
        // V0 tells no free memory; the card's is the most it can be.
        facts
            .number(Field::Requested)
            .and(facts.number(Field::Total))
    });
    if let (Some(free), Some(held)) = (free, held) {
        facts.set_gib(Field::FreeAfterStart, (free - held - more).max(0.0));
    }
    let within = facts.number(Field::KvBytesWithinDevice);
    let waste = match (within, facts.number(Field::KvCache)) {
        (Some(within), Some(kv)) => Some(gib(within) - kv),
        _ => facts.number(Field::FreeAfterStart),
    };
    if let Some(waste) = waste {
        facts.set_gib(Field::Waste, waste.max(0.0));
    }
}
