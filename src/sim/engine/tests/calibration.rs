//! Step times against two runs of a real vLLM 0.19 on GPUs.

use super::*;

/// One request of a run, in milliseconds and tokens.
struct Row {
    queued: f64,
    prompt: u64,
    output: u64,
    first: f64,
    last: f64,
}

/// What clients of a run saw: milliseconds.
#[derive(Debug)]
struct Pace {
    first_token: f64,
    first_token_p50: f64,
    first_token_p90: f64,
    first_token_p99: f64,
    per_token: f64,
    per_token_p99: f64,
}

fn rows(csv: &str) -> Vec<Row> {
    csv.lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split(',').map(|field| field.parse::<f64>().unwrap());
            let mut next = || fields.next().unwrap();
            let (queued, prompt, output) = (next(), next(), next());
            Row {
                queued,
                prompt: Duration::from_secs_f64(prompt).as_secs(),
                output: Duration::from_secs_f64(output).as_secs(),
                first: next(),
                last: next(),
            }
        })
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    let count = Tokens::new(u64::try_from(values.len()).unwrap()).as_f64();
    values.iter().sum::<f64>() / count
}

/// The value that `percent` of `values` do not pass.
fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

fn pace(rows: &[Row], times: impl Fn(usize) -> (f64, f64)) -> Pace {
    let (mut firsts, mut gaps) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let (first, last) = times(index);
        firsts.push(first - row.queued);
        gaps.push((last - first) / Tokens::new(row.output.max(2) - 1).as_f64());
    }
    Pace {
        first_token: mean(&firsts),
        first_token_p50: quantile(&mut firsts, 50),
        first_token_p90: quantile(&mut firsts, 90),
        first_token_p99: quantile(&mut firsts, 99),
        per_token: mean(&gaps),
        per_token_p99: quantile(&mut gaps, 99),
    }
}

/// Runs the rows through an engine and returns the real pace and the simulated one.
fn replay(rows: &[Row], spec: EngineSpec) -> (Pace, Pace) {
    let mut engine = Engine::new(spec);
    let mut times = vec![(0.0, 0.0); rows.len()];
    let mut events = Vec::new();
    let mut arrivals = rows.iter().peekable();
    loop {
        let arrival = arrivals
            .peek()
            .map(|row| Time::from_start(Duration::from_secs_f64(row.queued / 1e3)));
        match (arrival, engine.next_step()) {
            (Some(at), step) if step.is_none_or(|step| at <= step) => {
                let row = arrivals.next().unwrap();
                engine.add(
                    at,
                    SimRequest::new(Tokens::new(row.prompt), Tokens::new(row.output)),
                );
            }
            (_, Some(at)) => engine.step(at, &mut events),
            (_, None) => break,
        }
    }
    let millis = |at: Time| at.since(Time::ZERO).as_secs_f64() * 1e3;
    for event in events {
        match event {
            SimEvent::FirstToken { request, at, .. } => {
                times[usize::try_from(request.0).unwrap()].0 = millis(at)
            }
            SimEvent::Finished { request, at, .. } => {
                times[usize::try_from(request.0).unwrap()].1 = millis(at)
            }
            _ => {}
        }
    }
    let real = pace(rows, |index| (rows[index].first, rows[index].last));
    let simulated = pace(rows, |index| times[index]);
    (real, simulated)
}

fn assert_close((real, simulated): &(Pace, Pace), share: f64) {
    let figures = |pace: &Pace| {
        [
            ("first token, mean", pace.first_token),
            ("first token, p50", pace.first_token_p50),
            ("first token, p90", pace.first_token_p90),
            ("first token, p99", pace.first_token_p99),
            ("per token, mean", pace.per_token),
            ("per token, p99", pace.per_token_p99),
        ]
    };
    let off: Vec<String> = figures(real)
        .into_iter()
        .zip(figures(simulated))
        .filter(|((_, real), (_, simulated))| (simulated / real - 1.0).abs() > share)
        .map(|((what, real), (_, simulated))| {
            format!("{what}: {simulated:.1} ms simulated, {real:.1} ms real")
        })
        .collect();
    assert!(off.is_empty(), "{off:#?} of {real:?} {simulated:?}");
}

/// The servers of the runs: no more than 128 sequences ever ran at once in them.
fn spec(blocks: u64, step: StepTime) -> EngineSpec {
    EngineSpec {
        blocks: Blocks::new(blocks),
        max_num_seqs: 128,
        step,
        ..EngineSpec::with_pool(Tokens::new(32_768))
    }
}

#[test]
fn a_run_bound_by_computation_takes_the_time_it_took() {
    let rows = rows(include_str!(
        "../../../../tests/golden/vllm-0.19/rtx-pro-6000-llama-3.1-8b.csv"
    ));
    assert_close(
        &replay(&rows, spec(36_578, StepTime::rtx_pro_6000_8b())),
        0.05,
    );
}

#[test]
fn a_run_bound_by_kv_memory_takes_little_longer_than_it_took() {
    let rows = rows(include_str!(
        "../../../../tests/golden/vllm-0.19/rtx-4090-llama-3.1-8b.csv"
    ));
    assert_close(&replay(&rows, spec(2_588, StepTime::rtx_4090_8b())), 0.15);
}
