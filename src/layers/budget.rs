//! The budget for request bodies: how many bytes of them the process holds.
//!
//! Decides whether one more byte may be kept; never waits for room, since a
//! client told to come back costs less than one that waits with half a body.
//! Invariant: the amount in use is the sum over live [`Share`]s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fixed number of bytes shared by all requests.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
}

/// Bytes one request holds of the budget; dropping gives them back.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    held: u64,
}

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent;

// === impl Budget ===

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Shared {
            limit,
            used: AtomicU64::new(0),
        }))
    }

    /// An empty share.
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            held: 0,
        }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes not in use; only a hint, others take from it at any time.
    pub fn free(&self) -> u64 {
        self.0.limit.saturating_sub(self.used())
    }
}

// === impl Share ===

impl Share {
    /// Takes `more` bytes, or nothing where they do not fit.
    ///
    /// # Errors
    /// [`Spent`] if the budget has fewer than `more` bytes free.
    pub fn grow(&mut self, more: u64) -> Result<(), Spent> {
        let shared = &self.budget.0;
        // Relaxed is enough: the counter guards no other memory, and a
        // read-modify-write sees every earlier one.
        shared
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(more).filter(|&sum| sum <= shared.limit)
            })
            .map_err(|_| Spent)?;
        self.held += more;
        Ok(())
    }

    /// An empty share of the same budget.
    pub fn sibling(&self) -> Self {
        self.budget.share()
    }

    /// Bytes held.
    pub const fn held(&self) -> u64 {
        self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_takes_all_or_nothing_and_gives_back_on_drop() {
        let budget = Budget::new(10);
        let mut first = budget.share();
        assert_eq!(first.grow(7), Ok(()));
        let mut second = budget.share();
        assert_eq!(second.grow(4), Err(Spent));
        assert_eq!((budget.used(), second.held()), (7, 0));
        drop(first);
        assert_eq!(second.grow(10), Ok(()));
        assert_eq!(budget.free(), 0);
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_share_cannot_wrap_around() {
        let budget = Budget::new(u64::MAX);
        let mut share = budget.share();
        assert_eq!(share.grow(u64::MAX), Ok(()));
        assert_eq!(share.grow(1), Err(Spent));
    }
}
