//! Poll-level tests of the door: pending, act, woken, ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_test::{assert_pending, assert_ready, task};

use super::{Clock, Gate, Submission, Ticket};
use crate::core::backend::Tier;
use crate::core::demand::Demand;
use crate::core::fixtures::{demand, policy, pool};
use crate::core::placement::Reservation;
use crate::core::reject::Reject;
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};
use crate::gate::Lease;

fn gate(blocks: u64) -> Gate {
    let (admission, _) = pool(policy(Reservation::Strict), &[(Tier::Standard, blocks)]);
    Gate::new(admission, Clock::start())
}

fn admitted(gate: &Gate, demand: Demand) -> Lease {
    match gate.submit(demand) {
        Submission::Admitted(lease) => lease,
        _ => panic!("expected a lease"),
    }
}

fn waiting(gate: &Gate, demand: Demand) -> Ticket {
    match gate.submit(demand) {
        Submission::Waiting(ticket) => ticket,
        _ => panic!("expected a ticket"),
    }
}

fn held(gate: &Gate) -> Blocks {
    gate.state()
        .backends
        .iter()
        .map(|backend| backend.held)
        .sum()
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_first_in_line_with_a_ready_lease() {
    let gate = gate(10);
    let lease = admitted(&gate, demand(80, 81));
    let mut first = task::spawn(waiting(&gate, demand(80, 81)));
    let mut second = task::spawn(waiting(&gate, demand(80, 81)));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    lease.finish(Tokens::new(80), Tokens::new(81));
    assert!(first.is_woken() && !second.is_woken());
    let lease = assert_ready!(first.poll()).expect("granted");
    assert_eq!(
        (lease.grant().blocks, held(&gate)),
        (Blocks::new(10), Blocks::new(10))
    );
    assert_pending!(second.poll());
    drop(lease);
    drop(assert_ready!(second.poll()).expect("granted"));
    assert!(gate.state().is_idle());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_ticket_unblocks_the_next() {
    let gate = gate(10);
    let lease = admitted(&gate, demand(48, 81));
    let head = waiting(&gate, demand(80, 81));
    // Too large for the two blocks that are free, so it waits behind the head.
    let mut next = task::spawn(waiting(&gate, demand(32, 17)));
    assert_pending!(next.poll());
    drop(lease);
    // The head was granted into its channel; it leaves without looking.
    drop(head);
    assert_eq!(
        assert_ready!(next.poll()).expect("granted").grant().blocks,
        Blocks::new(3)
    );
    assert_eq!(held(&gate), Blocks::ZERO);
    assert!(gate.state().is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_answers_the_waiter_by_the_driver() {
    let gate = gate(10);
    let driver = tokio::spawn(gate.clone().drive());
    let lease = admitted(&gate, demand(80, 81));
    let deadline = gate.clock().now() + Duration::from_secs(30);
    let ticket = waiting(
        &gate,
        Demand {
            deadline,
            ..demand(80, 81)
        },
    );
    match ticket.await {
        Err(Reject::QueueTimeout { waited, .. }) => assert_eq!(waited.as_secs(), 30),
        _ => panic!("expected a timeout"),
    }
    assert_eq!(gate.state().totals.expired, 1);
    drop(lease);
    driver.abort();
    assert!(gate.state().is_idle());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_deadline_than_the_one_slept_for_is_not_missed() {
    let gate = gate(10);
    let driver = tokio::spawn(gate.clone().drive());
    let _lease = admitted(&gate, demand(80, 81));
    let by = |seconds| Demand {
        deadline: gate.clock().now() + Duration::from_secs(seconds),
        ..demand(80, 81)
    };
    let late = tokio::spawn(waiting(&gate, by(60)));
    tokio::task::yield_now().await;
    let early = waiting(&gate, by(10));
    assert!(early.await.is_err());
    assert_eq!(gate.clock().now() - Time::ZERO, Duration::from_secs(10));
    assert!(late.await.expect("not aborted").is_err());
    driver.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_thousand_tasks_that_leave_at_random_leak_nothing() {
    let gate = gate(100);
    let driver = tokio::spawn(gate.clone().drive());
    let tasks = (0..4000_u64).map(|seed| {
        let gate = gate.clone();
        tokio::spawn(async move {
            let mut lease = match gate.submit(demand(seed % 700 + 1, seed % 300 + 1)) {
                Submission::Admitted(lease) => lease,
                Submission::Rejected(_) => return,
                Submission::Waiting(ticket) if seed % 3 == 0 => return drop(ticket),
                Submission::Waiting(ticket) => match ticket.await {
                    Ok(lease) => lease,
                    Err(_) => return,
                },
            };
            assert!(held(&gate) <= Blocks::new(100));
            for generated in 1..seed % 40 {
                lease.on_generated(Tokens::new(generated));
            }
            tokio::task::yield_now().await;
            if seed % 2 == 0 {
                lease.finish(Tokens::new(1), Tokens::new(1));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no task panics");
    }
    driver.abort();
    let state = gate.state();
    assert!(state.is_idle(), "{state:?}");
    let totals = state.totals;
    assert_eq!(
        totals.received,
        totals.admitted + totals.refused + totals.expired + totals.left
    );
    assert_eq!(
        totals.admitted,
        totals.finished + totals.failed + totals.cancelled
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_five_hundred_that_ask_at_once_no_more_than_fit_ever_hold() {
    let full = std::env::var_os("TIDEGATE_FULL").is_some();
    for _ in 0..if full { 500 } else { 50 } {
        // 630 of 640 blocks: ten times 1,000 tokens fit and eleven do not.
        let gate = gate(640);
        let running = Arc::new(AtomicU32::new(0));
        let tasks = (0..500_u64).map(|at| {
            let (gate, running) = (gate.clone(), Arc::clone(&running));
            tokio::spawn(async move {
                let lease = match gate.submit(demand(600 + at % 7, 400 - at % 7)) {
                    Submission::Admitted(lease) => lease,
                    Submission::Waiting(ticket) => ticket.await.expect("no deadline"),
                    Submission::Rejected(reject) => panic!("{reject}"),
                };
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(now <= 10, "{now} run at one time");
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                drop(lease);
            })
        });
        let driver = tokio::spawn(gate.clone().drive());
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task panics");
        }
        driver.abort();
        let state = gate.state();
        assert!(state.is_idle(), "{state:?}");
        let totals = state.totals;
        assert_eq!((totals.received, totals.admitted), (500, 500));
        assert_eq!(totals.overdrawn, 0);
    }
}

/// A waiter's deadline and the end of what it waits for fall on one instant.
#[tokio::test(start_paused = true)]
async fn a_deadline_at_the_very_moment_of_a_release_has_one_outcome() {
    // A gate that has seen many such waits refuses what cannot be in time.
    for _ in 0..100 {
        deadlines_meet_releases(20).await;
    }
}

async fn deadlines_meet_releases(rounds: u64) {
    let gate = gate(10);
    let driver = tokio::spawn(gate.clone().drive());
    for round in 0..rounds {
        let lease = admitted(&gate, demand(80, 81));
        let deadline = gate.clock().now() + Duration::from_secs(5);
        let late = tokio::spawn(waiting(
            &gate,
            Demand {
                deadline,
                ..demand(80, 81)
            },
        ));
        let next = tokio::spawn(waiting(&gate, demand(80, 81)));
        let released = Duration::from_millis(4999 + round % 3);
        tokio::time::sleep(released).await;
        drop(lease);
        let outcome = late.await.expect("no task panics");
        assert_eq!(outcome.is_ok(), round % 3 == 0, "round {round}");
        drop(outcome);
        drop(next.await.expect("no task panics").expect("granted"));
        assert!(gate.state().is_idle());
    }
    driver.abort();
    let totals = gate.state().totals;
    assert_eq!(totals.received, 3 * rounds);
    assert_eq!(totals.received, totals.admitted + totals.expired);
}

#[tokio::test(start_paused = true)]
async fn an_output_claimed_beyond_all_numbers_is_survived() {
    let gate = gate(10);
    for claim in [u64::MAX - 1, u64::MAX] {
        let mut lease = admitted(&gate, demand(16, 17));
        lease.on_generated(Tokens::new(claim));
        lease.on_generated(Tokens::MAX);
        lease.finish(Tokens::MAX, Tokens::MAX);
    }
    assert!(gate.state().is_idle());
}
