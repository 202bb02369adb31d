//! The scheduler's rules, one each, with numbers worked out by hand.

use super::*;
use crate::core::prefix::PrefixHash;

/// 10 usable blocks of 4 tokens, 16 tokens a step.
fn small() -> EngineSpec {
    EngineSpec {
        block_size: BlockSize::new(4).unwrap(),
        blocks: Blocks::new(11),
        max_num_batched_tokens: Tokens::new(16),
        scheduling: Scheduling::Sync,
        step: StepTime::constant(Duration::from_millis(1)),
        ..EngineSpec::with_pool(Tokens::new(40))
    }
}

fn request(prompt: u64, output: u64) -> SimRequest {
    SimRequest::new(Tokens::new(prompt), Tokens::new(output))
}

fn shared(prompt: u64, output: u64) -> SimRequest {
    let hashes: Vec<PrefixHash> = (0..prompt / 4).map(PrefixHash).collect();
    SimRequest {
        prefix: PrefixChain::new(hashes),
        ..request(prompt, output)
    }
}

/// Runs `steps` steps and returns what they brought.
fn steps(engine: &mut Engine, steps: u32) -> Vec<SimEvent> {
    let mut events = Vec::new();
    for _ in 0..steps {
        if let Some(at) = engine.next_step() {
            engine.step(at, &mut events);
        }
    }
    events
}

fn levels(engine: &Engine) -> (u32, u32, u64) {
    let stats = engine.stats();
    (stats.running, stats.waiting, stats.used.get())
}

fn ended(events: &[SimEvent]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event {
            SimEvent::Ended { request, .. } => Some(request.0),
            _ => None,
        })
        .collect()
}

#[test]
fn the_null_block_is_not_usable() {
    assert_eq!(Engine::new(small()).stats().usable, Blocks::new(10));
    assert_eq!(small().usable(), Blocks::new(10));
}

#[test]
fn only_the_chunk_is_allocated_though_the_whole_prompt_must_fit() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(30, 2));
    engine.add(Time::ZERO, request(12, 2));
    steps(&mut engine, 1);
    // 16 of 30 tokens take 4 blocks; the second prompt would need 3 of the 6 left, but the
    // step is full.
    assert_eq!(levels(&engine), (1, 1, 4));
    steps(&mut engine, 1);
    // The rest of the first takes the budget to 2: the second starts with 2 tokens of its 12,
    // though 8 + 3 blocks are more than 10: its 3 fit in the free ones of this instant.
    assert_eq!(levels(&engine), (1, 1, 8));
}

#[test]
fn the_head_of_the_line_is_not_passed() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(14, 20));
    engine.add(Time::ZERO, request(32, 1));
    engine.add(Time::ZERO, request(1, 1));
    steps(&mut engine, 2);
    // 32 tokens need 8 blocks, 6 are free; the one-token prompt behind them waits too.
    assert_eq!(levels(&engine), (1, 2, 4));
}

#[test]
fn no_more_sequences_run_than_allowed() {
    let mut engine = Engine::new(EngineSpec {
        max_num_seqs: 2,
        ..small()
    });
    for _ in 0..3 {
        engine.add(Time::ZERO, request(1, 5));
    }
    steps(&mut engine, 1);
    assert_eq!(levels(&engine), (2, 1, 2));
}

#[test]
fn k_tokens_of_output_take_one_slot_less_than_prompt_and_output() {
    // 8 + 33 tokens, but the last one is never computed: 40 slots are exactly 10 blocks.
    let spec = EngineSpec {
        max_model_len: Tokens::new(41),
        on_overflow: OnOverflow::Panic,
        ..small()
    };
    for scheduling in [Scheduling::Sync, Scheduling::Async] {
        let mut engine = Engine::new(EngineSpec {
            scheduling,
            ..spec.clone()
        });
        engine.add(Time::ZERO, request(8, 33));
        let events = drain(&mut engine);
        assert_eq!(ended(&events), [0]);
        assert_eq!(engine.stats().peak_used, Blocks::new(10), "{scheduling:?}");
        assert_eq!(engine.stats().generated, Tokens::new(33));
    }
}

#[test]
fn the_newest_is_preempted_and_recomputed_with_what_it_had() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(8, 16));
    engine.add(Time::ZERO, request(8, 16));
    let events = drain(&mut engine);
    let preempted: Vec<(u64, Time)> = events
        .iter()
        .filter_map(|event| match event {
            SimEvent::Preempted { request, at, .. } => Some((request.0, *at)),
            _ => None,
        })
        .collect();
    // Both hold 5 blocks with 20 slots after 13 tokens; the 14th needs a sixth.
    assert_eq!(preempted, [(1, Time::from_nanos(13_000_000))]);
    assert_eq!(ended(&events), [0, 1]);
    let stats = engine.stats();
    assert_eq!((stats.preemptions, stats.generated), (1, Tokens::new(32)));
    assert_eq!(stats.prompt, Tokens::new(16));
    assert_eq!(stats.used, Blocks::ZERO);
    // It had computed 20 tokens; while the other goes on for three tokens it takes one
    // of the freed blocks, so 4 of the 5 are found again.
    assert_eq!(stats.recomputed, Tokens::new(4));
}

#[test]
fn nothing_is_admitted_in_a_step_that_preempted() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(8, 16));
    engine.add(Time::ZERO, request(8, 16));
    steps(&mut engine, 13);
    engine.add(Time::from_nanos(12_500_000), request(1, 1));
    let events = steps(&mut engine, 1);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, SimEvent::Preempted { .. }))
    );
    // 5 blocks are free, the victim and the newcomer would fit, both wait.
    assert_eq!(levels(&engine), (1, 2, 6));
}

#[test]
fn a_request_that_can_never_fit_blocks_the_line_and_the_engine_rests() {
    let mut engine = Engine::new(EngineSpec {
        max_model_len: Tokens::new(100),
        ..small()
    });
    let first = engine.add(Time::ZERO, request(41, 1));
    let second = engine.add(Time::ZERO, request(1, 1));
    steps(&mut engine, 1);
    assert_eq!(engine.next_step(), None);
    engine.abort(Time::from_nanos(5), first);
    assert!(engine.is_live(second));
    assert_eq!(ended(&drain(&mut engine)), [1]);
}

#[test]
fn an_abort_frees_at_once() {
    let mut engine = Engine::new(small());
    let id = engine.add(Time::ZERO, request(8, 100));
    steps(&mut engine, 3);
    assert_eq!(levels(&engine), (1, 0, 3));
    engine.abort(Time::from_nanos(2_500_000), id);
    assert_eq!(levels(&engine), (0, 0, 0));
    assert_eq!(ended(&drain(&mut engine)), [0_u64; 0]);
    assert_eq!(engine.stats().aborted, 1);
}

#[test]
fn a_fully_cached_prompt_still_computes_its_last_block() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, shared(16, 1));
    drain(&mut engine);
    engine.add(Time::ZERO, shared(16, 1));
    let events = drain(&mut engine);
    assert!(matches!(events[0], SimEvent::Started { cached, .. } if cached == Tokens::new(12)));
    assert_eq!(engine.stats().prefix_hits, Tokens::new(12));
    assert_eq!(engine.stats().prefix_queries, Tokens::new(32));
}

#[test]
fn equal_prompts_in_one_step_share_their_blocks() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, shared(8, 4));
    engine.add(Time::ZERO, shared(8, 4));
    steps(&mut engine, 1);
    // The second hits the first block and computes the second one again.
    assert_eq!(levels(&engine), (2, 0, 3));
}

#[test]
fn samples_share_full_prompt_blocks_and_own_the_rest() {
    let mut engine = Engine::new(small());
    engine.add(
        Time::ZERO,
        SimRequest {
            samples: 3,
            ..request(10, 6)
        },
    );
    steps(&mut engine, 1);
    // Two shared blocks and a third one each.
    assert_eq!(levels(&engine), (3, 0, 5));
    let events = drain(&mut engine);
    assert_eq!(ended(&events), [0]);
    assert_eq!(engine.stats().generated, Tokens::new(18));
    // 15 slots each: a fourth block of their own each.
    assert_eq!(engine.stats().peak_used, Blocks::new(8));
}

#[test]
fn without_prefix_caching_every_sample_holds_its_own() {
    let mut engine = Engine::new(EngineSpec {
        prefix_caching: PrefixCaching::PerSequence,
        max_num_batched_tokens: Tokens::new(64),
        ..small()
    });
    engine.add(
        Time::ZERO,
        SimRequest {
            samples: 3,
            ..request(10, 6)
        },
    );
    steps(&mut engine, 1);
    assert_eq!(levels(&engine), (3, 0, 9));
    assert_eq!(engine.stats().prefix_queries, Tokens::ZERO);
}

#[test]
fn the_context_ends_a_sequence_for_its_length() {
    let mut engine = Engine::new(small());
    let open = SimRequest {
        max_tokens: None,
        ..request(30, 1000)
    };
    engine.add(Time::ZERO, open);
    let events = drain(&mut engine);
    assert!(events.iter().any(|event| matches!(
        event,
        SimEvent::Finished { reason: FinishReason::Length, generated, .. } if *generated == Tokens::new(10)
    )));
}

#[test]
fn a_sequence_stops_by_itself_and_one_step_later_when_planned_ahead() {
    let early = SimRequest {
        max_tokens: Some(Tokens::new(100)),
        ..request(4, 3)
    };
    for (scheduling, planned) in [(Scheduling::Sync, 3), (Scheduling::Async, 4)] {
        let mut engine = Engine::new(EngineSpec {
            scheduling,
            ..small()
        });
        engine.add(Time::ZERO, early.clone());
        let events = drain(&mut engine);
        assert!(events.iter().any(|event| matches!(
            event,
            SimEvent::Finished { reason: FinishReason::Stop, at, .. } if at.nanos() == 3_000_000
        )));
        assert_eq!(engine.stats().steps, planned, "{scheduling:?}");
    }
}

#[test]
fn events_of_a_sequence_come_in_order_and_on_time() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(20, 2));
    let kinds: Vec<(&str, u64)> = drain(&mut engine)
        .iter()
        .map(|event| match event {
            SimEvent::Started { at, .. } => ("started", at.nanos()),
            SimEvent::FirstToken { at, .. } => ("first", at.nanos()),
            SimEvent::Tokens { at, .. } => ("token", at.nanos()),
            SimEvent::Preempted { at, .. } => ("preempted", at.nanos()),
            SimEvent::Finished { at, .. } => ("finished", at.nanos()),
            SimEvent::Ended { at, .. } => ("ended", at.nanos()),
        })
        .collect();
    // 20 tokens take two steps of 16.
    let (two, three) = (2_000_000, 3_000_000);
    let expected = [
        ("started", 0),
        ("first", two),
        ("token", two),
        ("token", three),
        ("finished", three),
        ("ended", three),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn a_copy_goes_its_own_way() {
    let mut engine = Engine::new(small());
    engine.add(Time::ZERO, request(8, 16));
    steps(&mut engine, 3);
    let mut copy = engine.clone();
    let (one, other) = (drain(&mut engine), drain(&mut copy));
    assert_eq!(one, other);
    copy.add(Time::from_nanos(1), request(1, 1));
    assert_ne!(engine.stats(), copy.stats());
}

/// A token was on its way when its sequence was preempted, and the block it goes into was
/// not free when the sequence came back.
#[test]
fn who_is_preempted_with_a_token_on_its_way_comes_back_when_that_fits_too() {
    for (first, second) in (1..16).flat_map(|one| (1..16).map(move |other| (one, other))) {
        for (blocks, lookahead) in [(8, 0), (9, 0), (8, 1), (9, 3)] {
            let mut engine = Engine::new(EngineSpec {
                scheduling: Scheduling::Async,
                blocks: Blocks::new(blocks),
                lookahead: Tokens::new(lookahead),
                max_model_len: Tokens::new(28),
                ..small()
            });
            for prompt in [first, second, 7] {
                engine.add(Time::ZERO, request(prompt, 28 - prompt));
            }
            assert_eq!(ended(&drain(&mut engine)).len(), 3);
            assert_eq!(levels(&engine), (0, 0, 0));
        }
    }
}

#[test]
#[should_panic(expected = "the pool overflowed: request 1 sample 0 would be preempted")]
fn a_strict_engine_asserts_that_it_never_preempts() {
    let mut engine = Engine::new(EngineSpec {
        on_overflow: OnOverflow::Panic,
        ..small()
    });
    engine.add(Time::ZERO, request(8, 16));
    engine.add(Time::ZERO, request(8, 16));
    drain(&mut engine);
}

#[test]
#[should_panic(expected = "footprints of 12 blocks were declared for a pool of 10")]
fn a_strict_engine_asserts_that_footprints_fit() {
    let mut engine = Engine::new(EngineSpec {
        on_overflow: OnOverflow::Panic,
        ..small()
    });
    for _ in 0..2 {
        engine.add(
            Time::ZERO,
            SimRequest {
                declared: Blocks::new(6),
                ..request(8, 16)
            },
        );
    }
}
