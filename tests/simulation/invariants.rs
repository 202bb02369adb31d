//! The promises, as checks on a world at rest between two events.

use tidegate::core::admission::{Decision, PoolPolicy};
use tidegate::core::backend::Tier;
use tidegate::core::stats::PoolState;
use tidegate::core::units::Blocks;

use crate::history::Kind;
use crate::world::World;

pub(crate) fn check(world: &mut World, policy: &PoolPolicy, kind: Kind) {
    let state = world.pool.state(world.now);
    ledger_equals_sum_of_leases(world, &state, kind);
    if kind == Kind::Strict {
        in_flight_within_budget(&state);
        engine_never_preempts(world);
    }
    no_waiter_outlives_its_deadline(world);
    queue_stays_within_bounds(world, &state, policy);
    conservation(world, &state);
    fits_means_not_waiting(world, kind);
}

/// What the world knows it was granted is what the books say is held.
fn ledger_equals_sum_of_leases(world: &World, state: &PoolState, kind: Kind) {
    assert!(
        world.pool.books_are_right(),
        "held differs from the sum of the leases"
    );
    for backend in &state.backends {
        let here = world
            .flights
            .values()
            .filter(|flight| flight.grant.backend == backend.id);
        let (leases, granted) = here.fold((0, Blocks::ZERO), |(leases, blocks), flight| {
            (leases + 1, blocks + flight.grant.blocks)
        });
        assert_eq!(backend.leases, leases, "leases of {:?}", backend.id);
        match kind {
            Kind::Strict => assert_eq!(backend.held, granted, "blocks of {:?}", backend.id),
            // Booked growth only adds to what was granted.
            Kind::Forecast | Kind::KnownLengths => {
                assert!(backend.held >= granted, "blocks of {:?}", backend.id)
            }
        }
    }
}

/// Strict: capacity changes only with a restart, and a restart has new books.
fn in_flight_within_budget(state: &PoolState) {
    for backend in &state.backends {
        let capacity = backend
            .capacity
            .map_or(Blocks::ZERO, |capacity| capacity.blocks);
        assert!(
            backend.held <= capacity,
            "{:?} holds {} of {capacity}",
            backend.id,
            backend.held
        );
    }
}

fn engine_never_preempts(world: &World) {
    assert_eq!(world.preemptions(), 0, "an engine preempted");
}

fn no_waiter_outlives_its_deadline(world: &World) {
    let due = world.pool.poll_timeout(world.now);
    for (ticket, job) in &world.waiting {
        let deadline = job.demand.deadline;
        let handled = deadline > world.now || due.is_some_and(|due| due <= world.now);
        assert!(handled, "{ticket:?} should have been answered");
    }
}

fn queue_stays_within_bounds(world: &World, state: &PoolState, policy: &PoolPolicy) {
    assert_eq!(state.queue.requests as usize, world.waiting.len());
    assert!(state.queue.requests <= policy.queue.max_requests);
    assert!(state.queue.tokens <= policy.queue.max_tokens);
}

/// Received = served + refused + expired + left, by two independent counts.
fn conservation(world: &World, state: &PoolState) {
    let (seen, told) = (world.outcome, state.totals);
    assert_eq!(
        [
            seen.received,
            seen.admitted,
            seen.refused,
            seen.expired,
            seen.left
        ],
        [
            told.received,
            told.admitted,
            told.refused,
            told.expired,
            told.left
        ],
    );
    assert_eq!(
        [seen.finished, seen.failed, seen.cancelled],
        [told.finished, told.failed, told.cancelled]
    );
    let waiting = world.waiting.len() as u64;
    assert_eq!(
        seen.received,
        seen.admitted + waiting + seen.refused + seen.expired + seen.left
    );
    let in_flight = world.flights.len() as u64;
    assert_eq!(
        seen.admitted,
        in_flight + seen.finished + seen.failed + seen.cancelled
    );
}

/// A waiter that passes every gate of its policy is not left waiting. Growth
/// makes room token by token; the pool may look at that a little later.
fn fits_means_not_waiting(world: &mut World, kind: Kind) {
    if kind != Kind::Strict && world.pool.poll_timeout(world.now).is_some() {
        let mut out = Vec::new();
        world.pool.handle_timeout(world.now, &mut out);
        world.apply(out);
    }
    if world
        .pool
        .poll_timeout(world.now)
        .is_some_and(|due| due <= world.now)
    {
        return;
    }
    for (ticket, job) in &world.waiting {
        let decision = world.pool.decide(world.now, &job.demand);
        // Whether the slow tier is the faster one changes with the clock alone.
        if matches!(decision, Decision::Admit(place) if place.tier == Tier::Offload) {
            continue;
        }
        assert!(
            !matches!(decision, Decision::Admit(_)),
            "{ticket:?} fits and is left waiting: {decision:?}"
        );
    }
}

pub(crate) fn all_zero_when_idle(world: &World) {
    let state = world.pool.state(world.now);
    assert!(state.is_idle(), "{state:?}");
    for place in &world.places {
        let used = place
            .engine
            .as_ref()
            .map_or(Blocks::ZERO, |engine| engine.stats().used);
        assert_eq!(used, Blocks::ZERO, "an engine still holds blocks");
    }
}
