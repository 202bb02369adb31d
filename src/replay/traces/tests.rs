//! Each reader on a good file and on broken ones.

use super::*;

/// Reads `text` as the file `f` in the format its first line tells.
fn trace(text: &str) -> Trace {
    read(text.as_bytes(), "f", None).unwrap()
}

fn said(text: &str) -> String {
    read(text.as_bytes(), "f", None).unwrap_err().to_string()
}

/// Milliseconds, prompt and output of each row.
fn rows(trace: &Trace) -> Vec<(u128, u64, Option<u64>)> {
    let row = |row: &Row| {
        (
            row.at.as_millis(),
            row.prompt.get(),
            row.output.map(Tokens::get),
        )
    };
    trace.rows.iter().map(row).collect()
}

const MOONCAKE: &str = r#"{"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [0, 7]}
{"timestamp": 6000, "input_length": 512, "output_length": 9, "hash_ids": [0]}
"#;

#[test]
fn mooncake_lines_are_milliseconds_and_chunks_of_512_tokens() {
    let trace = trace(MOONCAKE);
    assert_eq!(trace.format, Format::Mooncake);
    assert_eq!(rows(&trace), [(0, 700, Some(5)), (3000, 512, Some(9))]);
    assert_eq!(*trace.rows[0].chunks, [0, 7]);
}

#[test]
fn a_broken_json_line_is_told_by_file_line_and_column() {
    let text = MOONCAKE.replace("\"output_length\": 9", "\"output_length\": -9");
    let expected = "f:2: invalid value: integer `-9`, expected u64 (column 60)";
    assert_eq!(said(&text), expected);
    let text = MOONCAKE.replace("[0, 7]", "[0]");
    assert_eq!(
        said(&text),
        "f:1: 1 hash_ids for 700 tokens, which are 2 blocks of 512"
    );
    let text = MOONCAKE.replace("3000", "-1");
    assert_eq!(
        said(&text),
        "f:1: -0.001 is no number of seconds since a beginning"
    );
    let text = MOONCAKE.replace("512", "51200000000000");
    assert_eq!(
        said(&text),
        "f:2: 51200000000000 tokens are beyond any context"
    );
}

#[test]
fn a_last_line_that_is_being_written_is_counted_and_no_other_is() {
    let cut = trace(&format!("{MOONCAKE}{}", "{\"timestamp\": 61"));
    assert_eq!(cut.rows.len(), 2);
    assert_eq!(cut.skipped["not written to its end"], 1);
    let text = format!("{}\n{MOONCAKE}", &MOONCAKE[..20]);
    assert!(read(text.as_bytes(), "f", Some(Format::Mooncake)).is_err());
}

#[test]
fn bailian_blocks_become_prefixes() {
    let row = |blocks: &str| {
        format!(
            r#"{{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 528, "output_length": 2, "type": "text", "turn": 1, "hash_ids": [{blocks}]}}"#
        )
    };
    let blocks = |first: u64| {
        (0..33)
            .map(|i| (first + i).to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    let other = blocks(0).replacen("0,", "99,", 1);
    let trace = trace(&[row(&blocks(0)), row(&blocks(0)), row(&other)].join("\n"));
    assert_eq!(trace.format, Format::Bailian);
    let chunks: Vec<&Arc<[u64]>> = trace.rows.iter().map(|row| &row.chunks).collect();
    assert_eq!(chunks[0].len(), 2);
    assert_eq!(chunks[0], chunks[1]);
    // The last block is the same and its prefix is not.
    assert_ne!(chunks[0][1], chunks[2][1]);
}

#[test]
fn azure_rows_are_times_of_day_with_or_without_a_zone() {
    let trace = trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
         2023-11-16 18:15:46.6805900,374,44\r\n\
         2023-11-16 18:15:50.9951690+00:00,396,109\r\n",
    );
    assert_eq!(trace.format, Format::Azure);
    assert_eq!(rows(&trace), [(0, 374, Some(44)), (4314, 396, Some(109))]);
}

#[test]
fn a_broken_row_of_a_table_is_told_by_its_column() {
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    let text = format!("{header}2023-11-16 18:15:46,374,44\nyesterday,1,1\n");
    assert_eq!(
        said(&text),
        "f:3: TIMESTAMP = \"yesterday\" is not a date and time"
    );
    let text = format!("{header}2023-11-16 18:15:46,37 4,44\n");
    assert_eq!(
        said(&text),
        "f:2: ContextTokens = \"37 4\" is not a number of tokens"
    );
    let text = format!("{header}2023-11-16 18:15:46,374\n");
    assert_eq!(said(&text), "f:2: 2 fields, the header has 3");
}

#[test]
fn burst_gpt_rows_without_an_answer_are_counted() {
    let trace = trace(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
         5,ChatGPT,472,18,490,Conversation log\n\
         45.5,GPT-4,1087,0,1087,Conversation log\n\
         118,GPT-4,417,276,693,API log\n",
    );
    assert_eq!(trace.format, Format::BurstGpt);
    assert_eq!(
        rows(&trace),
        [(0, 472, Some(18)), (113_000, 417, Some(276))]
    );
    assert_eq!(trace.skipped["without an answer"], 1);
    assert_ne!(trace.rows[0].kind, trace.rows[1].kind);
}

#[test]
fn columns_are_found_by_their_names() {
    let two = trace("t_s,tenant,prompt_tokens,output_tokens\n1.0,17,751,700\n1.5,35,323,724\n");
    assert_eq!(two.format, Format::Columns);
    assert_eq!(rows(&two), [(0, 751, Some(700)), (500, 323, Some(724))]);
    assert_eq!(two.tenants, ["17", "35"]);
    let five = trace(
        "req_id,tenant,t_s,prompt_tokens,output_tokens,max_tokens\n0,b,0.0,13,199,256\n1,a,0.2,36,137,\n",
    );
    assert_eq!(five.tenants, ["b", "a"]);
    assert_eq!(five.rows[0].asked, Some(Tokens::new(256)));
    assert_eq!(five.rows[1].asked, None);
    let missing = read("t_s,prompt_tokens\n".as_bytes(), "f", None);
    assert_eq!(
        missing.unwrap_err().to_string(),
        "f:1: the header has no column \"output_tokens\""
    );
    assert_eq!(
        said("t_s,prompt_tokens,output_tokens\nnan,1,1\n"),
        "f:2: NaN is no number of seconds since a beginning"
    );
}

#[test]
fn rows_out_of_order_are_put_in_order() {
    let trace = trace("t_s,prompt_tokens,output_tokens\n9,1,1\n4,2,1\n");
    assert_eq!(rows(&trace), [(0, 2, Some(1)), (5000, 1, Some(1))]);
}

#[test]
fn a_file_of_no_known_form_or_without_rows_is_refused_as_a_whole() {
    assert_eq!(said("\n\n"), "f: it is empty");
    let expected = "f: no known format begins with \"a,b\"; known are mooncake, bailian, azure, \
        burstgpt, csv, access-log";
    assert_eq!(said("a,b\n1,2\n"), expected);
    let none = "t_s,prompt_tokens,output_tokens\n1,0,4\n2,4,0\n";
    assert_eq!(said(none), "f: no row can be replayed; 2 were skipped");
}

fn logged(arrival: &str, more: &str) -> String {
    format!(
        r#"{{"arrival":"2026-11-30T10:00:{arrival}Z","request_id":"r","route":"chat_completions","tenant":"t","model":"m","prompt_tokens":40,"samples":1,"stream":true,"class":[],{more}}}"#
    )
}

#[test]
fn an_access_log_tells_answers_and_what_was_refused_for_want_of_room() {
    let answered = r#""used_prompt_tokens":33,"used_output_tokens":7,"max_tokens":64,"prefix_hashes":["00000000000000ff","0000000000000001"],"finish":"complete","status":200"#;
    let lines = [
        logged("03.250000", answered),
        logged("01.000000", r#""finish":"refused","status":429"#),
        logged("02.000000", r#""finish":"refused","status":400"#),
        logged("02.500000", r#""finish":"cancelled","status":null"#),
        logged(
            "02.600000",
            r#""used_output_tokens":3,"finish":"cancelled","status":200"#,
        ),
    ];
    let trace = trace(&lines.join("\n"));
    assert_eq!(trace.format, Format::AccessLog);
    assert_eq!(
        rows(&trace),
        [(0, 40, None), (1600, 40, Some(3)), (2250, 33, Some(7))]
    );
    assert_eq!(trace.rows[2].asked, Some(Tokens::new(64)));
    // The prompt ends within its first step: nobody else's begins so.
    assert!(trace.rows[2].chunks.is_empty());
    assert_eq!(trace.skipped["refused for what they were"], 1);
    assert_eq!(trace.skipped["left by their client before an answer"], 1);
}

/// A line that a gateway wrote: a chat of 3,222 tokens on a simulated engine.
const WRITTEN: &str = include_str!("../../../tests/golden/access/line.json");

#[test]
fn a_line_of_the_gateways_own_has_one_chunk_for_each_step_that_was_hashed() {
    let written = trace(WRITTEN);
    let record: serde_json::Value = serde_json::from_str(WRITTEN).unwrap();
    let hashes = record["prefix_hashes"].as_array().unwrap();
    let hashes: Vec<u64> = hashes
        .iter()
        .map(|hash| u64::from_str_radix(hash.as_str().unwrap(), 16).unwrap())
        .collect();
    assert!(hashes.len() >= 2, "{hashes:?}");
    assert_eq!(*trace(WRITTEN).rows[0].chunks, hashes);
    let prompt = written.rows[0].prompt.get();
    assert!(prompt / 512 >= hashes.len() as u64, "{prompt}");
    // Fewer tokens than the count before it was sent: fewer steps are whole.
    let used = format!("\"used_prompt_tokens\":{}", record["used_prompt_tokens"]);
    let fewer = WRITTEN.replace(&used, "\"used_prompt_tokens\":600");
    assert_ne!(fewer, WRITTEN);
    assert_eq!(*trace(&fewer).rows[0].chunks, hashes[..1]);
}

#[test]
fn a_wrong_arrival_of_an_access_log_is_told() {
    let text = logged("61.0", r#""finish":"refused","status":429"#);
    assert_eq!(
        said(&text),
        "f:1: arrival = \"2026-11-30T10:00:61.0Z\" is not a date and time"
    );
}
