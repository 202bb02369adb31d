//! Windows, loads and seeds.

use super::*;
use crate::replay::traces::read;

fn columns(rows: &[(f64, &str, u64, u64)]) -> Trace {
    let mut text = "t_s,tenant,prompt_tokens,output_tokens\n".to_owned();
    for (at, tenant, prompt, output) in rows {
        text += &format!("{at},{tenant},{prompt},{output}\n");
    }
    read(text.as_bytes(), "folder/chat.csv", None).unwrap()
}

/// Forty rows of two tenants, one a second.
fn forty() -> Trace {
    let rows: Vec<_> = (0..40_u32)
        .map(|i| {
            (
                f64::from(i),
                if i % 2 == 0 { "a" } else { "b" },
                100,
                u64::from(i) + 1,
            )
        })
        .collect();
    columns(&rows)
}

fn outputs(calls: &[Call], tenant: u32) -> Vec<u64> {
    let own = calls.iter().filter(|call| call.tenant == TenantId(tenant));
    own.map(|call| call.output.get()).collect()
}

#[test]
fn a_load_of_two_is_the_same_calls_in_half_the_time() {
    let schedule = Schedule::new(&[forty()], &Part::whole()).unwrap();
    let (once, twice) = (schedule.calls(1.0, 3), schedule.calls(2.0, 3));
    assert_eq!(once.len(), 40);
    assert_eq!(once[39].at, Time::from_start(Duration::from_secs(39)));
    assert_eq!(
        twice[39].at,
        Time::from_start(Duration::from_millis(19_500))
    );
    let lengths = |calls: &[Call]| calls.iter().map(|call| call.output).collect::<Vec<_>>();
    assert_eq!(lengths(&once), lengths(&twice));
    assert_eq!(schedule.span(), Duration::from_secs(39));
}

#[test]
fn seeds_deal_the_answers_anew_within_a_tenant_and_the_first_leaves_them() {
    let schedule = Schedule::new(&[forty()], &Part::whole()).unwrap();
    let recorded = outputs(&schedule.calls(1.0, 1), 0);
    assert_eq!(recorded, (0..20).map(|i| 2 * i + 1).collect::<Vec<u64>>());
    let mut dealt = outputs(&schedule.calls(1.0, 2), 0);
    assert_ne!(dealt, recorded);
    assert_ne!(dealt, outputs(&schedule.calls(1.0, 5), 0));
    assert_eq!(dealt, outputs(&schedule.calls(1.0, 2), 0));
    dealt.sort_unstable();
    assert_eq!(dealt, recorded);
}

#[test]
fn a_window_is_in_seconds_of_the_trace_and_begins_anew_at_zero() {
    let part = Part {
        window: Duration::from_secs(10)..Duration::from_secs(30),
        ..Part::whole()
    };
    let schedule = Schedule::new(&[forty()], &part).unwrap();
    assert_eq!((schedule.len(), schedule.outside), (20, 20));
    let calls = schedule.calls(1.0, 1);
    assert_eq!(calls[0].at, Time::ZERO);
    assert_eq!(calls[0].output, Tokens::new(11));
    let none = Part {
        window: Duration::from_secs(100)..Duration::from_secs(130),
        ..Part::whole()
    };
    let said = Schedule::new(&[forty()], &none).unwrap_err();
    assert_eq!(
        said,
        "nothing to replay: 40 rows are outside the window, 0 have too short a prompt"
    );
}

#[test]
fn a_coarse_clock_is_spread_over_its_bins() {
    let rows: Vec<_> = (0..300_u32)
        .map(|i| (f64::from(i / 10 * 3), "a", 10, 10))
        .collect();
    let schedule = Schedule::new(&[columns(&rows)], &Part::whole()).unwrap();
    let calls = schedule.calls(1.0, 1);
    let distinct: std::collections::BTreeSet<Time> = calls.iter().map(|call| call.at).collect();
    assert_eq!(distinct.len(), 300);
    let in_first = calls
        .iter()
        .filter(|call| call.at < Time::from_start(Duration::from_secs(3)));
    assert_eq!(in_first.count(), 10);
    assert_ne!(schedule.calls(1.0, 2)[0].at, calls[0].at);
    let fine = Schedule::new(&[forty()], &Part::whole()).unwrap();
    assert_eq!(
        fine.calls(1.0, 2)[7].at,
        Time::from_start(Duration::from_secs(7))
    );
}

#[test]
fn files_are_merged_in_time_with_contents_and_tenants_of_their_own() {
    let line = r#"{"timestamp": 500, "input_length": 20000, "output_length": 5, "hash_ids": []}"#;
    let lines = format!(
        "{}\n{line}",
        line.replace("20000", "10").replace("500", "0")
    );
    let long = read(lines.as_bytes(), "long.jsonl", None).unwrap();
    let part = Part {
        least_prompt: vec![Tokens::ZERO, Tokens::new(16_384)],
        ..Part::whole()
    };
    let chat = columns(&[(0.0, "", 5, 5), (1.0, "", 6, 6)]);
    let schedule = Schedule::new(&[chat, long], &part).unwrap();
    assert_eq!(schedule.too_short, 1);
    assert_eq!(schedule.tenants, ["chat", "long"]);
    let prompts: Vec<u64> = schedule
        .calls(1.0, 1)
        .iter()
        .map(|call| call.prompt.get())
        .collect();
    assert_eq!(prompts, [5, 20_000, 6]);
    assert_ne!(
        spaced(&Arc::from([7]), Some(0)),
        spaced(&Arc::from([7]), Some(1))
    );
    assert_eq!(spaced(&Arc::from([7]), None)[..], [7]);
}

#[test]
fn a_refused_request_gets_the_answer_of_another_of_its_class_within_its_bound() {
    let mut trace = forty();
    for row in &mut trace.rows[..10] {
        row.output = None;
        row.asked = Some(Tokens::new(4));
    }
    let schedule = Schedule::new(&[trace], &Part::whole()).unwrap();
    assert_eq!(schedule.unanswered, 10);
    let calls = schedule.calls(1.0, 1);
    assert!(calls[..10].iter().all(|call| call.output == Tokens::new(4)));
    assert_eq!(calls, schedule.calls(1.0, 1));
}

#[test]
fn a_surge_multiplies_one_tenant_for_a_while() {
    let surge = |tenant: &str| Part {
        surge: Some(Surge {
            tenant: tenant.to_owned(),
            factor: 10,
            window: Duration::from_secs(10)..Duration::from_secs(20),
        }),
        ..Part::whole()
    };
    let schedule = Schedule::new(&[forty()], &surge("b")).unwrap();
    let calls = schedule.calls(1.0, 1);
    assert_eq!(outputs(&calls, 0).len(), 20);
    assert_eq!(outputs(&calls, 1).len(), 20 + 5 * 9);
    let missing = Schedule::new(&[forty()], &surge("c")).unwrap_err();
    assert_eq!(missing, "surge: no tenant \"c\" in the trace");
}
