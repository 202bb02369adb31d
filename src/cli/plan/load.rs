//! The load that is wanted, from flags or traces, and what it needs.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::{Failure, Flags};
use crate::replay::traces;
use crate::sizing::load::{Instance, Lengths, Load, Sample, Speed, Wanted};
use crate::sizing::plan::{Flag, Plan, Question};

/// The load that is wanted, in one of two ways.
#[derive(Debug, Args)]
pub(super) struct LoadFlags {
    /// Requests per second; with a trace, in place of its own.
    #[arg(long, value_name = "PER_SECOND", value_parser = read_positive)]
    rate: Option<f64>,
    /// Median prompt, in tokens.
    #[arg(long, value_name = "TOKENS", requires = "rate", requires = "output_p50",
        value_parser = read_length)]
    prompt_p50: Option<u64>,
    /// 99th percentile of prompts [default: four times the median].
    #[arg(long, value_name = "TOKENS", requires = "prompt_p50", value_parser = read_length)]
    prompt_p99: Option<u64>,
    /// Median answer, in tokens.
    #[arg(long, value_name = "TOKENS", requires = "prompt_p50", value_parser = read_length)]
    output_p50: Option<u64>,
    /// 99th percentile of answers [default: four times the median].
    #[arg(long, value_name = "TOKENS", requires = "output_p50", value_parser = read_length)]
    output_p99: Option<u64>,
    /// A trace or an access log, as `tidegate replay` reads them.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_p50")]
    trace: Option<PathBuf>,
    /// Answer tokens per second of one sequence while others run.
    #[arg(long, value_name = "TOKENS", default_value_t = 30.0, value_parser = read_positive)]
    decode_speed: f64,
    /// Prompt tokens per second of one sequence while others run.
    #[arg(long, value_name = "TOKENS", default_value_t = 5_000.0, value_parser = read_positive)]
    prefill_speed: f64,
}

/// What a load needs of this plan.
pub(super) struct Answer {
    pub(super) rate: f64,
    /// As asked, or as the trace has them.
    pub(super) prompt: Lengths,
    pub(super) output: Lengths,
    pub(super) wanted: Wanted,
    /// KV tokens held on average and at the 99th percentile of moments, as the
    /// engine's own figure counts them.
    pub(super) mean_tokens: u64,
    pub(super) peak_tokens: u64,
}

// === impl LoadFlags ===

impl LoadFlags {
    pub(super) fn read(&self) -> Result<Option<Load>, Failure> {
        if let Some(trace) = &self.trace {
            return traced(trace, self.rate).map(Some);
        }
        let (Some(rate), Some(prompt), Some(output)) =
            (self.rate, self.prompt_p50, self.output_p50)
        else {
            return match self.rate {
                Some(_) => Err(Failure::Configuration(
                    "--rate needs --prompt-p50 and --output-p50, or --trace".to_owned(),
                )),
                None => Ok(None),
            };
        };
        let prompt = asked(prompt, self.prompt_p99);
        let output = asked(output, self.output_p99);
        for (name, lengths) in [("prompt", prompt), ("output", output)] {
            let Lengths { p50, p99 } = lengths;
            if p99 < p50 {
                let problem = format!("--{name}-p99 {p99} is below --{name}-p50 {p50}");
                return Err(Failure::Configuration(problem));
            }
        }
        Ok(Some(Load::lognormal(rate, prompt, output)))
    }
}

/// Lengths that flags ask for.
fn asked(p50: u64, p99: Option<u64>) -> Lengths {
    Lengths {
        p50,
        p99: p99.unwrap_or(p50.saturating_mul(4)),
    }
}

/// The requests of a file that were served, at its rate or another.
fn traced(file: &PathBuf, rate: Option<f64>) -> Result<Load, Failure> {
    let name = file.display().to_string();
    let bytes = fs::read(file);
    let bytes = bytes.map_err(|error| Failure::Configuration(format!("{name}: {error}")))?;
    let trace = traces::read(bytes.as_slice(), &name, None);
    let trace = trace.map_err(|error| Failure::Configuration(error.to_string()))?;
    let samples: Vec<Sample> = trace
        .rows
        .iter()
        .filter_map(|row| {
            Some(Sample {
                prompt: row.prompt.get(),
                output: row.output?.get(),
                weight: 1.0,
            })
        })
        .collect();
    let seconds = trace.rows.last().map_or(0.0, |row| row.at.as_secs_f64());
    let count: f64 = samples.iter().map(|sample| sample.weight).sum();
    let own = (seconds > 0.0).then_some(count / seconds);
    let rate = rate.or(own).filter(|_| !samples.is_empty());
    let rate = rate.ok_or_else(|| {
        Failure::Configuration(format!(
            "{name}: too short for a rate of its own; give --rate"
        ))
    })?;
    Ok(Load { rate, samples })
}

// === impl Answer ===

impl Answer {
    pub(super) fn of(load: &Load, question: &Question<'_>, plan: &Plan, flags: &LoadFlags) -> Self {
        let instance = Instance {
            layout: &plan.layout,
            blocks: plan.blocks,
            engines: question.engine.parallel.data,
            sequences: question.engine.sequences,
        };
        let speed = Speed {
            prefill: flags.prefill_speed,
            decode: flags.decode_speed,
        };
        let wanted = load.wants(question.model, instance, speed);
        let tokens = |blocks: f64| {
            let blocks = format!("{:.0}", blocks.ceil().min(1e15))
                .parse()
                .unwrap_or(0);
            plan.layout.tokens(blocks, plan.context.max(1))
        };
        let lengths = |of: fn(&Sample) -> u64| Lengths {
            p50: load.quantile(0.5, of),
            p99: load.quantile(0.99, of),
        };
        // The load that is drawn has those that were asked but for its steps.
        let told = |p50: Option<u64>, p99| p50.map(|p50| asked(p50, p99));
        let prompt = told(flags.prompt_p50, flags.prompt_p99);
        let output = told(flags.output_p50, flags.output_p99);
        Self {
            rate: load.rate,
            prompt: prompt.unwrap_or_else(|| lengths(|sample| sample.prompt)),
            output: output.unwrap_or_else(|| lengths(|sample| sample.output)),
            mean_tokens: tokens(wanted.mean_blocks),
            peak_tokens: tokens(wanted.peak_blocks),
            wanted,
        }
    }

    /// A context that the load needs, where none was asked.
    pub(super) fn add_flags(&self, flags: &Flags, plan: &mut Plan) {
        let context = self.wanted.context;
        if flags.engine.max_model_len.is_some() || context > plan.longest || context == 0 {
            return;
        }
        let made = plan
            .flags
            .iter_mut()
            .find(|flag| flag.flag.starts_with("--max-model-len="));
        if let Some(flag) = made {
            *flag = Flag::new(
                format!("--max-model-len={context}"),
                "the load's 99th percentile of prompt and answer, and 15 %",
            );
        }
    }
}

fn read_positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| (1e-6..=1e9).contains(number));
    number.ok_or_else(|| "a positive number is wanted".to_owned())
}

fn read_length(text: &str) -> Result<u64, String> {
    let length = text.parse::<u64>().ok();
    let length = length.filter(|length| (1..=1 << 30).contains(length));
    length.ok_or_else(|| "tokens, at least 1, are wanted".to_owned())
}
