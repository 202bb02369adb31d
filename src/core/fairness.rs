//! Whose turn it is: virtual time between tenants, charged in tokens.
//!
//! Each tenant has a clock that advances by the tokens it was served, divided
//! by its weight; the backlogged tenant with the slowest clock is next (the
//! virtual token counter of Sheng et al., OSDI 2024). A tenant that comes back
//! from idling is lifted to the slowest backlogged clock, so that idleness is
//! not saved up. The expected output is charged when a request is admitted and
//! corrected when it ends.

use std::collections::{BTreeMap, BTreeSet};

use super::demand::TenantId;
use super::queue::TicketId;
use super::units::Tokens;

/// Generated tokens cost this many prompt tokens: decoding a token takes about
/// twice the engine time of prefilling one (the weights of the same paper).
const OUTPUT_COST: u64 = 2;

/// Clock ticks per token at weight 1: keeps division by weights precise.
const TICKS: u128 = 1 << 16;

/// What a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Its share against other tenants while all have work waiting; at least 1.
    pub weight: u32,
    /// Tokens of KV it may hold at one time in this pool; `None` for no limit.
    pub max_in_flight: Option<Tokens>,
    /// Requests it may have waiting in this pool; `None` for no limit.
    pub max_waiting: Option<u32>,
}

/// A tenant's virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualTime(u128);

/// One tenant's line and account.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    pub(super) policy: TenantPolicy,
    pub(super) clock: VirtualTime,
    pub(super) waiting: BTreeSet<TicketId>,
    pub(super) waiting_tokens: Tokens,
    pub(super) in_flight: Tokens,
    pub(super) leases: u32,
    pub(super) served: Tokens,
    membership: Membership,
}

/// Whether a tenant is still one of the configuration's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Membership {
    #[default]
    Stays,
    /// What it has ends by the limits it had, and what still comes of it too: a
    /// request may be on its way here for as long as its body takes.
    Left,
}

/// All tenants of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<TenantId, Flow>,
    /// Tenants with something waiting, slowest clock first.
    backlogged: BTreeSet<(VirtualTime, TenantId)>,
}

// === impl TenantPolicy ===

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            weight: 1,
            max_in_flight: None,
            max_waiting: None,
        }
    }
}

// === impl Flow ===

impl Flow {
    /// Whether `more` tokens stay within the in-flight share.
    pub(super) fn may_hold(&self, more: Tokens) -> bool {
        self.policy
            .max_in_flight
            .is_none_or(|share| self.in_flight + more <= share)
    }
}

// === impl Flows ===

impl Flows {
    pub(super) fn set_policy(&mut self, tenant: TenantId, policy: TenantPolicy) {
        let weight = policy.weight.max(1);
        let flow = self.flows.entry(tenant).or_default();
        flow.policy = TenantPolicy { weight, ..policy };
        flow.membership = Membership::Stays;
    }

    /// The tenant is gone: what it has ends as if it were not. Its clock and its
    /// limits are kept for what comes late, and for when it comes back.
    pub(super) fn leave(&mut self, tenant: TenantId) {
        if let Some(flow) = self.flows.get_mut(&tenant) {
            flow.membership = Membership::Left;
        }
    }

    pub(super) fn get(&self, tenant: TenantId) -> Option<&Flow> {
        self.flows.get(&tenant)
    }

    /// Every tenant but those that left and have nothing here.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Flow)> {
        let shown = |flow: &Flow| {
            let idle = flow.leases == 0 && flow.waiting.is_empty();
            flow.membership == Membership::Stays || !idle
        };
        let flows = self.flows.iter().filter(move |(_, flow)| shown(flow));
        flows.map(|(&tenant, flow)| (tenant, flow))
    }

    /// Puts a ticket in its place in its tenant's line.
    pub(super) fn enqueue(&mut self, tenant: TenantId, ticket: TicketId, tokens: Tokens) {
        let slowest = self.backlogged.first().map(|&(clock, _)| clock);
        let flow = self.flows.entry(tenant).or_default();
        if flow.waiting.is_empty() {
            flow.clock = flow.clock.max(slowest.unwrap_or_default());
            self.backlogged.insert((flow.clock, tenant));
        }
        flow.waiting.insert(ticket);
        flow.waiting_tokens += tokens;
    }

    /// Takes a ticket out of its tenant's line.
    pub(super) fn dequeue(&mut self, tenant: TenantId, ticket: TicketId, tokens: Tokens) {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("a waiting tenant has a line");
        flow.waiting.remove(&ticket);
        flow.waiting_tokens -= tokens;
        if flow.waiting.is_empty() {
            self.backlogged.remove(&(flow.clock, tenant));
        }
    }

    /// The waiting tickets in the order they should be served, from `from` on.
    pub(super) fn in_order(&self, from: Option<Turn>) -> impl Iterator<Item = Turn> + '_ {
        let first = from.map_or((VirtualTime::default(), TenantId(0)), |turn| {
            (turn.clock, turn.tenant)
        });
        self.backlogged
            .range(first..)
            .flat_map(move |&(clock, tenant)| {
                let line = &self
                    .flows
                    .get(&tenant)
                    .expect("a backlogged tenant has a line")
                    .waiting;
                let start = match from {
                    Some(turn) if turn.tenant == tenant && turn.clock == clock => turn.ticket,
                    _ => TicketId::FIRST,
                };
                line.range(start..).map(move |&ticket| Turn {
                    clock,
                    tenant,
                    ticket,
                })
            })
    }

    /// A request was admitted: charges its prompt and expected output.
    pub(super) fn on_admitted(&mut self, tenant: TenantId, prompt: Tokens, output: Tokens) {
        let flow = self.flows.entry(tenant).or_default();
        flow.in_flight += prompt + output;
        flow.leases += 1;
        self.advance(tenant, i128::from(cost(prompt, output)));
    }

    /// It ended: frees its share and corrects the charge to what was served.
    pub(super) fn on_ended(&mut self, tenant: TenantId, charge: Charge) {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("a tenant with a lease has a line");
        flow.in_flight -= charge.prompt + charge.expected;
        flow.leases -= 1;
        let served = charge.prompt + charge.generated;
        flow.served = flow.served.saturating_add(served);
        let before = i128::from(cost(charge.prompt, charge.expected));
        let after = i128::from(cost(charge.prompt, charge.generated));
        self.advance(tenant, after - before);
    }

    fn advance(&mut self, tenant: TenantId, cost: i128) {
        let flow = self
            .flows
            .get_mut(&tenant)
            .expect("charged tenants have a line");
        let before = flow.clock;
        let ticks = TICKS * cost.unsigned_abs() / u128::from(flow.policy.weight.max(1));
        // A correction may not run the clock below zero: nothing was served there.
        flow.clock.0 = if cost < 0 {
            before.0.saturating_sub(ticks)
        } else {
            before.0.saturating_add(ticks)
        };
        if self.backlogged.remove(&(before, tenant)) {
            self.backlogged.insert((flow.clock, tenant));
        }
    }
}

/// One place in the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    clock: VirtualTime,
    tenant: TenantId,
    pub(super) ticket: TicketId,
}

/// What a request was charged and what it came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) prompt: Tokens,
    pub(super) expected: Tokens,
    pub(super) generated: Tokens,
}

fn cost(prompt: Tokens, output: Tokens) -> u64 {
    (prompt + output * OUTPUT_COST).get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::demand::Arrival;

    const ANN: TenantId = TenantId(0);
    const BOB: TenantId = TenantId(1);

    fn ticket(number: u64) -> TicketId {
        TicketId {
            arrival: Arrival(number),
            number,
        }
    }

    fn order(flows: &Flows) -> Vec<u64> {
        flows
            .in_order(None)
            .map(|turn| turn.ticket.number)
            .collect()
    }

    #[test]
    fn the_tenant_served_less_comes_first_and_its_own_requests_stay_in_order() {
        let mut flows = Flows::default();
        flows.on_admitted(ANN, Tokens::new(100), Tokens::ZERO);
        flows.enqueue(ANN, ticket(1), Tokens::new(1));
        flows.enqueue(ANN, ticket(2), Tokens::new(1));
        flows.enqueue(BOB, ticket(3), Tokens::new(1));
        // Bob comes from idling: lifted to the slowest backlogged clock, Ann's.
        assert_eq!(order(&flows), [1, 2, 3]);
        flows.on_admitted(ANN, Tokens::new(1), Tokens::ZERO);
        assert_eq!(order(&flows), [3, 1, 2]);
    }

    #[test]
    fn a_weight_of_three_gets_three_times_the_tokens() {
        let mut flows = Flows::default();
        flows.set_policy(
            BOB,
            TenantPolicy {
                weight: 3,
                ..TenantPolicy::default()
            },
        );
        flows.enqueue(ANN, ticket(1), Tokens::new(1));
        flows.enqueue(BOB, ticket(2), Tokens::new(1));
        let mut served = [0_u64; 2];
        for _ in 0..400 {
            let next = flows
                .in_order(None)
                .next()
                .expect("both are waiting")
                .tenant;
            served[next.0 as usize] += 1;
            flows.on_admitted(next, Tokens::new(50), Tokens::new(25));
        }
        assert_eq!(served, [100, 300]);
    }

    #[test]
    fn the_charge_is_corrected_to_what_was_served() {
        let mut flows = Flows::default();
        flows.enqueue(ANN, ticket(1), Tokens::new(1));
        flows.enqueue(BOB, ticket(2), Tokens::new(1));
        flows.on_admitted(ANN, Tokens::new(10), Tokens::new(1000));
        flows.on_admitted(BOB, Tokens::new(10), Tokens::new(100));
        assert_eq!(order(&flows), [2, 1]);
        let charge = Charge {
            prompt: Tokens::new(10),
            expected: Tokens::new(1000),
            generated: Tokens::new(5),
        };
        flows.on_ended(ANN, charge);
        assert_eq!(order(&flows), [1, 2]);
        assert_eq!(
            flows.get(ANN).map(|flow| (flow.in_flight, flow.served)),
            Some((Tokens::ZERO, Tokens::new(15)))
        );
    }

    #[test]
    fn the_order_can_be_taken_up_where_it_was_left() {
        let mut flows = Flows::default();
        for number in 0..5 {
            flows.enqueue(
                if number % 2 == 0 { ANN } else { BOB },
                ticket(number),
                Tokens::new(1),
            );
        }
        let all: Vec<Turn> = flows.in_order(None).collect();
        assert_eq!(order(&flows), [0, 2, 4, 1, 3]);
        let rest: Vec<u64> = flows
            .in_order(Some(all[2]))
            .map(|turn| turn.ticket.number)
            .collect();
        assert_eq!(rest, [4, 1, 3]);
    }
}
