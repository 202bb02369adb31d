//! The books: which lease holds how many KV blocks on which backend.
//!
//! Held is always the own blocks of live leases plus the union of the shared
//! prefixes they pin; its audit recomputes it from the leases. The
//! ledger decides nothing. Every block is given back exactly once: an unknown
//! lease or a negative balance is a bug and panics.

use std::collections::BTreeMap;

use super::backend::{BackendId, Capacity};
use super::demand::{OutputLimit, Progress, TenantId};
use super::fairness::{Cost, Usage};
use super::footprint::Shape;
use super::forecast::{LengthModel, Runner};
use super::lengths::{ClassKey, Growth};
use super::prefix::{PrefixChain, PrefixHash};
use super::time::Time;
use super::units::{Blocks, Tokens};

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
    /// Blocks of its own; the pinned prefix comes on top.
    pub(super) own: Blocks,
    /// Whether they are all it will ever need.
    pub(super) booking: Booking,
    pub(super) prefix: PrefixChain,
    /// Tokens charged to the tenant's in-flight share.
    pub(super) charged: Tokens,
    /// What it was expected to use.
    pub(super) usage: Usage,
    /// What was charged to its clock.
    pub(super) cost: Cost,
    pub(super) admitted: Time,
}

/// How a lease takes its blocks. It keeps to that when the pool's policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Booking {
    /// All at the start.
    Whole,
    /// As its sequences grow.
    AsItGrows,
}

/// The books of one backend generation.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    held: Blocks,
    sequences: u64,
    leases: BTreeMap<LeaseId, Entry>,
    pins: BTreeMap<PrefixHash, u32>,
}

/// The books of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<BackendId, Account>,
    homes: BTreeMap<LeaseId, BackendId>,
    next: u64,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn open(&mut self, backend: BackendId) {
        self.accounts.entry(backend).or_default();
    }

    /// Forgets an account nobody holds anything on; keeps it otherwise.
    pub(super) fn close_if_empty(&mut self, backend: BackendId) -> bool {
        let empty = self
            .accounts
            .get(&backend)
            .is_none_or(|account| account.leases.is_empty());
        if empty {
            self.accounts.remove(&backend);
        }
        empty
    }

    pub(super) fn account(&self, backend: BackendId) -> &Account {
        self.accounts
            .get(&backend)
            .expect("a backend's account is open while the backend exists")
    }

    pub(super) fn home(&self, lease: LeaseId) -> BackendId {
        *self
            .homes
            .get(&lease)
            .expect("a lease is in the books until it is released")
    }

    pub(super) fn sequences_of(&self, lease: LeaseId) -> u64 {
        let account = self.account(self.home(lease));
        account
            .leases
            .get(&lease)
            .expect("a lease is on its account")
            .shape
            .sequences()
    }

    /// Takes `entry.own` blocks, of which the leading prefix is shared.
    pub(super) fn take(&mut self, backend: BackendId, mut entry: Entry) -> LeaseId {
        let lease = LeaseId(self.next);
        self.next += 1;
        let account = self
            .accounts
            .get_mut(&backend)
            .expect("leases are taken on live backends");
        entry.own -= Blocks::new(entry.prefix.hashes().len() as u64);
        for &hash in entry.prefix.hashes() {
            let pins = account.pins.entry(hash).or_insert(0);
            *pins += 1;
            if *pins == 1 {
                account.held += Blocks::new(1);
            }
        }
        account.held += entry.own;
        account.sequences += entry.shape.sequences();
        account.leases.insert(lease, entry);
        self.homes.insert(lease, backend);
        lease
    }

    /// Records that each sequence of `lease` has emitted `generated` tokens and,
    /// where it takes its blocks as it grows and `capacity` is given, that it now
    /// holds the blocks for them. Says what that is news of.
    pub(super) fn grow(
        &mut self,
        lease: LeaseId,
        generated: Tokens,
        capacity: Option<&Capacity>,
    ) -> Option<(ClassKey, Growth)> {
        let backend = self.home(lease);
        let account = self
            .accounts
            .get_mut(&backend)
            .expect("a lease's account is open");
        let entry = account
            .leases
            .get_mut(&lease)
            .expect("a lease is on its account");
        let growth = Growth {
            from: entry.generated,
            to: entry.generated.max(generated),
        };
        entry.generated = growth.to;
        let news = entry.class.map(|class| (class, growth));
        let grows = entry.booking == Booking::AsItGrows;
        let Some(capacity) = capacity.filter(|_| grows) else {
            return news;
        };
        let prefix = Blocks::new(entry.prefix.hashes().len() as u64);
        let own = entry
            .shape
            .blocks(entry.generated, capacity)
            .saturating_sub(prefix);
        if own > entry.own {
            account.held += own - entry.own;
            entry.own = own;
        }
        news
    }

    /// Gives everything of `lease` back.
    pub(super) fn give_back(&mut self, lease: LeaseId) -> (BackendId, Entry) {
        let backend = self.homes.remove(&lease).expect("a lease is released once");
        let account = self
            .accounts
            .get_mut(&backend)
            .expect("a lease's account is open");
        let entry = account
            .leases
            .remove(&lease)
            .expect("a lease is on its account");
        for hash in entry.prefix.hashes() {
            let pins = account
                .pins
                .get_mut(hash)
                .expect("a pinned block is counted until unpinned");
            *pins -= 1;
            if *pins == 0 {
                account.pins.remove(hash);
                account.held -= Blocks::new(1);
            }
        }
        account.held -= entry.own;
        account.sequences -= entry.shape.sequences();
        (backend, entry)
    }

    /// Whether every balance equals the sum of its leases.
    pub(super) fn audit(&self) -> bool {
        let leases: usize = self
            .accounts
            .values()
            .map(|account| account.leases.len())
            .sum();
        let right = |(backend, account): (&BackendId, &Account)| {
            let own = account
                .leases
                .values()
                .map(|entry| entry.own)
                .sum::<Blocks>();
            let sequences: u64 = account
                .leases
                .values()
                .map(|entry| entry.shape.sequences())
                .sum();
            account.held == own + account.shared()
                && account.sequences == sequences
                && account
                    .leases
                    .keys()
                    .all(|lease| self.homes.get(lease) == Some(backend))
        };
        self.homes.len() == leases && self.accounts.iter().all(right)
    }
}

// === impl Account ===

impl Account {
    /// Blocks held by live leases.
    pub(super) fn held(&self) -> Blocks {
        self.held
    }

    /// Blocks of shared prefixes.
    pub(super) fn shared(&self) -> Blocks {
        Blocks::new(self.pins.len() as u64)
    }

    /// Sequences of live leases.
    pub(super) fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Number of live leases.
    pub(super) fn leases(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX)
    }

    /// Leading blocks of `chain` that are already pinned here.
    pub(super) fn pinned(&self, chain: &PrefixChain) -> Blocks {
        let known = chain
            .hashes()
            .iter()
            .take_while(|hash| self.pins.contains_key(hash));
        Blocks::new(known.count() as u64)
    }

    /// Blocks the leases taken before `at` really use, at most: what they have
    /// grown to where that is seen, their whole reservation where it is not.
    pub(super) fn in_use(&self, at: Time, capacity: &Capacity) -> Blocks {
        let used = |entry: &Entry| match entry.progress {
            Progress::Unseen => entry.own,
            // One block a sequence for tokens that are on their way here.
            Progress::Streamed => {
                let slack = Blocks::new(entry.shape.sequences());
                entry.shape.blocks(entry.generated, capacity) + slack
            }
        };
        self.leases
            .values()
            .filter(|entry| entry.admitted <= at)
            .map(used)
            .sum()
    }

    /// Splits the leases into those whose growth is foreseen and the blocks of
    /// those that already hold all they may need.
    pub(super) fn outlook(&self, lengths: &impl LengthModel) -> (Vec<Runner<'_>>, Blocks) {
        let mut runners = Vec::with_capacity(self.leases.len() + 1);
        let mut fixed = Blocks::new(self.pins.len() as u64);
        for entry in self.leases.values() {
            match entry.progress {
                Progress::Unseen => fixed += entry.own,
                Progress::Streamed => runners.push(Runner {
                    shape: &entry.shape,
                    generated: entry.generated,
                    remaining: lengths.remaining(entry.output, entry.generated),
                }),
            }
        }
        (runners, fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::backend::{CapacitySource, PrefixCaching, ServedId, TierSet};
    use crate::core::demand::{Demand, Length, OffloadRule, Work};
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
            trail: crate::core::prefix::PrefixTrail::default(),
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
            booking: Booking::AsItGrows,
            own: Blocks::new(own),
            prefix: PrefixChain::new(chain.iter().map(|&h| PrefixHash(h)).collect::<Vec<_>>()),
            charged: Tokens::ZERO,
            usage: Usage::default(),
            cost: Cost::ZERO,
            admitted: Time::ZERO,
        }
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
        ledger.give_back(first);
        assert_eq!(ledger.account(HERE).held(), Blocks::new(10));
        ledger.give_back(second);
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
        let lease = ledger.take(HERE, entry(4, &[]));
        ledger.grow(lease, Tokens::new(17), Some(&capacity));
        assert_eq!(ledger.account(HERE).held(), Blocks::new(5));
        ledger.grow(lease, Tokens::new(3), Some(&capacity));
        assert_eq!(ledger.account(HERE).held(), Blocks::new(5));
        ledger.give_back(lease);
        assert_eq!(ledger.account(HERE).held(), Blocks::ZERO);
    }

    #[test]
    #[should_panic(expected = "a lease is released once")]
    fn releasing_twice_panics() {
        let mut ledger = Ledger::default();
        ledger.open(HERE);
        let lease = ledger.take(HERE, entry(1, &[]));
        ledger.give_back(lease);
        ledger.give_back(lease);
    }
}
