//! What is told of a request is what then happens, and telling it changes nothing.

use super::*;
use crate::core::demand::Progress;
use crate::core::dispatch::DispatchPolicy;
use crate::core::gates::{Barrier, Choice};
use crate::core::stats::Hold;

/// A row of numbers that looks random (SplitMix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % sides
    }

    pub(super) fn one_in(&mut self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let sides = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.below(sides)).unwrap()]
    }
}

/// A pool of up to five backends of any tier and up to four tenants, as they come.
pub(super) fn any_pool(dice: &mut Dice) -> Admission {
    let forecast = Reservation::Forecast(ForecastPolicy {
        open_output: Tokens::new(64),
        ..ForecastPolicy::default()
    });
    let mut rules = policy(dice.pick(&[Reservation::Strict, forecast]));
    rules.queue.unserved = dice.pick(&[Unserved::Refuse, Unserved::Wait]);
    rules.queue.max_requests = dice.pick(&[3, 1000]);
    rules.tiers.long_share = dice.pick(&[0.25, 1.0]);
    rules.dispatch = dice.pick(&[DispatchPolicy::EAGER, DispatchPolicy::default()]);
    let mut pool = Admission::new(rules);
    let mut out = Vec::new();
    for slot in 0..u32::try_from(1 + dice.below(5)).unwrap() {
        let blocks = 20 + dice.below(400);
        let seats = dice.one_in(3).then_some(4);
        let known = Capacity {
            max_num_seqs: seats,
            ..capacity(blocks)
        };
        let facts = BackendFacts {
            slot,
            tier: dice.pick(&[Tier::Standard, Tier::Standard, Tier::Large, Tier::Offload]),
            serves: vec![ServedId(0)],
            capacity: (!dice.one_in(12)).then_some(known),
            health: dice.pick(&[Health::Up, Health::Up, Health::Degraded, Health::Down]),
        };
        pool.add_backend(at(0.0), facts, &mut out);
    }
    for tenant in 0..4 {
        let rules = TenantPolicy {
            weight: 1 + tenant,
            max_in_flight: (tenant == 1).then_some(Tokens::new(2000)),
            in_flight_share: if tenant == 2 { 0.5 } else { 0.0 },
            max_waiting: (tenant == 3).then_some(1),
            ..TenantPolicy::default()
        };
        pool.set_tenant(TenantId(tenant), rules);
    }
    pool
}

pub(super) fn any_demand(dice: &mut Dice, nth: u64) -> Demand {
    let output = Tokens::new(1 + dice.below(800));
    let work = dice.pick(&[Work::Generate, Work::Generate, Work::Pool, Work::Aside]);
    Demand {
        tenant: TenantId(u32::try_from(dice.below(4)).unwrap()),
        arrival: Arrival(nth),
        samples: dice.pick(&[1, 1, 1, 3]),
        output: match dice.below(3) {
            0 => OutputLimit::Open { at_most: None },
            _ if work != Work::Generate => OutputLimit::Open { at_most: None },
            1 => OutputLimit::Open {
                at_most: Some(output),
            },
            _ => OutputLimit::Asked(output),
        },
        work,
        progress: dice.pick(&[Progress::Streamed, Progress::Unseen]),
        tiers: dice.pick(&[TierSet::ALL, TierSet::ALL.without(Tier::Large)]),
        offload: dice.pick(&[
            OffloadRule::Never,
            OffloadRule::WhenOnly,
            OffloadRule::WhenFaster,
        ]),
        length: dice.pick(&[Length::ByFootprint, Length::ByFootprint, Length::Long]),
        ..demand(1 + dice.below(3000), 1)
    }
}

/// What happened must be what was told.
fn is_true(told: &Explanation, verdict: &Verdict) {
    let now = |view: &&View| matches!(view.room, Room::Now(_));
    match verdict {
        Verdict::Admit(grant) => {
            let Decision::Admit(place) = told.decision else {
                panic!("{told:?}, then {grant:?}")
            };
            assert_eq!(
                (place.backend, place.tier, place.blocks, place.choice),
                (grant.backend, grant.tier, grant.blocks, grant.choice)
            );
            assert_eq!((told.hold, told.home), (None, Some(grant.home)));
            let view = told.views.iter().find(|view| view.id == grant.backend);
            assert_eq!(view.unwrap().room, Room::Now(grant.blocks));
        }
        Verdict::Wait(_) => {
            let Decision::Wait {
                home,
                output,
                predicted,
                hold,
                ..
            } = told.decision
            else {
                panic!("{told:?}, then a ticket")
            };
            assert_eq!(told.home.unwrap_or(STANDARD), home);
            assert_eq!((told.output, told.wait), (output, predicted));
            assert_eq!(told.hold, Some(hold));
            if matches!(hold, Hold::Memory | Hold::Prefill | Hold::NoBackend) {
                assert_eq!(told.views.iter().find(now), None);
            }
        }
        Verdict::Reject(reject) => {
            assert_eq!(told.decision, Decision::Reject(*reject));
            let never = |view: &View| matches!(view.room, Room::Never(_));
            if let Reject::ContextTooLong { .. } | Reject::TooManySequences { .. } = reject {
                assert!(told.views.iter().all(never), "{told:?}");
            }
        }
    }
}

/// Lets a lease or two end, and whoever waits in.
pub(super) fn go_on(pool: &mut Admission, dice: &mut Dice, (now, live): (Time, &mut Vec<Grant>)) {
    let mut out = Vec::new();
    while live.len() > 2 && dice.one_in(3) {
        let index = usize::try_from(dice.below(2)).unwrap();
        let end = dice.pick(&[
            End::Cancelled,
            End::Finished {
                prompt: Tokens::new(9),
                generated: Tokens::new(40),
            },
        ]);
        pool.release(now, live.remove(index).lease, end, &mut out);
    }
    while let Some(effect) = out.pop() {
        match effect {
            Effect::Grant { grant, .. } => live.push(grant),
            Effect::Again if !dice.one_in(4) => pool.handle_timeout(now, &mut out),
            Effect::Again | Effect::Refuse { .. } => {}
        }
    }
}

/// What came up in many worlds.
#[derive(Default)]
struct Seen {
    admitted: u32,
    waited: u32,
    refused: u32,
    choices: Vec<Choice>,
    holds: Vec<Hold>,
    barriers: Vec<Barrier>,
}

/// Twenty requests to a pool: each is told, then submitted, and must be as told.
fn one_world(world: u64, seen: &mut Seen) {
    let dice = &mut Dice(world);
    let mut pool = any_pool(dice);
    let mut live = Vec::new();
    for nth in 0..20_u32 {
        let now = at(f64::from(nth) / 10.0);
        let demand = any_demand(dice, u64::from(nth));
        let before = format!("{pool:?}");
        let told = pool.explain(now, &demand);
        assert_eq!(format!("{pool:?}"), before, "explaining changed something");
        let verdict = submit(&mut pool, f64::from(nth) / 10.0, demand);
        is_true(&told, &verdict);
        for view in &told.views {
            if let Room::Later { barrier, .. } | Room::Never(barrier) = view.room {
                seen.barriers.push(barrier);
            }
        }
        match verdict {
            Verdict::Admit(grant) => {
                seen.admitted += 1;
                seen.choices.push(grant.choice);
                live.push(grant);
            }
            Verdict::Wait(_) => {
                seen.waited += 1;
                seen.holds.extend(told.hold);
            }
            Verdict::Reject(_) => seen.refused += 1,
        }
        go_on(&mut pool, dice, (now, &mut live));
    }
}

#[test]
fn what_is_told_of_a_thousand_requests_is_what_happens_to_them() {
    let mut seen = Seen::default();
    for world in 0..50 {
        one_world(world, &mut seen);
    }
    let counts = [seen.admitted, seen.waited, seen.refused];
    assert_eq!(counts.iter().sum::<u32>(), 1000);
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    for choice in [Choice::Only, Choice::Best, Choice::Next] {
        assert!(seen.choices.contains(&choice), "{choice:?} never came up");
    }
    for hold in [
        Hold::Turn,
        Hold::TenantLimit,
        Hold::Memory,
        Hold::Prefill,
        Hold::NoBackend,
    ] {
        assert!(seen.holds.contains(&hold), "{hold:?} never came up");
    }
    for barrier in [
        Barrier::Offload,
        Barrier::TierForbidden,
        Barrier::CapacityUnknown,
        Barrier::Size,
        Barrier::Health,
        Barrier::TierClosed,
        Barrier::Prefill,
        Barrier::Seats,
        Barrier::Memory,
    ] {
        assert!(
            seen.barriers.contains(&barrier),
            "{barrier:?} never came up"
        );
    }
}

#[test]
fn the_missing_blocks_are_those_that_would_let_it_in() {
    let mut pool = strict(&[(STANDARD, 100)]);
    admit(&mut pool, 0.0, demand(16 * 55 + 1, 80));
    let told = pool.explain(at(1.0), &demand(16 * 45 + 1, 80));
    let view = told.views[0];
    assert_eq!((view.all.get(), view.free.get()), (100, 40));
    assert_eq!((view.prompt.get(), view.whole.get()), (46, 50));
    let Room::Later {
        barrier, missing, ..
    } = view.room
    else {
        panic!("{view:?}")
    };
    assert_eq!((barrier, missing), (Barrier::Memory, Some(Blocks::new(10))));
    assert_eq!(told.hold, Some(Hold::Memory));
    // Ten blocks less, and it fits.
    let told = pool.explain(at(1.0), &demand(16 * 35 + 1, 80));
    assert_eq!(told.views[0].room, Room::Now(Blocks::new(40)));
    assert_eq!(told.tokens, Tokens::new(16 * 35 + 81));
}

#[test]
fn a_tier_that_the_configuration_keeps_closed_is_closed_for_good() {
    let told = |rule, demand| {
        let mut rules = policy(Reservation::Strict);
        rules.tiers.long_on_standard = rule;
        rules.tiers.long_share = 0.25;
        let (pool, _) = pool(rules, &[(STANDARD, 100), (Tier::Large, 200)]);
        let told = pool.explain(at(0.0), &demand);
        (told.home, told.views[0].room)
    };
    // A quarter of what standard holds, and standard could hold it.
    let long = || demand(400, 1);
    let never = told(LongOnStandard::Never, long());
    let closed = Room::Never(Barrier::TierClosed);
    assert_eq!(never, (Some(Tier::Large), closed));
    let (home, room) = told(LongOnStandard::WhenNothingLarger, long());
    assert_eq!(home, Some(Tier::Large));
    let later = matches!(
        room,
        Room::Later {
            barrier: Barrier::TierClosed,
            ..
        }
    );
    assert!(later, "{room:?}");
}

#[test]
fn what_a_larger_tier_keeps_for_its_own_is_missing_too() {
    let mut pool = strict(&[(STANDARD, 20), (Tier::Large, 100)]);
    admit(&mut pool, 0.0, demand(240, 80));
    // 15 of 100 are kept: of 85, this one leaves five.
    let lent = admit(&mut pool, 0.0, demand(240, 80));
    assert_eq!((lent.tier, lent.home), (Tier::Large, STANDARD));
    for _ in 0..3 {
        admit(&mut pool, 0.0, demand(240, 80));
    }
    let told = pool.explain(at(1.0), &demand(240, 80));
    let barriers: Vec<_> = told.views.iter().map(|view| view.room).collect();
    assert!(
        matches!(
            barriers[..],
            [
                Room::Later {
                    barrier: Barrier::Memory,
                    missing: Some(_),
                    ..
                },
                Room::Later {
                    barrier: Barrier::Reserve,
                    missing: Some(_),
                    ..
                }
            ]
        ),
        "{barriers:?}"
    );
}
