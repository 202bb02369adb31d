//! Failed API keys per client address.
//!
//! Decides when an address has guessed too often. Bounded: at most
//! [`MAX_ADDRESSES`] addresses are told apart, and IPv6 clients count by /64
//! since one client owns that many. Addresses beyond the bound share one
//! window, so a flood of addresses slows strangers, never memory.
//! Invariant: an address without a recent wrong key is never refused, unless it
//! shares the overflow window.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use super::AuthError;
use crate::config::Auth;
use crate::core::time::Time;

/// Addresses told apart; about 4 MB when full.
pub(super) const MAX_ADDRESSES: usize = 65_536;

/// Stands for all addresses that found no place.
const OVERFLOW: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Failure windows of all addresses.
#[derive(Debug)]
pub(super) struct FailedKeys {
    limit: u32,
    window: Duration,
    addresses: DashMap<IpAddr, Address>,
    /// When expired addresses were last thrown out, in nanoseconds. Relaxed is
    /// enough: two threads that both prune do the same work twice, no more.
    pruned: AtomicU64,
}

/// What is known of one address.
#[derive(Clone, Copy, Debug)]
struct Address {
    /// Start of the window; means something only while `failures` is not 0.
    since: Time,
    failures: u32,
    /// Marks of the tenants that showed a right key from here.
    proven: u64,
}

// === impl FailedKeys ===

impl FailedKeys {
    pub(super) fn new(auth: &Auth) -> Self {
        Self {
            limit: auth.max_failed_keys,
            window: auth.failed_keys_window,
            addresses: DashMap::new(),
            pruned: AtomicU64::new(0),
        }
    }

    /// Counts a wrong key, or refuses where the address has used up its window.
    pub(super) fn wrong_key(&self, from: IpAddr, now: Time) -> Result<(), AuthError> {
        let mut address = self
            .addresses
            .entry(self.place(from, now))
            .or_insert(Address::new(now));
        address.turn(now, self.window);
        if address.failures >= self.limit {
            return Err(self.too_many(&address, now));
        }
        address.failures += 1;
        Ok(())
    }

    /// Lets the right key of the tenant `name` in, unless the address is over
    /// its limit and this tenant was not seen from it before.
    pub(super) fn right_key(&self, from: IpAddr, name: &str, now: Time) -> Result<(), AuthError> {
        let mark = mark(name);
        let place = self.place(from, now);
        if self
            .addresses
            .get(&place)
            .is_some_and(|known| known.proven & mark != 0)
        {
            return Ok(());
        }
        let mut address = self.addresses.entry(place).or_insert(Address::new(now));
        address.turn(now, self.window);
        if address.failures >= self.limit {
            return Err(self.too_many(&address, now));
        }
        if place != OVERFLOW {
            address.proven |= mark;
        }
        Ok(())
    }

    /// Refuses an address over its limit from which no right key ever came, so
    /// that nothing costly is done for it.
    pub(super) fn is_welcome(&self, from: IpAddr, now: Time) -> Result<(), AuthError> {
        let Some(address) = self.addresses.get(&network(from)) else {
            return Ok(());
        };
        let over = address.is_live(now, self.window) && address.failures >= self.limit;
        if over && address.proven == 0 {
            return Err(self.too_many(&address, now));
        }
        Ok(())
    }

    fn too_many(&self, address: &Address, now: Time) -> AuthError {
        let retry_after = (address.since + self.window).since(now);
        AuthError::TooManyFailures { retry_after }
    }

    /// The address's own place, or the shared one while all places are taken.
    fn place(&self, from: IpAddr, now: Time) -> IpAddr {
        let from = network(from);
        if self.addresses.contains_key(&from) || self.has_room(now) {
            from
        } else {
            OVERFLOW
        }
    }

    /// Whether a new address finds a place; throws out what expired, at most
    /// once a second, since that looks at every address.
    fn has_room(&self, now: Time) -> bool {
        if self.addresses.len() < MAX_ADDRESSES {
            return true;
        }
        let last = Time::from_nanos(self.pruned.load(Ordering::Relaxed));
        if now.since(last) < Duration::from_secs(1) {
            return false;
        }
        self.pruned.store(now.nanos(), Ordering::Relaxed);
        self.addresses
            .retain(|_, address| address.is_live(now, self.window));
        self.addresses.len() < MAX_ADDRESSES
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }
}

// === impl Address ===

impl Address {
    const fn new(now: Time) -> Self {
        Self {
            since: now,
            failures: 0,
            proven: 0,
        }
    }

    fn is_live(&self, now: Time, window: Duration) -> bool {
        self.failures > 0 && now.since(self.since) < window
    }

    /// Opens a fresh window where the last one is over.
    fn turn(&mut self, now: Time, window: Duration) {
        if !self.is_live(now, window) {
            self.since = now;
            self.failures = 0;
        }
    }
}

/// One of 64 marks, by name: indices change when the configuration does.
fn mark(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    1 << (hasher.finish() % 64)
}

/// The address as far as one client owns it.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
