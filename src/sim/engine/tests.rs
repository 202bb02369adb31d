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

/// `count` requests at once, sent as they come.
fn ungated(spec: EngineSpec, count: u32, prompt: u64, output: u64) -> EngineStats {
    let mut engine = Engine::new(spec);
    for _ in 0..count {
        engine.add(
            Time::ZERO,
            SimRequest::new(Tokens::new(prompt), Tokens::new(output)),
        );
    }
    drain(&mut engine);
    engine.stats()
}

/// The same, but at most `at_once` in the engine: the next is sent when one ends.
fn gated(spec: EngineSpec, count: u32, at_once: u32, prompt: u64, output: u64) -> EngineStats {
    let request = || SimRequest::new(Tokens::new(prompt), Tokens::new(output));
    let mut engine = Engine::new(spec);
    for _ in 0..at_once {
        engine.add(Time::ZERO, request());
    }
    let mut left = count - at_once;
    let mut events = Vec::new();
    while let Some(at) = engine.next_step() {
        events.clear();
        engine.step(at, &mut events);
        for event in &events {
            if matches!(event, SimEvent::Ended { .. }) && left > 0 {
                left -= 1;
                engine.add(at, request());
            }
        }
    }
    engine.stats()
}

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
    let stats = ungated(captured_spec(), 16, 1500, 1500);
    assert!(stats.preemptions.abs_diff(14) <= 2, "{stats:?}");
    assert_within("steps", stats.steps, 7819, 0.03);
    assert_eq!(stats.generated, Tokens::new(24_000));
    assert_eq!(stats.prompt, Tokens::new(24_000));
    assert_eq!(stats.used, Blocks::ZERO);
}

#[test]
fn load_a_two_at_a_time_never_preempts_as_the_real_engine_did() {
    let stats = gated(captured_spec(), 16, 2, 1500, 1500);
    assert_eq!(stats.preemptions, 0);
    assert_within("steps", stats.steps, 12_008, 0.03);
}

#[test]
fn load_b_ungated_preempts_as_the_real_engine_did() {
    let stats = ungated(captured_spec(), 32, 200, 1500);
    assert_within("preemptions", stats.preemptions, 75, 0.15);
    assert_within("steps", stats.steps, 6219, 0.03);
}

#[test]
fn load_b_four_at_a_time_never_preempts_as_the_real_engine_did() {
    let stats = gated(captured_spec(), 32, 4, 200, 1500);
    assert_eq!(stats.preemptions, 0);
    assert_within("steps", stats.steps, 12_023, 0.03);
}

#[test]
fn a_watermark_saves_the_preemptions_it_saved_in_the_real_engine() {
    let spec = EngineSpec {
        watermark: 0.2,
        ..captured_spec()
    };
    let a = ungated(spec.clone(), 16, 1500, 1500);
    assert!(a.preemptions.abs_diff(2) <= 2, "{a:?}");
    assert_within("steps", a.steps, 8454, 0.03);
    let b = ungated(spec, 32, 200, 1500);
    assert_within("preemptions", b.preemptions, 37, 0.15);
    assert_within("steps", b.steps, 6822, 0.10);
}

mod calibration;
mod rules;
