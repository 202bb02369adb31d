//! The budget for request bodies: how many bytes of them the process holds.
//!
//! Decides whether one more byte may be kept; never waits for room, since a
//! client told to come back costs less than one that waits with half a body.
//! A tenant's bodies take at most three times what is then left, so that
//! however many one sends, and however slowly, there is room for another's: one
//! alone gets three quarters, two get three sevenths each. Its first body may
//! have all there is. Invariant: the amount in use is the sum over live
//! [`Share`]s, in all and of each tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::demand::TenantId;

/// What the bodies of a tenant may take, in parts of what they leave.
const PART: u64 = 3;

/// A fixed number of bytes shared by all requests.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Relaxed: a limit guards no memory, and a reload need not be seen at once.
    limit: AtomicU64,
    /// Locked for a few additions at a time.
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    /// Tenants that hold any.
    of: HashMap<TenantId, u64>,
}

/// Bytes one request holds of the budget; dropping gives them back.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    tenant: TenantId,
    held: u64,
}

/// The budget is spent, or the tenant's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent;

// === impl Budget ===

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Shared {
            limit: AtomicU64::new(limit),
            used: Mutex::default(),
        }))
    }

    /// Changes the limit; shares that are beyond it stay and let nobody in.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// An empty share for a body of `tenant`.
    pub fn share(&self, tenant: TenantId) -> Share {
        Share {
            budget: self.clone(),
            tenant,
            held: 0,
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.lock().all
    }

    /// Whether a body of `bytes` more may be held for `tenant`; only a hint,
    /// others take from it at any time.
    pub fn has_room(&self, tenant: TenantId, bytes: u64) -> bool {
        let used = self.lock();
        let theirs = used.of.get(&tenant).copied().unwrap_or(0);
        self.0.fits(&used, bytes, theirs)
    }

    /// Nothing under this lock panics half way.
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Whether `more` fits for a tenant that holds `others` for other bodies.
    fn fits(&self, used: &Used, more: u64, others: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let Some(left) = used
            .all
            .checked_add(more)
            .and_then(|sum| limit.checked_sub(sum))
        else {
            return false;
        };
        others == 0 || others.saturating_add(more) <= left.saturating_mul(PART)
    }
}

// === impl Share ===

impl Share {
    /// Takes `more` bytes, or nothing where they do not fit.
    ///
    /// # Errors
    /// [`Spent`] if the budget, or the tenant's part of it, has fewer than
    /// `more` bytes free.
    pub fn grow(&mut self, more: u64) -> Result<(), Spent> {
        let mut used = self.budget.lock();
        let theirs = used.of.get(&self.tenant).copied().unwrap_or(0);
        // Of a tenant with other bodies, this one counts with them.
        let counted = if theirs > self.held { theirs } else { 0 };
        if !self.budget.0.fits(&used, more, counted) {
            return Err(Spent);
        }
        used.all += more;
        *used.of.entry(self.tenant).or_default() += more;
        self.held += more;
        Ok(())
    }

    /// An empty share for the same tenant.
    pub fn sibling(&self) -> Self {
        self.budget.share(self.tenant)
    }

    /// Bytes held.
    pub const fn held(&self) -> u64 {
        self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        used.all -= self.held;
        if let Some(theirs) = used.of.get_mut(&self.tenant) {
            *theirs -= self.held;
            if *theirs == 0 {
                used.of.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);

    #[test]
    fn a_share_takes_all_or_nothing_and_gives_back_on_drop() {
        let budget = Budget::new(10);
        let mut first = budget.share(ONE);
        assert_eq!(first.grow(7), Ok(()));
        let mut second = budget.share(TWO);
        assert_eq!(second.grow(4), Err(Spent));
        assert_eq!((budget.used(), second.held()), (7, 0));
        drop(first);
        assert_eq!(second.grow(10), Ok(()));
        assert!(!budget.has_room(ONE, 1));
        drop(second);
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().of.is_empty());
    }

    #[test]
    fn a_lower_limit_takes_nothing_away_and_lets_nobody_in() {
        let budget = Budget::new(10);
        let mut share = budget.share(ONE);
        assert_eq!(share.grow(7), Ok(()));
        budget.set_limit(5);
        assert_eq!(share.grow(1), Err(Spent));
        budget.set_limit(8);
        assert_eq!(share.grow(1), Ok(()));
    }

    #[test]
    fn a_share_cannot_wrap_around() {
        let budget = Budget::new(u64::MAX);
        let mut share = budget.share(ONE);
        assert_eq!(share.grow(u64::MAX), Ok(()));
        assert_eq!(share.grow(1), Err(Spent));
    }

    #[test]
    fn however_many_bodies_a_tenant_sends_there_is_room_for_anothers() {
        let budget = Budget::new(1000);
        let fill = |tenant| -> Vec<Share> {
            let shares = (0..1000).map(|_| budget.share(tenant));
            shares
                .filter_map(|mut share| share.grow(1).is_ok().then_some(share))
                .collect()
        };
        let first = fill(ONE);
        assert_eq!(first.len(), 750);
        assert!(!budget.has_room(ONE, 1));
        // Of what is left, each newcomer gets the same part.
        let second = fill(TWO);
        assert_eq!(second.len(), 187);
        let third = fill(TenantId(3));
        assert_eq!(third.len(), 47);
        drop((second, third));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_tenants_only_body_may_have_all_there_is() {
        let budget = Budget::new(1000);
        let mut only = budget.share(ONE);
        assert_eq!(only.grow(990), Ok(()));
        assert_eq!(only.grow(10), Ok(()));
        drop(only);
        let mut first = budget.share(ONE);
        assert_eq!(first.grow(500), Ok(()));
        let mut second = budget.share(ONE);
        assert_eq!(second.grow(251), Err(Spent));
        assert_eq!(second.grow(250), Ok(()));
        assert_eq!(first.grow(1), Err(Spent));
    }
}
