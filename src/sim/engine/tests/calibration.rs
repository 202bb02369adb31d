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

/// Mean times to the first token and between tokens, in milliseconds.
#[derive(Debug)]
struct Pace {
    first_token: f64,
    per_token: f64,
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

fn pace(rows: &[Row], times: impl Fn(usize) -> (f64, f64)) -> Pace {
    let mut pace = Pace {
        first_token: 0.0,
        per_token: 0.0,
    };
    let count = Tokens::new(u64::try_from(rows.len()).unwrap()).as_f64();
    for (index, row) in rows.iter().enumerate() {
        let (first, last) = times(index);
        let gaps = Tokens::new(row.output.max(2) - 1).as_f64();
        pace.first_token += (first - row.queued) / count;
        pace.per_token += (last - first) / gaps / count;
    }
    pace
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

fn assert_close(what: &str, (real, simulated): (f64, f64), share: f64) {
    let off = (simulated / real - 1.0).abs();
    assert!(
        off <= share,
        "{what}: {simulated:.2} ms simulated, {real:.2} ms real"
    );
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
    let (real, simulated) = replay(&rows, spec(36_578, StepTime::rtx_pro_6000_8b()));
    let first_token = (real.first_token, simulated.first_token);
    assert_close("first token", first_token, 0.05);
    assert_close("per token", (real.per_token, simulated.per_token), 0.05);
}

#[test]
fn a_run_bound_by_kv_memory_takes_little_longer_than_it_took() {
    let rows = rows(include_str!(
        "../../../../tests/golden/vllm-0.19/rtx-4090-llama-3.1-8b.csv"
    ));
    let (real, simulated) = replay(&rows, spec(2_588, StepTime::rtx_4090_8b()));
    let first_token = (real.first_token, simulated.first_token);
    assert_close("first token", first_token, 0.15);
    assert_close("per token", (real.per_token, simulated.per_token), 0.15);
}
