//! What grants, first tokens and growth say of how fast each backend works.
//!
//! Keeps the prefill on its way to each backend, and hands every observation to
//! the pace of the backend and of its tier. Never decides who goes where.

use super::Admission;
use crate::core::ahead::{FirstToken, Sent};
use crate::core::backend::{BackendId, Tier};
use crate::core::demand::{Demand, Progress, Work};
use crate::core::ledger::LeaseId;
use crate::core::overlap::Overlap;
use crate::core::pace::{Pace, Sample};
use crate::core::time::Time;
use crate::core::units::Tokens;

/// The paces of all tiers, as learned from all their backends.
#[derive(Clone, Debug)]
pub(super) struct TierPaces([Pace; Tier::ALL.len()]);

impl Default for TierPaces {
    fn default() -> Self {
        Self(Tier::ALL.map(Pace::of_tier))
    }
}

impl TierPaces {
    /// What a backend of `tier` starts from.
    pub(super) fn of(&self, tier: Tier) -> &Pace {
        &self.0[tier as usize]
    }
}

impl Admission {
    /// A request is on its way to `id`, which has `cached` tokens of it.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        (id, lease): (BackendId, LeaseId),
        (demand, cached): (&Demand, Tokens),
    ) {
        let work = Overlap::prefill(cached, demand);
        let seen = demand.progress == Progress::Streamed && demand.work == Work::Generate;
        let first_token = if seen {
            FirstToken::Seen
        } else {
            FirstToken::Unseen
        };
        let late = self.policy.dispatch.late;
        let account = self.ledger.account(id);
        if let Some(backend) = self.place_of(id).map(|place| &mut self.backends[place]) {
            let sent = Sent {
                work,
                first_token,
                load: backend.load(account),
            };
            backend.ahead.on_sent(now, &backend.pace, lease, sent);
            backend.shut = !backend.is_open(now, late, account);
        }
    }

    /// Each sequence of `lease` has emitted `generated` tokens. Says whether a
    /// backend that had enough on its way may take more.
    pub(super) fn on_emitted(&mut self, now: Time, lease: LeaseId, generated: Tokens) -> bool {
        let id = self.ledger.home(lease);
        let account = self.ledger.account(id);
        let Some(place) = self.place_of(id) else {
            return false;
        };
        let backend = &mut self.backends[place];
        let load = backend.load(account);
        let first = backend.ahead.on_first_token(now, lease, load);
        let grown = backend.ahead.on_growth(now, lease, generated, load);
        for sample in first.into_iter().chain(grown) {
            self.learn(now, id, sample);
        }
        self.note_at(now, place);
        self.look_at_gates(now)
    }

    /// Takes prefill without a first token to be seen as done once its time has
    /// passed. Says whether a gate has opened.
    pub(super) fn forget_assumed(&mut self, now: Time) -> bool {
        for place in 0..self.backends.len() {
            if self.table.rows[place].next_assumed <= now {
                self.backends[place].ahead.forget_assumed(now);
                self.note_at(now, place);
            }
        }
        self.look_at_gates(now)
    }

    /// When the next of it is, where a gate may open by that.
    pub(super) fn next_assumed(&self) -> Option<Time> {
        let shut = self.table.rows.iter().filter(|row| row.noted_shut);
        let next = shut.map(|row| row.next_assumed).min();
        next.filter(|&next| next < Time::NEVER)
    }

    /// Notes which gates are shut; whether one that was is not.
    fn look_at_gates(&mut self, now: Time) -> bool {
        let mut opened = false;
        for place in 0..self.backends.len() {
            if !self.table.rows[place].holds(now) {
                self.note_at(now, place);
            }
            let row = &mut self.table.rows[place];
            let shut = row.is_shut();
            if row.noted_shut != shut {
                opened |= !shut;
                row.noted_shut = shut;
                self.backends[place].shut = shut;
            }
        }
        opened
    }

    fn learn(&mut self, now: Time, id: BackendId, sample: Sample) {
        let Some(tier) = self.backend(id).map(|backend| backend.tier) else {
            return;
        };
        let paces = &mut self.paces.0[tier as usize];
        paces.learn(sample, None);
        let news = paces.is_news();
        let aged = if news {
            Pace::aged(self.backends.iter().filter(|b| b.tier == tier).count())
        } else {
            1.0
        };
        for backend in self.backends.iter_mut().filter(|b| b.tier == tier) {
            if backend.id == id {
                backend.pace.learn(sample, Some(paces));
            } else if news {
                backend.pace.follow(paces, aged);
            }
        }
        for place in 0..self.backends.len() {
            if news && self.backends[place].tier == tier {
                self.note_at(now, place);
            }
        }
    }
}
