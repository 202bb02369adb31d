use std::fmt::Write as _;

use super::diff::Diff;
use super::present::{Engine, Reservation};
use super::rounds::{Figure, Round, Rounds};
use super::*;

/// One line of a log; what a test does not care about is ordinary.
#[derive(Clone)]
struct Line {
    second: u64,
    tenant: &'static str,
    tier: &'static str,
    prompt: u64,
    output: u64,
    asked: Option<u64>,
    lasts: u64,
    rest: &'static str,
}

const LINE: Line = Line {
    second: 0,
    tenant: "chat",
    tier: "standard",
    prompt: 100,
    output: 61,
    asked: None,
    lasts: 10,
    rest: "",
};

fn text(lines: &[Line]) -> String {
    lines.iter().fold(String::new(), |mut text, line| {
        let Line { second, tenant, tier, prompt, output, lasts, rest, .. } = line;
        let asked = line.asked.map_or("null".to_owned(), |asked| asked.to_string());
        let (minute, second) = (second / 60, second % 60);
        writeln!(
            text,
            r#"{{"arrival":"2026-11-30T10:{minute:02}:{second:02}.000000Z","request_id":"r","route":"chat_completions","tenant":"{tenant}","model":"m","prompt_tokens":{prompt},"used_prompt_tokens":{prompt},"used_output_tokens":{output},"max_tokens":{asked},"samples":1,"queue_ms":0.0,"ttft_ms":250.0,"duration_ms":{lasts}000.0,"finish":"complete","backend":"a","tier":"{tier}"{rest}}}"#
        )
        .unwrap();
        text
    })
}

fn log_of(text: &str) -> Log {
    let mut log = Log::default();
    log.read(text.as_bytes(), "access.jsonl").unwrap();
    log
}

fn engine(tier: Tier, pool: u64, max_model_len: u64) -> Engine {
    Engine {
        name: "a".to_owned(),
        model: "m".to_owned(),
        tier,
        pool: Some(Tokens::new(pool)),
        block_size: BlockSize::new(16),
        max_model_len: Some(Tokens::new(max_model_len)),
    }
}

fn fleet(reservation: Reservation) -> Present {
    Present {
        engines: vec![engine(Tier::Standard, 32_768, 16_384)],
        reservation: Some(reservation),
        open_output: Some(Tokens::new(1024)),
    }
}

const STRICT: Reservation = Reservation::Strict;

/// 200 contexts of 161, one after the other but for two of 4,001 at one time.
fn two_hundred() -> Vec<Line> {
    let chat = (0..198).map(|place| Line {
        second: 10 * place,
        ..LINE
    });
    let long = Line {
        tenant: "docs",
        prompt: 4000,
        output: 1,
        second: 5,
        ..LINE
    };
    chat.chain([long.clone(), long]).collect()
}

#[test]
fn lengths_are_those_that_were_there_and_parts_of_answers_are_none() {
    let mut text = text(&two_hundred());
    text += &text
        .lines()
        .next()
        .unwrap()
        .replace("complete", "cancelled")
        .replace("61", "9");
    let advice = advise(&log_of(&text), &Present::default());
    let model = &advice.models[0];
    assert_eq!((model.requests, model.broken, model.too_long), (201, 1, 0));
    let Lengths {
        prompt,
        output,
        context,
        footprint,
    } = model.lengths;
    assert_eq!(
        (prompt.count, prompt.p50, prompt.p99, prompt.max),
        (201, 100, 100, 4000)
    );
    assert_eq!(
        (output.count, output.p50, output.p99, output.max),
        (200, 61, 61, 61)
    );
    assert_eq!(
        (context.p50, context.p90, context.p99, context.max),
        (161, 161, 161, 4001)
    );
    // 160 have KV: ten blocks of 16.
    assert_eq!((footprint.p50, footprint.max), (160, 4000));
}

#[test]
fn the_limit_is_the_roundest_number_10_to_20_percent_above_the_p99() {
    assert_eq!(limits::roundest(6600, 7200), 7168);
    assert_eq!(limits::roundest(178, 194), 192);
    assert_eq!(limits::roundest(0, 0), 0);
    assert_eq!(limits::roundest(1, 1), 1);
    let advice = advise(&log_of(&text(&two_hundred())), &Present::default());
    let limit = advice.models[0].tiers[0].limit.unwrap();
    assert_eq!(
        (limit.low, limit.high, limit.proposed, limit.longer),
        (178, 194, 192, 2)
    );
}

#[test]
fn a_shorter_limit_frees_what_open_outputs_reserve() {
    // Open: 1000 s of 16,384 held now, of 192 then; 160 used. Bounded at 61: 160 held
    // either way.
    let open = (0..100).map(|place| Line {
        second: 10 * place,
        ..LINE
    });
    let asked = open.clone().map(|line| Line {
        asked: Some(61),
        ..line
    });
    let lines: Vec<Line> = open.chain(asked).collect();
    let advice = advise(&log_of(&text(&lines)), &fleet(STRICT));
    let freed = advice.models[0].tiers[0].freed.unwrap();
    assert_eq!((freed.from, freed.to), (16_384, 192));
    assert_eq!(freed.reserved_from, 1000.0 * (16_384.0 + 160.0));
    assert_eq!(freed.reserved_to, 1000.0 * (192.0 + 160.0));
    assert_eq!(freed.used, 1000.0 * 320.0);
    assert_eq!(freed.share, 1.0 - 352.0 / 16_544.0);
    assert_eq!(freed.idle_share, 1.0 - 320.0 / 16_544.0);
    assert_eq!(freed.concurrency_from, Some(2.0));
    assert_eq!(freed.concurrency_to, Some(32_768.0 / 192.0));
}

#[test]
fn a_split_tells_what_each_side_would_hold() {
    let advice = advise(&log_of(&text(&two_hundred())), &Present::default());
    let splits = &advice.models[0].splits;
    assert_eq!(splits.len(), 1);
    let split = &splits[0];
    assert_eq!((split.up_to, split.longest), (192, 4001));
    assert_eq!(split.short_requests, 0.99);
    assert_eq!(split.short_peak_tokens, 160);
    assert_eq!(split.long_peak_tokens, 8000);
    assert_eq!(split.short_kv, 316_800.0 / (316_800.0 + 80_000.0));
}

#[test]
fn the_tenant_that_makes_the_peak_is_named_first_with_its_share() {
    let advice = advise(&log_of(&text(&two_hundred())), &fleet(STRICT));
    let model = &advice.models[0];
    assert_eq!(model.held.peak_tokens, 8160);
    assert_eq!(model.held.peak_at.as_deref(), Some("2026-11-30T10:00:05Z"));
    assert_eq!(model.held.requests_at_peak, 3);
    let told: Vec<_> = model
        .tenants
        .iter()
        .map(|t| (t.tenant.as_str(), t.tokens_at_peak))
        .collect();
    assert_eq!(told, [("docs", 8000), ("chat", 160)]);
    assert!(model.tenants[1].share > 0.79, "chat held most over time");
    assert_eq!(model.tiers[0].peak_usage, Some(8160.0 / 32_768.0));
}

#[test]
fn proposals_are_a_diff_against_what_runs() {
    let advice = advise(&log_of(&text(&two_hundred())), &fleet(STRICT));
    let told = Diff(&advice.proposals).to_string();
    let expected = "\
--- present
+++ proposed
@@ engines of m, tier standard @@
 # the P99 of 200 contexts is 161, and 10-20 % more is 178 to 194; 2 were longer, up to 4001, and need a larger tier or are refused
---max-model-len 16384
+--max-model-len 192
@@ tidegate.toml [admission] @@
 # 99 % of the KV token-seconds that were reserved were never used
-reservation = \"strict\"
+reservation = \"forecast\"
 # nine of ten of 200 answers without max_tokens had at most 61 tokens
-open_output_tokens = 1024
+open_output_tokens = 64
";
    assert_eq!(told, expected);
}

#[test]
fn nothing_is_proposed_that_is_set_already_or_on_few_requests() {
    let mut lines = two_hundred();
    let present = Present {
        engines: vec![engine(Tier::Standard, 32_768, 200)],
        reservation: Some(Reservation::Forecast),
        open_output: Some(Tokens::new(64)),
    };
    assert_eq!(advise(&log_of(&text(&lines)), &present).proposals, []);
    lines.truncate(99);
    assert_eq!(
        advise(&log_of(&text(&lines)), &fleet(STRICT))
            .proposals
            .len(),
        1,
        "reservation only"
    );
    assert_eq!(Diff(&[]).to_string(), "");
}

#[test]
fn a_cache_that_never_hits_is_proposed_where_beginnings_come_again() {
    let hashes =
        r#","used_cached_tokens":0,"prefix_hashes":["00000000000000aa","00000000000000bb"]"#;
    let line = Line {
        prompt: 1100,
        rest: hashes,
        ..LINE
    };
    let advice = advise(&log_of(&text(&vec![line; 20])), &Present::default());
    let model = &advice.models[0];
    assert_eq!(model.prefix.seen_tokens, 19 * 1024);
    assert_eq!(model.prefix_seen_share, Some(19.0 * 1024.0 / 22_000.0));
    assert_eq!(model.prefix_cached_share, Some(0.0));
    assert_eq!(
        Diff(&advice.proposals).to_string().lines().last(),
        Some("+--enable-prefix-caching")
    );
}

#[test]
fn lines_that_are_no_record_are_counted_and_the_first_is_told() {
    let good = text(&[LINE]);
    let cut = &good[..40];
    let no_date = good.replace("2026-11-30T10", "yesterday");
    let no_end = good.replace("complete", "melted");
    let no_hash = good.replace("\"tier\"", "\"prefix_hashes\":[\"xyz\"],\"tier\"");
    let aside = good.replace("chat_completions", "tokenize");
    let unknown = good.replace("prompt_tokens\":100", "prompt_tokens\":null");
    let refused = good
        .replace("complete", "refused")
        .replace("\"backend\":\"a\"", "\"reason\":\"context_too_long\"");
    let mut text =
        format!("\u{feff}{good}\nnot json\n{no_date}{no_end}{no_hash}{aside}{unknown}{refused}");
    text += cut;
    let mut log = log_of(&text);
    log.read(&b"\xff\xfe\n"[..], "other").unwrap();
    assert_eq!((log.lines, log.bad, log.entries.len()), (10, 6, 2));
    let first = log.first_bad.clone().unwrap();
    assert!(first.starts_with("access.jsonl:3: expected"), "{first}");
    assert_eq!(log.skipped.get("that hold no KV"), Some(&1));
    assert_eq!(log.skipped.get("whose prompt was not counted"), Some(&1));
    let advice = advise(&log, &Present::default());
    assert_eq!(
        (advice.models[0].too_long, advice.models[0].requests),
        (1, 2)
    );
}

#[test]
fn samples_hold_the_full_blocks_of_their_prompt_once() {
    let mut log = log_of(
        &text(&[Line {
            prompt: 40,
            output: 99,
            ..LINE
        }])
        .replace("samples\":1", "samples\":3"),
    );
    let size = Present::BLOCK;
    // 40 + 33 - 1 tokens are five blocks, of which two are the prompt's and shared.
    assert_eq!(
        lengths::footprint(&log.entries[0], size).get(),
        16 * (2 + 3 * 3)
    );
    assert_eq!(log.entries[0].context(), Tokens::new(73));
    log.entries[0].samples = 1;
    assert_eq!(lengths::footprint(&log.entries[0], size).get(), 144);
}

#[test]
fn the_four_figures_are_those_of_the_log_and_the_fleet() {
    let figures = advise(&log_of(&text(&two_hundred())), &fleet(STRICT)).figures;
    assert_eq!(figures.kv_tokens, Some(32_768));
    assert_eq!(
        (figures.ttft_p50_seconds, figures.ttft_p99_seconds),
        (Some(0.25), Some(0.25))
    );
    assert_eq!(
        figures.output_tokens_per_second,
        Some((198.0 * 61.0 + 2.0) / 1980.0)
    );
    assert_eq!(figures.peak_kv_usage, Some(8160.0 / 32_768.0));
    let unknown = advise(&log_of(&text(&two_hundred())), &Present::default()).figures;
    assert_eq!((unknown.kv_tokens, unknown.peak_kv_usage), (None, None));
}

#[test]
fn rounds_are_read_back_and_a_broken_line_is_told_and_passed_over() {
    let figures = advise(&log_of(&text(&two_hundred())), &fleet(STRICT)).figures;
    let round = Round {
        at: "2026-11-30T10:00:00Z".to_owned(),
        name: "first".to_owned(),
        figures,
        flags: [("m standard --max-model-len".to_owned(), "16384".to_owned())].into(),
    };
    let mut other = round.clone();
    other.figures.kv_tokens = Some(49_152);
    other.figures.ttft_p50_seconds = None;
    other.flags.clear();
    let text = format!("{}{{\"at\":\n\n{}", round.line(), other.line());
    let read = Rounds::read(&text);
    assert_eq!(read.rounds, [round.clone(), other.clone()]);
    assert_eq!(read.bad.len(), 1);
    assert!(read.bad[0].starts_with("line 2: EOF"), "{:?}", read.bad);
    assert_eq!(
        Figure::KvTokens.change(&round.figures, &other.figures),
        Some(0.5)
    );
    assert_eq!(Figure::TtftP50.change(&round.figures, &other.figures), None);
    assert_eq!(
        other.changed(&round),
        [("m standard --max-model-len", Some("16384"), None)]
    );
}
