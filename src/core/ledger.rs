//! The books: which lease holds how many KV blocks on which backend.
//!
//! Held is always the own blocks of live leases plus the union of the shared
//! prefixes they pin; its audit recomputes it from the leases. The
//! ledger decides nothing. Every block is given back exactly once: an unknown
//! lease or a negative balance is a bug and panics.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backend::{BackendId, Capacity};
use super::demand::{OutputLimit, Progress, TenantId};
use super::fairness::{Cost, Usage};
use super::footprint::Shape;
use super::lengths::{ClassKey, Curve, Growth};
use super::outlook::{Profile, Runner};
use super::prefix::{PrefixChain, PrefixTrail};
use super::time::Time;
use super::units::{Blocks, Tokens};

pub(super) use account::{Account, InUse};

mod account;

/// Identity of a lease, unique within a pool's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(super) u64);

/// One held reservation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) tenant: TenantId,
    pub(super) shape: Shape,
    /// The output bound the engine was told, or left open.
    pub(super) output: OutputLimit,
    pub(super) progress: Progress,
    /// The class of its answers; `None` where nothing is generated.
    pub(super) class: Option<ClassKey>,
    /// Tokens each sequence was expected to emit when it was taken.
    pub(super) foreseen: Tokens,
    /// Tokens each sequence has emitted, rounded up.
    pub(super) generated: Tokens,
    /// How its sequences are expected to grow; `None` where it holds all it may
    /// need from the start.
    pub(super) growing: Option<Growing>,
    /// Blocks of its own; the pinned prefix comes on top.
    pub(super) own: Blocks,
    /// Whether they are all it will ever need.
    pub(super) booking: Booking,
    pub(super) prefix: PrefixChain,
    pub(super) trail: PrefixTrail,
    /// Tokens charged to the tenant's in-flight share.
    pub(super) charged: Tokens,
    /// What it was expected to use.
    pub(super) usage: Usage,
    /// What was charged to its clock.
    pub(super) cost: Cost,
    pub(super) admitted: Time,
}

/// What is foreseen of a lease whose growth is seen, or goes by the engine's pace.
#[derive(Clone, Debug)]
pub(super) struct Growing {
    pub(super) curve: Curve,
    /// Tokens after which each sequence is cut off, by its bound or the window.
    pub(super) bound: Tokens,
    /// Tokens each is taken to have emitted where that is not seen.
    age: Tokens,
    /// How it stands in the sums of its account.
    profile: Option<Profile>,
}

/// How a lease takes its blocks. It keeps to that when the pool's policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Booking {
    /// All at the start.
    Whole,
    /// As its sequences grow.
    AsItGrows,
}

/// The books of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Whose accounts these are, in the order of their generations, which no two
    /// backends share.
    owners: Vec<BackendId>,
    accounts: Vec<Account>,
    homes: BTreeMap<LeaseId, BackendId>,
    next: u64,
}

// === impl Growing ===

impl Growing {
    /// Sequences that end by `curve`, and after `bound` tokens at the latest.
    pub(super) fn new(curve: Curve, bound: Tokens) -> Self {
        Self {
            curve,
            bound,
            age: Tokens::ZERO,
            profile: None,
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Its place in the forecast, where it has one.
    fn runner(&self) -> Option<Runner<'_>> {
        let growing = self.growing.as_ref()?;
        Some(Runner {
            shape: &self.shape,
            curve: &growing.curve,
            generated: self.generated.max(growing.age),
            bound: growing.bound,
            prefix: self.prefix.blocks(),
        })
    }
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn open(&mut self, backend: BackendId) {
        if let Err(place) = self.place_of(backend) {
            self.owners.insert(place, backend);
            self.accounts.insert(place, Account::default());
        }
    }

    /// Forgets an account nobody holds anything on; keeps it otherwise.
    pub(super) fn close_if_empty(&mut self, backend: BackendId) -> bool {
        let Ok(place) = self.place_of(backend) else {
            return true;
        };
        let empty = self.accounts[place].is_empty();
        if empty {
            self.owners.remove(place);
            self.accounts.remove(place);
        }
        empty
    }

    /// The size of a backend is known, or has changed: its forecast is made anew.
    pub(super) fn on_capacity(&mut self, backend: BackendId, capacity: Capacity) {
        if let Ok(place) = self.place_of(backend) {
            self.accounts[place].on_capacity(capacity);
        }
    }

    pub(super) fn account(&self, backend: BackendId) -> &Account {
        let place = self
            .place_of(backend)
            .expect("a backend's account is open while the backend exists");
        &self.accounts[place]
    }

    pub(super) fn home(&self, lease: LeaseId) -> BackendId {
        *self
            .homes
            .get(&lease)
            .expect("a lease is in the books until it is released")
    }

    pub(super) fn sequences_of(&self, lease: LeaseId) -> u64 {
        let account = self.account(self.home(lease));
        account.entry(lease).shape.sequences()
    }

    /// Takes `entry.own` blocks, of which the leading prefix is shared.
    pub(super) fn take(&mut self, backend: BackendId, entry: Entry) -> LeaseId {
        let lease = LeaseId(self.next);
        self.next += 1;
        self.account_mut(backend).put(lease, entry);
        self.homes.insert(lease, backend);
        lease
    }

    /// Records that each sequence of `lease` has emitted `generated` tokens and,
    /// where it takes its blocks as it grows, that it now holds the blocks for
    /// them. `curve` is asked for what is now known of its kind. Says what that is
    /// news of.
    pub(super) fn grow(
        &mut self,
        lease: LeaseId,
        generated: Tokens,
        curve: impl FnOnce(ClassKey, OutputLimit) -> Curve,
    ) -> Option<(ClassKey, Growth)> {
        let backend = self.home(lease);
        self.account_mut(backend).grow(lease, generated, curve)
    }

    /// What is not seen on `backend` has gone on at `step` a token.
    pub(super) fn age(&mut self, now: Time, backend: BackendId, step: Duration) {
        if let Ok(place) = self.place_of(backend) {
            self.accounts[place].age(now, step);
        }
    }

    /// Gives everything of `lease` back.
    pub(super) fn give_back(&mut self, now: Time, lease: LeaseId) -> (BackendId, Entry) {
        let backend = self.homes.remove(&lease).expect("a lease is released once");
        let entry = self.account_mut(backend).remove(now, lease);
        (backend, entry)
    }

    /// Whether every balance equals the sum of its leases.
    pub(super) fn audit(&self) -> bool {
        let leases: usize = self.accounts.iter().map(Account::count).sum();
        let right = |(backend, account): (&BackendId, &Account)| {
            let at_home = |lease| self.homes.get(&lease) == Some(backend);
            account.audit() && account.ids().all(at_home)
        };
        let mut accounts = self.owners.iter().zip(&self.accounts);
        self.homes.len() == leases && accounts.all(right)
    }

    fn account_mut(&mut self, backend: BackendId) -> &mut Account {
        let place = self.place_of(backend).expect("a lease's account is open");
        &mut self.accounts[place]
    }

    /// Where the account of `backend` is, or would be.
    fn place_of(&self, backend: BackendId) -> Result<usize, usize> {
        self.owners
            .binary_search_by_key(&backend.generation, |owner| owner.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::backend::{CapacitySource, PrefixCaching, ServedId, TierSet};
    use crate::core::demand::{Demand, Length, OffloadRule, Work};
    use crate::core::prefix::PrefixHash;
    use crate::core::units::BlockSize;

    const HERE: BackendId = BackendId {
        slot: 0,
        generation: 0,
    };

    fn entry(own: u64, chain: &[u64]) -> Entry {
        let demand = Demand {
            tenant: TenantId(0),
            arrival: crate::core::demand::Arrival(0),
            served: ServedId(0),
            prompts: vec![Tokens::new(64)],
            samples: 1,
            output: OutputLimit::Asked(Tokens::new(16)),
            kind: crate::core::demand::Kind::default(),
            work: Work::Generate,
            progress: Progress::Streamed,
            tiers: TierSet::ALL,
            offload: OffloadRule::Never,
            length: Length::ByFootprint,
            prefix: PrefixChain::default(),
            trail: PrefixTrail::default(),
            first_token_by: None,
            deadline: Time::NEVER,
        };
        Entry {
            tenant: demand.tenant,
            shape: Shape::of(&demand),
            output: demand.output,
            progress: demand.progress,
            class: None,
            foreseen: Tokens::ZERO,
            generated: Tokens::ZERO,
            growing: None,
            booking: Booking::AsItGrows,
            own: Blocks::new(own),
            trail: PrefixTrail::default(),
            prefix: PrefixChain::new(chain.iter().map(|&h| PrefixHash(h)).collect::<Vec<_>>()),
            charged: Tokens::ZERO,
            usage: Usage::default(),
            cost: Cost::ZERO,
            admitted: Time::ZERO,
        }
    }

    fn never(_: ClassKey, _: OutputLimit) -> Curve {
        unreachable!("these have no class")
    }

    #[test]
    fn a_shared_prefix_is_held_once_and_freed_with_its_last_lease() {
        let mut ledger = Ledger::default();
        ledger.open(HERE);
        let first = ledger.take(HERE, entry(10, &[1, 2, 3]));
        assert_eq!(ledger.account(HERE).held(), Blocks::new(10));
        let second = ledger.take(HERE, entry(10, &[1, 2, 9]));
        assert_eq!(ledger.account(HERE).held(), Blocks::new(18));
        assert!(ledger.audit());
        ledger.give_back(Time::ZERO, first);
        assert_eq!(ledger.account(HERE).held(), Blocks::new(10));
        ledger.give_back(Time::ZERO, second);
        assert_eq!(ledger.account(HERE).held(), Blocks::ZERO);
        assert!(ledger.audit() && ledger.close_if_empty(HERE));
    }

    #[test]
    fn growth_takes_blocks_and_never_gives_them_back() {
        let capacity = Capacity {
            blocks: Blocks::new(100),
            block_size: BlockSize::new(16).expect("not zero"),
            max_model_len: Tokens::new(1000),
            max_num_seqs: None,
            lookahead: Tokens::ZERO,
            prefix_caching: PrefixCaching::Shared,
            source: CapacitySource::Configured,
        };
        let mut ledger = Ledger::default();
        ledger.open(HERE);
        ledger.on_capacity(HERE, capacity);
        let lease = ledger.take(HERE, entry(4, &[]));
        ledger.grow(lease, Tokens::new(17), never);
        assert_eq!(ledger.account(HERE).held(), Blocks::new(5));
        ledger.grow(lease, Tokens::new(3), never);
        assert_eq!(ledger.account(HERE).held(), Blocks::new(5));
        ledger.give_back(Time::ZERO, lease);
        assert_eq!(ledger.account(HERE).held(), Blocks::ZERO);
    }

    #[test]
    #[should_panic(expected = "a lease is released once")]
    fn releasing_twice_panics() {
        let mut ledger = Ledger::default();
        ledger.open(HERE);
        let lease = ledger.take(HERE, entry(1, &[]));
        ledger.give_back(Time::ZERO, lease);
        ledger.give_back(Time::ZERO, lease);
    }
}
