//! The table against the backends it is read from: where a request goes is where it
//! would go if every backend were asked everything, one by one.

use super::explain::{Dice, any_demand, any_pool, go_on};
use super::*;
use crate::core::choice::{LARGER_TIER, PRESSURE};
use crate::core::fit::Fit;
use crate::core::gates::Choice;
use crate::core::placement::{Asked, Fleet};

/// A request that asks every backend.
struct Everyone<'a> {
    fleet: Fleet<'a>,
    asked: Asked<'a>,
    home: Tier,
    output: OutputLimit,
}

impl Everyone<'_> {
    fn place(&self) -> Option<Placement> {
        let Self { fleet, asked, .. } = self;
        let trusted = |backend: &Backend| backend.is_trusted_with(asked.demand.work);
        let place = self.place_where(trusted);
        if place.is_some() || fleet.backends.iter().all(trusted) {
            return place;
        }
        let well_served = fleet.is_well_served(*asked, self.home, self.output);
        (!well_served).then(|| self.place_where(|_| true)).flatten()
    }

    fn place_where(&self, may_take: impl Fn(&Backend) -> bool) -> Option<Placement> {
        let Self { fleet, asked, .. } = self;
        let open = fleet.open_tiers(*asked, self.home);
        let work = fleet.overlap.uncached(asked.demand);
        let clear = |one: &Backend| {
            let gates = (&open, work.on(one.id));
            fleet.barrier(one, *asked, gates).is_none()
        };
        let backends = fleet.backends.iter();
        let open = backends
            .filter(|one| may_take(one) && clear(one))
            .collect::<Vec<_>>();
        let mut ranked: Vec<_> = open.iter().map(|one| (self.cost(one), *one)).collect();
        ranked.sort_by(|(left, one), (right, other)| {
            let tie = |one: &Backend| (fleet.ledger.account(one.id).sequences(), one.id.slot);
            let kind = |cost: &(bool, bool, f64)| (cost.0, cost.1);
            kind(left)
                .cmp(&kind(right))
                .then(left.2.total_cmp(&right.2))
                .then(tie(one).cmp(&tie(other)))
        });
        let fits = |one: &Backend| fleet.room(one, *asked, (self.home, self.output)).ok();
        let mut found = ranked.iter().enumerate();
        found.find_map(|(passed, (_, one))| Some(self.placed(passed, one, fits(one)?, &ranked)))
    }

    fn placed<T>(&self, passed: usize, one: &Backend, fit: Fit, ranked: &[T]) -> Placement {
        Placement {
            backend: one.id,
            tier: one.tier,
            blocks: fit.blocks,
            output: fit.output,
            home: self.home,
            choice: match passed {
                0 if ranked.len() == 1 => Choice::Only,
                0 => Choice::Best,
                _ => Choice::Next,
            },
        }
    }

    /// Whether it is degraded, or slow, and what else counts against it.
    fn cost(&self, one: &Backend) -> (bool, bool, f64) {
        let Self { fleet, asked, .. } = self;
        let account = fleet.ledger.account(one.id);
        let first = fleet.first_token_after(one, fleet.overlap.uncached(asked.demand).on(one.id));
        let used = one.capacity.map_or(1.0, |capacity| {
            let prompt = asked.shape.blocks(Tokens::ZERO, &capacity);
            let held = account.held() + one.foreign(fleet.now, fleet.observed_for) + prompt;
            let memory = held.as_f64() / capacity.blocks.as_f64();
            let sequences = Tokens::new(account.sequences() + asked.shape.sequences());
            let places = capacity.max_num_seqs.map(f64::from);
            places.map_or(memory, |most| memory.max(sequences.as_f64() / most))
        });
        let larger = if one.tier > self.home {
            LARGER_TIER
        } else {
            0.0
        };
        let slow = one.tier == Tier::Offload && asked.demand.work != Work::Aside;
        let cost = first.as_secs_f64() + PRESSURE * used * used + larger;
        let degraded = one.health == Health::Degraded && one.trust != Trust::Trial;
        (degraded, slow, cost)
    }
}

/// Where `demand` goes by the table, and where by everyone.
fn both(pool: &Admission, now: Time, demand: &Demand) -> [Option<Placement>; 2] {
    let shape = Shape::of(demand);
    let sketch = Sketch::default();
    let asked = Asked {
        demand,
        shape: &shape,
        ticket: None,
        sketch: &sketch,
    };
    let fleet = pool.fleet(now);
    let Prospect::Possible { home, output } = fleet.prospect(asked) else {
        return [None; 2];
    };
    let sketch = Sketch::default();
    let everyone = Everyone {
        fleet,
        asked: Asked {
            sketch: &sketch,
            ..asked
        },
        home,
        output,
    };
    [fleet.place(asked, home, output), everyone.place()]
}

#[test]
fn a_request_goes_where_it_would_if_every_backend_were_asked_everything() {
    let (mut placed, mut unplaced) = (0, 0);
    for world in 0..150 {
        let dice = &mut Dice(world);
        let mut pool = any_pool(dice);
        let mut live = Vec::new();
        for nth in 0..80_u32 {
            let seconds = f64::from(nth) / 10.0;
            if dice.one_in(8) && !pool.backends.is_empty() {
                let of =
                    pool.backends[usize::try_from(dice.below(2)).unwrap() % pool.backends.len()].id;
                let trust = dice.pick(&[Trust::Whole, Trust::Trial, Trust::Withheld]);
                pool.set_trust(at(seconds), of, trust, &mut Vec::new());
            }
            let demand = any_demand(dice, u64::from(nth));
            let [by_table, by_everyone] = both(&pool, at(seconds), &demand);
            assert_eq!(by_table, by_everyone, "world {world}, request {nth}");
            placed += u32::from(by_table.is_some());
            unplaced += u32::from(by_table.is_none());
            if let Verdict::Admit(grant) = submit(&mut pool, seconds, demand) {
                live.push(grant);
            }
            for grant in &live {
                let grown = Tokens::new(1 + dice.below(60));
                pool.on_growth(at(seconds), grant.lease, grown, &mut Vec::new());
            }
            go_on(&mut pool, dice, (at(seconds), &mut live));
            assert!(pool.books_are_right(), "world {world}, request {nth}");
        }
    }
    assert!(placed > 1000 && unplaced > 1000, "{placed} {unplaced}");
}
