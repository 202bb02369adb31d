//! The metrics page: the names, labels, order and number formats of vLLM 0.32.
//!
//! Left out are the figures of the Python process and of its HTTP library, except the
//! start time, which is how a restart is noticed.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use super::meters::Histogram;
use super::state::{Mode, State};
use crate::core::backend::PrefixCaching;
use crate::core::units::Blocks;
use crate::sim::engine::{EngineSpec, EngineStats};

/// Content type of the page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One page while it is written.
struct Page<'a> {
    text: String,
    model: &'a str,
    created: String,
}

/// One series of a family: labels beyond the common ones, and the value.
type Series = (&'static [(&'static str, &'static str)], f64);

/// A family's name, help text and kind.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    help: &'static str,
}

const fn family(name: &'static str, help: &'static str) -> Family {
    Family { name, help }
}

/// The page for the state as it is, labelled with `model`.
pub(super) fn render(state: &State, model: &str) -> String {
    let started = seconds(state.started);
    let mut page = Page {
        text: String::with_capacity(32 * 1024),
        model,
        created: number(started),
    };
    let start = "process_start_time_seconds";
    page.head(
        start,
        "When the process started, in seconds since 1970.",
        "gauge",
    );
    page.line(start, "", started);
    for per_gpu in ["flops", "read_bytes", "write_bytes"] {
        let name = format!("vllm:estimated_{per_gpu}_per_gpu");
        page.counter(&name, "Not estimated by this server.", &[(&[], 0.0)]);
    }
    let stats = state.engine.stats();
    page.levels(&stats, state.mode);
    page.prefix_cache(&stats);
    page.tokens(&stats);
    page.outcomes(state);
    for (meter, histogram) in state.meters.histograms() {
        let (name, help) = meter.label();
        page.histogram(name, help, histogram);
    }
    page.cache_config(state.engine.spec());
    page.text
}

// === impl Page ===

impl Page<'_> {
    fn levels(&mut self, stats: &EngineStats, mode: Mode) {
        let waiting = f64::from(stats.waiting);
        let awake = if mode == Mode::Asleep { 0.0 } else { 1.0 };
        let running = family("vllm:num_requests_running", "Requests in the batch.");
        self.gauge(running, &[(&[], f64::from(stats.running))]);
        let all = family("vllm:num_requests_waiting", "Requests waiting.");
        self.gauge(all, &[(&[], waiting)]);
        let reasons = family(
            "vllm:num_requests_waiting_by_reason",
            "Requests waiting, by reason.",
        );
        self.gauge(
            reasons,
            &[
                (&[("reason", "capacity")], waiting),
                (&[("reason", "deferred")], 0.0),
            ],
        );
        let sleep = family(
            "vllm:engine_sleep_state",
            "Which sleep state the engine is in.",
        );
        self.gauge(
            sleep,
            &[
                (&[("sleep_state", "awake")], awake),
                (&[("sleep_state", "weights_offloaded")], 1.0 - awake),
                (&[("sleep_state", "discard_all")], 0.0),
            ],
        );
        let usage = stats.used.as_f64() / stats.usable.as_f64().max(1.0);
        let perc = family(
            "vllm:kv_cache_usage_perc",
            "Share of the KV blocks in use, 0 to 1.",
        );
        self.gauge(perc, &[(&[], usage)]);
    }

    fn prefix_cache(&mut self, stats: &EngineStats) {
        let queries = stats.prefix_queries.as_f64();
        let hits = stats.prefix_hits.as_f64();
        for (kind, values) in [("", (queries, hits)), ("external_", (0.0, 0.0))] {
            self.counter(
                &format!("vllm:{kind}prefix_cache_queries"),
                "Tokens looked up in the prefix cache.",
                &[(&[], values.0)],
            );
            self.counter(
                &format!("vllm:{kind}prefix_cache_hits"),
                "Tokens found in the prefix cache.",
                &[(&[], values.1)],
            );
        }
        self.counter(
            "vllm:mm_cache_queries",
            "Media items looked up.",
            &[(&[], 0.0)],
        );
        self.counter("vllm:mm_cache_hits", "Media items found.", &[(&[], 0.0)]);
    }

    fn tokens(&mut self, stats: &EngineStats) {
        let preemptions = whole(stats.preemptions);
        let prompt = stats.prompt.as_f64();
        let hits = stats.prefix_hits.as_f64();
        self.counter(
            "vllm:num_preemptions",
            "Preemptions.",
            &[(&[], preemptions)],
        );
        self.counter(
            "vllm:prompt_tokens",
            "Prompt tokens processed.",
            &[(&[], prompt)],
        );
        self.counter(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by where their KV came from.",
            &[
                (&[("source", "local_compute")], (prompt - hits).max(0.0)),
                (&[("source", "local_cache_hit")], hits),
                (&[("source", "external_kv_transfer")], 0.0),
            ],
        );
        self.counter(
            "vllm:prompt_tokens_cached",
            "Prompt tokens from a cache.",
            &[(&[], hits)],
        );
        self.counter(
            "vllm:prompt_tokens_cached_by_source",
            "Prompt tokens from a cache, by its tier.",
            &[
                (&[("source", "device")], hits),
                (&[("source", "host")], 0.0),
                (&[("source", "p2p")], 0.0),
                (&[("source", "disk")], 0.0),
                (&[("source", "external_unspecified")], 0.0),
            ],
        );
        let generated = stats.generated.as_f64();
        self.counter(
            "vllm:generation_tokens",
            "Tokens generated.",
            &[(&[], generated)],
        );
    }

    fn outcomes(&mut self, state: &State) {
        let (stopped, limited) = (
            whole(state.meters.stopped),
            whole(state.meters.length_limited),
        );
        self.counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            &[
                (&[("finished_reason", "stop")], stopped),
                (&[("finished_reason", "length")], limited),
                (&[("finished_reason", "abort")], 0.0),
                (&[("finished_reason", "error")], 0.0),
                (&[("finished_reason", "repetition")], 0.0),
            ],
        );
        // The one family without an engine label.
        let name = "vllm:admission_rejections";
        let values = [
            ("max_num_queued_reqs", whole(state.meters.rejections)),
            ("max_num_queued_tokens", 0.0),
        ];
        let model = self.model;
        let labels = |reason| format!("{{model_name=\"{model}\",reason=\"{reason}\"}}");
        self.head(
            &format!("{name}_total"),
            "Requests refused for a full queue.",
            "counter",
        );
        for (reason, value) in values {
            self.line(&format!("{name}_total"), &labels(reason), value);
        }
        self.head(
            &format!("{name}_created"),
            "When the counter began.",
            "gauge",
        );
        for (reason, _) in values {
            self.created(name, &labels(reason));
        }
    }

    fn gauge(&mut self, family: Family, series: &[Series]) {
        self.head(family.name, family.help, "gauge");
        for (extra, value) in series {
            let labels = self.labels(extra);
            self.line(family.name, &labels, *value);
        }
    }

    /// A counter and the gauge of its creation.
    fn counter(&mut self, name: &str, help: &str, series: &[Series]) {
        self.head(&format!("{name}_total"), help, "counter");
        for (extra, value) in series {
            let labels = self.labels(extra);
            self.line(&format!("{name}_total"), &labels, *value);
        }
        self.head(&format!("{name}_created"), help, "gauge");
        for (extra, _) in series {
            let labels = self.labels(extra);
            self.created(name, &labels);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let count = whole(histogram.count());
        let model = self.model;
        let labels =
            |bound: &str| format!("{{engine=\"0\",le=\"{bound}\",model_name=\"{model}\"}}");
        for (bound, below) in histogram.buckets() {
            self.line(&bucket, &labels(&number(bound)), whole(below));
        }
        self.line(&bucket, &labels("+Inf"), count);
        let plain = self.labels(&[]);
        self.line(&format!("{name}_count"), &plain, count);
        self.line(&format!("{name}_sum"), &plain, histogram.sum());
        self.head(&format!("{name}_created"), help, "gauge");
        self.created(name, &plain);
    }

    fn cache_config(&mut self, spec: &EngineSpec) {
        let name = "vllm:cache_config_info";
        self.head(name, "How the KV cache is set up.", "gauge");
        let mut labels = String::from("{");
        for (label, value) in cache_labels(spec) {
            let comma = if labels.len() > 1 { "," } else { "" };
            let _infallible = write!(labels, "{comma}{label}=\"{value}\"");
        }
        labels.push('}');
        self.line(name, &labels, 1.0);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _infallible = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let value = number(value);
        let _infallible = writeln!(self.text, "{name}{labels} {value}");
    }

    fn created(&mut self, name: &str, labels: &str) {
        let _infallible = writeln!(self.text, "{name}_created{labels} {}", self.created);
    }

    /// The common labels and `extra`, in alphabetical order.
    fn labels(&self, extra: &[(&str, &str)]) -> String {
        let mut labels = vec![("engine", "0"), ("model_name", self.model)];
        labels.extend_from_slice(extra);
        labels.sort_unstable();
        let inner: Vec<String> = labels
            .into_iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        format!("{{{}}}", inner.join(","))
    }
}

/// Every label of `vllm:cache_config_info`, in alphabetical order.
fn cache_labels(spec: &EngineSpec) -> Vec<(&'static str, String)> {
    let block = spec.block_size.get().to_string();
    let blocks = spec.blocks.to_string();
    // The null block counts, and a context is rounded up to blocks: so do real servers.
    let context = spec
        .max_model_len
        .blocks_up(spec.block_size)
        .max(Blocks::new(1));
    let concurrency = spec.blocks.as_f64() / context.as_f64();
    let tokens = spec.blocks.get() * spec.max_model_len.get() / context.get();
    let caching = match spec.prefix_caching {
        PrefixCaching::Shared => "True",
        PrefixCaching::PerSequence => "False",
    };
    let none = || String::from("None");
    let text = String::from;
    vec![
        ("_block_size_resolved", text("True")),
        ("block_size", block.clone()),
        ("cache_dtype", text("auto")),
        ("cache_hit_alignment_tokens", none()),
        ("effective_attention_block_size", block),
        ("enable_mamba_shared_prefix_checkpoint", text("False")),
        ("enable_prefix_caching", text(caching)),
        ("engine", text("0")),
        ("gpu_memory_utilization", text("0.92")),
        ("hash_block_size", none()),
        ("is_attention_free", text("False")),
        ("kv_cache_dtype_skip_layers", text("[]")),
        ("kv_cache_layout", none()),
        ("kv_cache_max_concurrency", concurrency.to_string()),
        ("kv_cache_memory_bytes", none()),
        ("kv_cache_size_tokens", tokens.to_string()),
        ("kv_offloading_backend", text("native")),
        ("kv_offloading_size", none()),
        ("kv_sharing_fast_prefill", text("False")),
        ("mamba_block_size", none()),
        ("mamba_cache_dtype", text("auto")),
        ("mamba_cache_mode", text("none")),
        ("mamba_page_size_padded", none()),
        ("mamba_ssm_cache_dtype", text("float32")),
        ("num_cpu_blocks", none()),
        ("num_gpu_blocks", blocks.clone()),
        ("num_gpu_blocks_override", blocks),
        ("prefix_cache_retention_interval", text("0")),
        ("prefix_caching_hash_algo", text("sha256")),
        ("prefix_match_unit", none()),
        ("replayssm_buffer_len", text("16")),
        ("skip_page_size_padded", none()),
        ("sliding_window", none()),
        ("swa_bounded_replay", text("True")),
        ("use_kda_recoverssm", text("False")),
        ("use_replayssm", text("False")),
        ("user_specified_block_size", text("True")),
    ]
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counters stay far below 2^53")]
const fn whole(count: u64) -> f64 {
    count as f64
}

/// A number as the Python client writes it: always with a point, and in the exponent form
/// of Go from a million on.
fn number(value: f64) -> String {
    let plain = format!("{value:?}");
    let Some(point) = plain.find('.') else {
        return plain;
    };
    if value <= 0.0 || point <= 6 {
        return plain;
    }
    let mantissa = format!(
        "{}.{}{}",
        &plain[..1],
        &plain[1..point],
        &plain[point + 1..]
    );
    let mantissa = mantissa.trim_end_matches(['0', '.']);
    format!("{mantissa}e+{:02}", point - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_the_captures() {
        assert_eq!(number(0.0), "0.0");
        assert_eq!(number(122_144.0), "122144.0");
        assert_eq!(number(0.710_937_5), "0.7109375");
        assert_eq!(number(4_550_582_272.0), "4.550582272e+09");
        assert_eq!(number(1_795_964_955.62), "1.79596495562e+09");
        assert_eq!(number(1_000_000.0), "1e+06");
    }
}
