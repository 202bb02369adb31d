//! Budgets, shared cards and loads.

use super::super::bytes::GIB;
use super::super::engine::{Parallel, PrefixCaching};
use super::super::load::{Instance, Lengths, Load, Sample, Speed};
use super::super::memory::{Budget, Card, default_batched, default_sequences};
use super::super::plan::{Plan, Question, Short};
use super::{engine, model, question};

fn flags(plan: &Plan) -> Vec<&str> {
    plan.flags.iter().map(|flag| flag.flag.as_str()).collect()
}

#[test]
fn kv_bytes_override_the_utilisation_and_are_never_added_to_it() {
    let model = model("llama-3.1-8b");
    let mut asked = question(&model, engine(33), 80);
    let by_share = asked.answer();
    asked.budget = Some(Budget::KvBytes(16 * GIB));
    let by_bytes = asked.answer();
    assert_eq!(by_bytes.available, i128::from(16 * GIB));
    assert_eq!(by_bytes.blocks, 8_192);
    assert!(by_share.available > by_bytes.available);
    assert_eq!(
        flags(&by_bytes),
        [
            "--max-model-len=131056",
            "--kv-cache-memory-bytes=17179869184"
        ]
    );
    assert_eq!(
        flags(&by_share),
        ["--max-model-len=131072", "--gpu-memory-utilization=0.92"]
    );
    asked.engine.version = super::Version::new(10);
    let warnings = asked.answer().warnings;
    assert!(warnings[0].contains("came with 0.11"), "{warnings:?}");
}

#[test]
fn the_default_utilisation_is_that_of_the_version() {
    let model = model("llama-3.1-8b");
    for (version, requested) in [(18, 72), (20, 73)] {
        let plan = question(&model, engine(version), 80).answer();
        assert_eq!(plan.requested.unwrap() / GIB, requested, "{version}");
    }
}

#[test]
fn instances_that_share_a_card_get_pools_of_their_own_and_a_warning_above_080() {
    let model = model("qwen3-1.7b");
    let mut asked = question(&model, engine(33), 80);
    asked.instances = 2;
    let plan = asked.answer();
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert_eq!(plan.requested, Some(32 * GIB));
    assert_eq!(flags(&plan)[1], "--gpu-memory-utilization=0.40");
    assert!(flags(&plan)[2].starts_with("--kv-cache-memory-bytes="));
    asked.budget = Some(Budget::Utilization(4_500));
    let warned = asked.answer().warnings;
    assert!(
        warned[0].contains("0.90") && warned[0].contains("0.80"),
        "{warned:?}"
    );
    asked.instances = 1;
    asked.others = 3_500;
    assert!(asked.answer().warnings.is_empty());
    asked.others = 3_501;
    assert_eq!(asked.answer().warnings.len(), 1);
    asked.others = 0;
    asked.instances = 2;
    // Why it is 0.40 each is said.
    asked.budget = None;
    let why = &asked.answer().flags[1].why;
    assert!(
        why.contains("0.80 in sum") && why.contains("0.40 for each of 2"),
        "{why}"
    );
    asked.others = 2_000;
    let why = &asked.answer().flags[1].why;
    assert!(
        why.contains("less 0.20 of others: 0.30 for each of 2"),
        "{why}"
    );
}

#[test]
fn what_is_more_than_the_card_is_a_problem_however_the_pool_was_asked_for() {
    let model = model("qwen3-1.7b");
    let mut asked = question(&model, engine(33), 80);
    let over = |asked: &Question<'_>| match asked.answer().short() {
        Some(Short::Card { bytes }) => bytes,
        other => panic!("{other:?}"),
    };
    asked.budget = Some(Budget::KvBytes(90 * GIB));
    let plan = asked.answer();
    let beside = plan.weights + plan.overhead.total();
    assert_eq!(over(&asked), 10 * GIB + beside);
    assert!(plan.flags.is_empty(), "{:?}", plan.flags);
    let told = plan.short().unwrap().to_string();
    assert!(told.contains("GiB more than it has"), "{told}");
    asked.budget = Some(Budget::KvBytes(80 * GIB - beside));
    assert_eq!(asked.answer().short(), None);
    asked.budget = Some(Budget::KvBytes(80 * GIB - beside + 1));
    assert_eq!(over(&asked), 1);
    // Two instances of 60 GiB, and shares of 1.20 in sum.
    asked.instances = 2;
    asked.budget = Some(Budget::KvBytes(60 * GIB));
    assert_eq!(over(&asked), 40 * GIB + 2 * beside);
    asked.budget = Some(Budget::Utilization(6_000));
    assert_eq!(over(&asked), 16 * GIB);
    let warnings = asked.answer().warnings;
    assert!(
        warnings[0].contains("1.20 times what it has"),
        "{warnings:?}"
    );
    // Blocks by number take memory too; what a log tells was there.
    asked.instances = 1;
    asked.budget = Some(Budget::Blocks(1 << 20));
    assert!(over(&asked) > GIB);
    asked.budget = Some(Budget::Logged(79 * GIB - beside));
    assert_eq!(asked.answer().short(), None);
    asked.memory = None;
    asked.budget = Some(Budget::KvBytes(1_000 * GIB));
    assert_eq!(asked.answer().short(), None);
}

#[test]
fn what_the_engine_would_refuse_is_told() {
    let model = model("qwen2.5-7b");
    let mut asked = question(&model, engine(33), 80);
    assert_eq!(asked.engine.parallel.objection(&model), None);
    let spread = |tensor, pipeline, context| Parallel {
        tensor,
        pipeline,
        data: 1,
        context,
    };
    let wrong = [
        (8, 1, 1, "28 attention heads"),
        (1, 29, 1, "29 pipeline"),
        (4, 1, 4, "context"),
    ];
    for (tensor, pipeline, context, words) in wrong {
        let objection = spread(tensor, pipeline, context).objection(&model);
        let objection = objection.expect("ranks that do not divide");
        assert!(objection.contains(words), "{objection}");
    }
    asked.context = Some(40_000);
    let warnings = asked.answer().warnings;
    assert!(warnings[0].contains("32768"), "{warnings:?}");
}

#[test]
fn cards_are_found_by_name_in_any_spelling() {
    let known = [
        ("h100-80g", "h100-80g"),
        ("H100", "h100-80g"),
        ("H100 80GB", "h100-80g"),
        ("a100", "a100-40g"),
        ("RTX-4090", "rtx4090"),
        ("l40s", "l40s"),
    ];
    for (name, card) in known {
        assert_eq!(
            Card::named(name).map(|card| card.name),
            Some(card),
            "{name}"
        );
    }
    assert_eq!(Card::named("tpu"), None);
    assert_eq!(Card::named(""), None);
}

#[test]
fn defaults_of_a_step_follow_the_card() {
    let of = |name: &str| {
        let card = Card::named(name).unwrap();
        let version = super::Version::new(33);
        (
            default_batched(card.bytes(), Some(card)),
            default_sequences(card.bytes(), Some(card), version),
        )
    };
    assert_eq!(of("b200"), (16_384, 1_024));
    assert_eq!(of("h100"), (8_192, 1_024));
    assert_eq!(of("a100-80g"), (2_048, 256));
    assert_eq!(of("l4"), (2_048, 256));
}

#[test]
fn a_load_of_one_kind_needs_rate_times_time_times_blocks() {
    let model = model("llama-3.1-8b");
    let layout = super::Layout::new(&model, &engine(33));
    let load = Load {
        rate: 2.0,
        samples: vec![Sample {
            prompt: 1_600,
            output: 320,
            weight: 3.0,
        }],
    };
    let speed = Speed {
        prefill: 1_600.0,
        decode: 32.0,
    };
    let instance = Instance {
        layout: &layout,
        blocks: 4_001,
        engines: 1,
        sequences: 256,
    };
    let wanted = load.wants(&model, instance, speed);
    // One second of prefill and ten of answering, twice a second.
    assert!((wanted.mean_sequences - 22.0).abs() < 1e-9);
    // 100 blocks for a second, then 100 to 120 for ten.
    assert!((wanted.mean_blocks - 2.0 * (100.0 + 1_100.0)).abs() < 1e-6);
    let squares: f64 = 2.0 * (10_000.0 + 10.0 * (10_000.0 + 12_000.0 + 14_400.0) / 3.0);
    let peak = 2_400.0 + 2.326 * squares.sqrt();
    assert!((wanted.peak_blocks - peak).abs() < 1e-6);
    assert_eq!(wanted.context, 2_208);
    assert_eq!(wanted.instances, Some(1));
    let tight = Instance {
        blocks: 1_001,
        ..instance
    };
    // Three would hold the mean; a fifth of the load still peaks at 1,013 blocks.
    assert_eq!(load.wants(&model, tight, speed).instances, Some(6));
    let hopeless = Instance {
        blocks: 2,
        ..instance
    };
    assert_eq!(load.wants(&model, hopeless, speed).instances, None);
}

#[test]
fn lognormal_lengths_have_the_quantiles_that_were_asked() {
    let prompt = Lengths {
        p50: 1_000,
        p99: 8_000,
    };
    let output = Lengths { p50: 200, p99: 200 };
    let load = Load::lognormal(1.0, prompt, output);
    assert_eq!(load.quantile(0.5, |sample| sample.prompt), 1_000);
    let p99 = load.quantile(0.99, |sample| sample.prompt);
    assert!((7_000..=10_000).contains(&p99), "{p99}");
    assert_eq!(load.quantile(0.01, |sample| sample.output), 200);
}

#[test]
fn hybrids_hold_states_for_the_shortest_request() {
    let model = model("qwen3-next-80b-a3b");
    let mut engine = engine(33);
    engine.prefix = PrefixCaching::Off;
    let layout = super::Layout::new(&model, &engine);
    assert_eq!(layout.blocks_of(1), 4);
    assert_eq!(layout.blocks_of(545), 5);
}
