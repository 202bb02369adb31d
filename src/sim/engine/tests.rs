//! The engine against numbers: hand-made cases, and runs of a real vLLM 0.32.

use super::*;

/// The real engine of the captures: 257 blocks of 32, 2048 tokens a step, and by its step
/// counts no asynchronous scheduling (a CPU engine).
fn captured_spec() -> EngineSpec {
    EngineSpec {
        blocks: Blocks::new(257),
        block_size: BlockSize::new(32).unwrap(),
        scheduling: Scheduling::Sync,
        step: StepTime::constant(Duration::from_millis(2)),
        ..EngineSpec::with_pool(Tokens::new(8192))
    }
}

fn drain(engine: &mut Engine) -> Vec<SimEvent> {
    let mut events = Vec::new();
    while let Some(at) = engine.next_step() {
        engine.step(at, &mut events);
    }
    events
}

/// Between two requests that one client sends at once.
const GAP: Duration = Duration::from_micros(200);

/// Sends `requests` one [`GAP`] apart, whatever the engine holds.
fn ungated(spec: EngineSpec, requests: impl IntoIterator<Item = SimRequest>) -> EngineStats {
    let mut engine = Engine::new(spec);
    let mut events = Vec::new();
    let mut at = Time::ZERO;
    for request in requests {
        while let Some(step) = engine.next_step().filter(|&step| step < at) {
            engine.step(step, &mut events);
        }
        engine.add(at, request);
        at = at + GAP;
    }
    drain(&mut engine);
    engine.stats()
}

fn equal(count: usize, prompt: u64, output: u64) -> Vec<SimRequest> {
    vec![SimRequest::new(Tokens::new(prompt), Tokens::new(output)); count]
}

/// At most `at_once` in the engine: the next is sent when one ends.
fn gated(spec: EngineSpec, at_once: usize, requests: Vec<SimRequest>) -> EngineStats {
    let mut engine = Engine::new(spec);
    let mut requests = requests.into_iter();
    for request in requests.by_ref().take(at_once) {
        engine.add(Time::ZERO, request);
    }
    let mut events = Vec::new();
    while let Some(at) = engine.next_step() {
        events.clear();
        engine.step(at, &mut events);
        let ended = events
            .iter()
            .filter(|event| matches!(event, SimEvent::Ended { .. }));
        for request in requests.by_ref().take(ended.count()) {
            engine.add(at, request);
        }
    }
    engine.stats()
}

/// Real outputs of load C's 32 requests, which all asked for 1500 tokens.
const LOAD_C: [u64; 32] = [
    890, 495, 154, 569, 1342, 976, 1187, 365, 982, 822, 1361, 760, 1080, 186, 1393, 1196, 1156,
    177, 377, 1462, 391, 1187, 261, 689, 927, 534, 409, 412, 1219, 1121, 1480, 360,
];

/// `real` within `share` of itself.
fn assert_within(what: &str, simulated: u64, real: u64, share: f64) {
    let off = (Tokens::new(simulated).as_f64() - Tokens::new(real).as_f64()).abs();
    assert!(
        off <= share * Tokens::new(real).as_f64(),
        "{what}: {simulated} simulated, {real} real"
    );
}

#[test]
fn load_a_ungated_preempts_as_the_real_engine_did() {
    let stats = ungated(captured_spec(), equal(16, 1500, 1500));
    assert!(stats.preemptions.abs_diff(14) <= 2, "{stats:?}");
    assert_within("steps", stats.steps, 7819, 0.005);
    assert_eq!(stats.generated, Tokens::new(24_000));
    assert_eq!(stats.prompt, Tokens::new(24_000));
    assert_eq!(stats.used, Blocks::ZERO);
}

#[test]
fn load_a_two_at_a_time_never_preempts_as_the_real_engine_did() {
    let stats = gated(captured_spec(), 2, equal(16, 1500, 1500));
    assert_eq!(stats.preemptions, 0);
    assert_within("steps", stats.steps, 12_008, 0.005);
}

#[test]
fn load_b_ungated_preempts_as_the_real_engine_did() {
    let stats = ungated(captured_spec(), equal(32, 200, 1500));
    assert!(stats.preemptions.abs_diff(75) <= 3, "{stats:?}");
    assert_within("steps", stats.steps, 6219, 0.005);
}

#[test]
fn load_b_four_at_a_time_never_preempts_as_the_real_engine_did() {
    let stats = gated(captured_spec(), 4, equal(32, 200, 1500));
    assert_eq!(stats.preemptions, 0);
    assert_within("steps", stats.steps, 12_023, 0.005);
}

#[test]
fn load_c_of_mixed_outputs_preempts_as_the_real_engine_did() {
    let requests = LOAD_C.map(|output| SimRequest::new(Tokens::new(1500), Tokens::new(output)));
    let stats = ungated(captured_spec(), requests);
    assert!(stats.preemptions.abs_diff(13) <= 2, "{stats:?}");
    assert_within("steps", stats.steps, 7437, 0.005);
}

#[test]
fn a_watermark_saves_the_preemptions_it_saved_in_the_real_engine() {
    let spec = EngineSpec {
        watermark: 0.2,
        ..captured_spec()
    };
    let load_c = LOAD_C.map(|output| SimRequest::new(Tokens::new(1500), Tokens::new(output)));
    for (requests, preemptions, steps) in [
        (equal(16, 1500, 1500), 2, 8454),
        (equal(32, 200, 1500), 37, 6822),
        (load_c.to_vec(), 0, 8602),
    ] {
        let stats = ungated(spec.clone(), requests);
        assert!(stats.preemptions.abs_diff(preemptions) <= 1, "{stats:?}");
        assert_within("steps", stats.steps, steps, 0.005);
    }
}

mod calibration;
mod occupancy;
mod rules;
