use std::time::Duration;

use proptest::prelude::*;

use super::order::SLACK;
use super::*;
use crate::core::demand::Arrival;
use crate::core::fixtures::at;
use crate::core::queue::TicketId;

const ANN: TenantId = TenantId(0);
const BOB: TenantId = TenantId(1);

fn place(number: u64) -> Place {
    Place {
        key: Time::ZERO,
        ticket: TicketId {
            arrival: Arrival(number),
            number,
        },
        mark: 0,
    }
}

fn order(flows: &Flows) -> Vec<u64> {
    flows
        .in_order(None)
        .map(|turn| turn.ticket().number)
        .collect()
}

fn charge(tokens: u64, millis: u64) -> Charge {
    Charge {
        tokens: Tokens::new(tokens),
        cost: Cost::of(Duration::from_millis(millis)),
    }
}

fn enqueue(flows: &mut Flows, tenant: TenantId, number: u64) {
    flows.enqueue(Time::ZERO, tenant, place(number), charge(1, 1));
}

fn policy(weight: u32, priority: i32) -> TenantPolicy {
    TenantPolicy {
        weight,
        priority,
        ..TenantPolicy::default()
    }
}

/// Who is first, granted at that cost and still in line.
fn grant(flows: &mut Flows, millis: u64) -> TenantId {
    let next = flows.in_order(None).next().expect("somebody waits");
    flows.on_admitted(next.tenant, charge(1, millis));
    next.tenant
}

#[test]
fn the_tenant_served_less_comes_first_and_its_own_requests_stay_in_order() {
    let mut flows = Flows::default();
    flows.on_admitted(ANN, charge(100, 5000));
    enqueue(&mut flows, ANN, 1);
    enqueue(&mut flows, ANN, 2);
    enqueue(&mut flows, BOB, 3);
    // Bob comes from idling: lifted to the slowest backlogged clock, Ann's.
    assert_eq!(order(&flows), [1, 2, 3]);
    flows.on_admitted(ANN, charge(1, 1001));
    assert_eq!(order(&flows), [3, 1, 2]);
}

#[test]
fn within_a_second_of_the_pool_the_requests_decide_and_not_the_tenants() {
    let mut flows = Flows::default();
    for number in 0..6 {
        enqueue(&mut flows, if number % 2 == 0 { ANN } else { BOB }, number);
    }
    flows.on_admitted(ANN, charge(1, 1000));
    assert_eq!(order(&flows), [0, 1, 2, 3, 4, 5]);
    flows.on_admitted(ANN, charge(1, 1));
    assert_eq!(order(&flows), [1, 3, 5, 0, 2, 4]);
}

#[test]
fn a_weight_of_three_gets_three_times_the_service() {
    let mut flows = Flows::default();
    flows.set_policy(BOB, policy(3, 0));
    enqueue(&mut flows, ANN, 1);
    enqueue(&mut flows, BOB, 2);
    let mut served = [0_u64; 2];
    for _ in 0..400 {
        served[grant(&mut flows, 2000).0 as usize] += 1;
    }
    assert_eq!(served, [101, 299]);
}

#[test]
fn a_band_behind_gets_a_twentieth_while_it_waits_and_no_more() {
    let mut flows = Flows::default();
    flows.set_policy(BOB, policy(1, 7));
    enqueue(&mut flows, BOB, 1);
    enqueue(&mut flows, ANN, 2);
    let mut served = [0_u64; 2];
    for _ in 0..1000 {
        served[grant(&mut flows, 100).0 as usize] += 1;
    }
    assert_eq!(served, [950, 50]);
}

#[test]
fn a_band_behind_does_not_save_up_what_it_did_not_ask_for() {
    let mut flows = Flows::default();
    flows.set_policy(BOB, policy(1, 7));
    enqueue(&mut flows, ANN, 1);
    for _ in 0..1000 {
        grant(&mut flows, 100);
    }
    enqueue(&mut flows, BOB, 2);
    assert_eq!(grant(&mut flows, 100), ANN);
}

#[test]
fn what_was_used_while_nobody_waited_is_paid_for_by_that_time() {
    let mut flows = Flows::default();
    // Ann has the pool to herself for ten seconds.
    flows.on_admitted(ANN, charge(1, 10_000));
    flows.enqueue(at(10.0), BOB, place(1), charge(1, 1));
    flows.enqueue(at(10.0), ANN, place(2), charge(1, 1));
    assert_eq!(
        flows.get(ANN).map(|flow| flow.clock),
        flows.get(BOB).map(|flow| flow.clock)
    );
    // In one second she could not have.
    let mut flows = Flows::default();
    flows.on_admitted(ANN, charge(1, 10_000));
    flows.enqueue(at(1.0), ANN, place(1), charge(1, 1));
    flows.enqueue(at(1.0), BOB, place(2), charge(1, 1));
    assert_eq!(grant(&mut flows, 1), ANN, "she was there first");
}

#[test]
fn the_charge_is_corrected_to_what_was_served() {
    let mut flows = Flows::default();
    enqueue(&mut flows, ANN, 1);
    enqueue(&mut flows, BOB, 2);
    flows.on_admitted(ANN, charge(1010, 20_000));
    flows.on_admitted(BOB, charge(110, 2000));
    assert_eq!(order(&flows), [2, 1]);
    flows.on_ended(ANN, charge(1010, 20_000), charge(15, 500));
    assert_eq!(order(&flows), [1, 2]);
    assert_eq!(
        flows.get(ANN).map(|flow| (flow.in_flight, flow.served)),
        Some((Tokens::ZERO, Tokens::new(15)))
    );
}

#[test]
fn the_order_can_be_taken_up_where_it_was_left() {
    const CID: TenantId = TenantId(2);
    let mut flows = Flows::default();
    flows.on_admitted(CID, charge(1, 5000));
    for (number, tenant) in (0..9).zip([0, 1, 2].into_iter().cycle()) {
        enqueue(&mut flows, TenantId(tenant), number);
    }
    flows.on_admitted(CID, charge(1, 5000));
    flows.set_policy(TenantId(9), policy(1, 1));
    enqueue(&mut flows, TenantId(9), 9);
    let all: Vec<Turn> = flows.in_order(None).collect();
    assert_eq!(order(&flows), [0, 1, 3, 4, 6, 7, 2, 5, 8, 9]);
    for from in 0..all.len() {
        let rest: Vec<Turn> = flows.in_order(Some(all[from])).collect();
        assert_eq!(rest, all[from..], "from {from}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Between two tenants that wait all the time, what each was served by weight
    /// differs by no more than the slack, one request and what was expected of those
    /// in flight.
    #[test]
    fn the_clocks_of_two_who_wait_stay_within_the_slack_and_one_request(
        weights in prop::collection::vec(1_u32..8, 2..6),
        costs in prop::collection::vec((1_u64..3000, 1_u64..3000, 0_u8..8), 20..120),
    ) {
        let mut flows = Flows::default();
        for (&weight, number) in weights.iter().zip(0_u32..) {
            flows.set_policy(TenantId(number), policy(weight, 0));
            flows.enqueue(Time::ZERO, TenantId(number), place(u64::from(number)), charge(1, 1));
        }
        let mut running: Vec<(TenantId, u64, u64)> = Vec::new();
        let mut most_in_flight = 0;
        for (expected, used, ends) in costs {
            let next = flows.in_order(None).next().expect("all wait").tenant;
            flows.on_admitted(next, charge(1, expected));
            running.push((next, expected, used));
            most_in_flight = most_in_flight.max(running.iter().map(|&(_, expected, _)| expected).sum());
            for _ in 0..ends.min(u8::try_from(running.len()).unwrap_or(0) / 4) {
                let (tenant, expected, used) = running.swap_remove(0);
                flows.on_ended(tenant, charge(1, expected), charge(1, used.min(expected)));
            }
            let clocks = (0..weights.len()).map(|number| {
                let tenant = TenantId(u32::try_from(number).expect("few"));
                flows.get(tenant).expect("enqueued").clock
            });
            let (slowest, fastest) = (clocks.clone().min(), clocks.max());
            let (slowest, fastest) = (slowest.expect("two"), fastest.expect("two"));
            // Giving back moves a clock down, at most by what was in flight.
            let bound = slowest.after(SLACK).after(charge(1, 3000 + most_in_flight).cost);
            prop_assert!(fastest <= bound, "{fastest:?} > {bound:?}");
        }
    }
}
