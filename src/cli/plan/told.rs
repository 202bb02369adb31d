//! The plan as people and machines read it.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::super::table::Table;
use super::super::words::several;
use super::ask::Asked;
use super::load::Answer;
use crate::sizing::bytes::gib;
use crate::sizing::layout::Need;
use crate::sizing::plan::{Plan, Question};

/// A plan and what it was made of.
pub(super) struct Told<'a> {
    pub(super) asked: &'a Asked,
    pub(super) question: &'a Question<'a>,
    pub(super) plan: &'a Plan,
    pub(super) load: Option<&'a Answer>,
}

// === impl Told ===

impl Told<'_> {
    pub(super) fn json(&self) -> Value {
        let plan = self.plan;
        let flags: Vec<&str> = plan.flags.iter().map(|flag| flag.flag.as_str()).collect();
        json!({
            "kv_bytes_per_token": plan.layout.token_bytes,
            "weights_bytes": plan.weights,
            "kv_tokens": plan.tokens,
            "kv_blocks": plan.blocks,
            "block_size": plan.layout.block_size,
            "max_concurrency": rounded(plan.concurrency),
            "max_model_len": plan.longest,
            "flags": flags,
            "details": self.details(),
        })
    }

    fn details(&self) -> Value {
        let plan = self.plan;
        let parallel = self.question.engine.parallel;
        let why: serde_json::Map<String, Value> = plan
            .flags
            .iter()
            .map(|flag| (flag.flag.clone(), Value::from(flag.why.clone())))
            .collect();
        json!({
            "model_type": self.asked.model.model_type,
            "vllm": self.question.engine.version.to_string(),
            "gpus": parallel.gpus(),
            "engines": parallel.data,
            "context": plan.context,
            "kv_bytes_per_token_growing": plan.layout.growing_bytes,
            "state_bytes_per_sequence": plan.layout.state_bytes,
            "block_bytes": plan.layout.block_bytes,
            "kv_groups": plan.layout.groups.len(),
            "usable_blocks": plan.blocks.saturating_sub(1),
            "weights_total_bytes": self.asked.weights.total(),
            "weights_source": self.asked.source,
            "requested_bytes": plan.requested,
            "available_kv_bytes": i64::try_from(plan.available).unwrap_or(i64::MAX),
            "overhead_bytes": plan.overhead.total(),
            "overhead_is_estimated": self.question.overhead.is_none(),
            "why": why,
            "warnings": plan.warnings,
            "problem": plan.short().map(|short| short.to_string()),
            "load": self.load.map(load),
        })
    }

    pub(super) fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Table::new(["", "", ""]);
        for row in self.rows() {
            table.row(row);
        }
        let text = table.to_string();
        write!(out, "{}", text.trim_start_matches('\n'))?;
        if let Some(load) = self.load {
            write!(out, "\nload{}", load_table(load, self.question))?;
        }
        if self.plan.flags.is_empty() {
            return Ok(());
        }
        let mut flags = Table::new(["vllm serve", "why"]);
        for flag in &self.plan.flags {
            flags.row([flag.flag.clone(), flag.why.clone()]);
        }
        write!(out, "\n{flags}")
    }

    fn rows(&self) -> Vec<[String; 3]> {
        let plan = self.plan;
        let engine = &self.question.engine;
        let mut rows = vec![
            row("model", &self.asked.model.model_type, &self.kept()),
            row(
                "engine",
                &format!("vLLM {}", engine.version),
                &self.spread(),
            ),
            row(
                "KV of one token",
                &format!("{} B", plan.layout.token_bytes),
                &self.growth(),
            ),
            row("weights", &gib(plan.weights), &self.asked.source),
        ];
        let note = match self.question.overhead {
            Some(_) => "as given by --overhead".to_owned(),
            None => format!(
                "an estimate: {} activations, {} context, {} graphs; an engine's log has the \
                 figures (--overhead, --available-kv)",
                gib(plan.overhead.activation),
                gib(plan.overhead.other),
                gib(plan.overhead.graphs)
            ),
        };
        rows.push(row("overhead", &gib(plan.overhead.total()), &note));
        if let (Some(memory), Some(requested)) = (self.question.memory, plan.requested) {
            let note = format!("of {} for one instance", gib(memory));
            rows.push(row("asked of the card", &gib(requested), &note));
        }
        let pool = u64::try_from(plan.available).unwrap_or(0);
        rows.push(row("pool", &gib(pool), &self.blocks()));
        let tokens = format!("as it will be logged, at {} per sequence", plan.context);
        rows.push(row("KV tokens", &plan.tokens.to_string(), &tokens));
        let concurrency = format!("{:.2}", plan.concurrency);
        rows.push(row(
            "concurrency",
            &concurrency,
            &format!("sequences of {} tokens", plan.context),
        ));
        rows.push(row(
            "longest context",
            &plan.longest.to_string(),
            &self.longest(),
        ));
        rows
    }

    fn kept(&self) -> String {
        let groups = self.plan.layout.groups.iter();
        let texts = groups.map(|group| {
            let layers = group.layers;
            match group.need {
                Need::Full { block } => format!("{layers} full, blocks of {block}"),
                Need::Window { block, .. } => format!("{layers} window, blocks of {block}"),
                Need::Chunk { block, .. } => format!("{layers} chunk, blocks of {block}"),
                Need::State { blocks } => format!("{layers} state, {blocks} blocks"),
            }
        });
        let texts: Vec<String> = texts.collect();
        match texts.as_slice() {
            [one] => format!("layers: {one}"),
            many => format!("{} groups of layers: {}", many.len(), many.join("; ")),
        }
    }

    fn spread(&self) -> String {
        let parallel = self.question.engine.parallel;
        match parallel.gpus() {
            1 => "one GPU".to_owned(),
            gpus => format!(
                "{gpus} GPUs: tensor {}, pipeline {}, data {}; figures are of one GPU and one engine",
                parallel.tensor, parallel.pipeline, parallel.data
            ),
        }
    }

    fn growth(&self) -> String {
        let layout = &self.plan.layout;
        let mut notes = Vec::new();
        if layout.growing_bytes != layout.token_bytes {
            notes.push(format!("{} B beyond the windows", layout.growing_bytes));
        }
        if layout.state_bytes > 0 {
            notes.push(format!(
                "and {} B of state per sequence",
                layout.state_bytes
            ));
        }
        notes.join(", ")
    }

    fn blocks(&self) -> String {
        let plan = self.plan;
        format!(
            "{} blocks of {} B, one of them the null block",
            plan.blocks, plan.layout.block_bytes
        )
    }

    fn longest(&self) -> String {
        match self.asked.model.context {
            Some(made) if made == self.plan.longest => "all the model was made for".to_owned(),
            Some(made) => format!("of {made} the model was made for"),
            None => String::new(),
        }
    }
}

fn row(name: &str, figure: &str, note: &str) -> [String; 3] {
    [name.to_owned(), figure.to_owned(), note.to_owned()]
}

/// To four decimals.
fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

fn load(answer: &Answer) -> Value {
    let wanted = &answer.wanted;
    json!({
        "requests_per_second": rounded(answer.rate),
        "prompt_p50_tokens": answer.prompt.p50,
        "prompt_p99_tokens": answer.prompt.p99,
        "output_p50_tokens": answer.output.p50,
        "output_p99_tokens": answer.output.p99,
        "mean_sequences": rounded(wanted.mean_sequences),
        "peak_sequences": rounded(wanted.peak_sequences),
        "mean_kv_tokens": answer.mean_tokens,
        "kv_tokens_needed": answer.peak_tokens,
        "max_model_len_needed": wanted.context,
        "instances_needed": wanted.instances,
    })
}

fn load_table(answer: &Answer, question: &Question<'_>) -> String {
    let wanted = &answer.wanted;
    let mut table = Table::new(["", "", ""]);
    let lengths = format!(
        "prompts of {} to {}, answers of {} to {} tokens (P50 to P99)",
        answer.prompt.p50, answer.prompt.p99, answer.output.p50, answer.output.p99
    );
    table.row(row("requests", &format!("{:.3}/s", answer.rate), &lengths));
    let peak = format!(
        "{:.1} at the 99th percentile of moments",
        wanted.peak_sequences
    );
    table.row(row(
        "running",
        &format!("{:.1}", wanted.mean_sequences),
        &peak,
    ));
    let mean = format!(
        "{} on average; prefixes that are shared would spare some",
        answer.mean_tokens
    );
    table.row(row(
        "KV tokens needed",
        &answer.peak_tokens.to_string(),
        &mean,
    ));
    let note = "99th percentile of prompt and answer, and 15 %";
    table.row(row("context needed", &wanted.context.to_string(), note));
    let instances = match wanted.instances {
        Some(instances) => instances.to_string(),
        None => "none".to_owned(),
    };
    let note = match wanted.instances {
        Some(instances) => format!(
            "{} in all",
            several(instances * question.engine.parallel.gpus(), "GPU")
        ),
        None => "no number of instances holds it: one request is larger than a pool".to_owned(),
    };
    table.row(row("instances needed", &instances, &note));
    table.to_string()
}
