//! What backends have probably cached: the beginnings of prompts that went there.
//!
//! Keeps the engines' own order of reuse. Whatever a request leaves behind queues up
//! to be overwritten, its end before its beginning, and what is used again leaves the
//! queue; what no longer fits into the memory that nobody holds is forgotten from the
//! front. So it never has more beginnings of a backend than its pool has steps, and
//! traffic that shares nothing pushes out what is shared. A belief: it lowers the
//! prefill that is foreseen, and promises no memory.
//!
//! Invariant: whoever has a beginning has every shorter one of the same prompt.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::backend::BackendId;
use super::demand::{Demand, Work};
use super::pace::Prefill;
use super::prefix::{PrefixHash, PrefixTrail, TRAIL_STEP};
use super::units::Tokens;

/// Beginnings of a prompt that are each kept. Of twice as many every second is, of
/// four times as many every fourth: a long prompt costs little, and no more than an
/// eighth of what is cached is not seen.
const EACH: usize = 16;

/// Entries of a queue that may be out of date, beyond as many as are not.
const SLACK: usize = 64;

/// Beginnings on the backends of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlap {
    /// Who has a beginning, by generation.
    holders: HashMap<PrefixHash, Vec<Holding>, BuildHasherDefault<Spread>>,
    /// Each backend's, by generation.
    caches: BTreeMap<u32, Cache>,
}

/// One beginning on one backend, as far as it goes beyond the one kept before it.
#[derive(Clone, Copy, Debug)]
struct Holding {
    generation: u32,
    tokens: Tokens,
    /// Leases that run on it.
    users: u32,
    /// Its number in the queue while it has none.
    queued: u64,
}

/// What nobody uses on a backend, next to be overwritten first.
#[derive(Clone, Debug, Default)]
struct Cache {
    queue: VecDeque<Queued>,
    /// Entries that are not out of date, and their tokens.
    live: usize,
    tokens: Tokens,
    /// Tokens that leases hold together, each counted once for every lease but one.
    shared: Tokens,
    number: u64,
}

/// A beginning, or what is behind one.
#[derive(Clone, Copy, Debug)]
struct Queued {
    number: u64,
    beginning: Option<PrefixHash>,
    tokens: Tokens,
}

/// The prefill of a request on each backend, without what is cached there.
#[derive(Clone, Debug)]
pub(super) struct Uncached {
    whole: Prefill,
    prompt: Tokens,
    /// Tokens of its beginning, by generation; those without any are left out.
    cached: Vec<(u32, Tokens)>,
}

/// Hashes are spread already, but in the tests of those who count.
#[derive(Clone, Copy, Debug, Default)]
struct Spread(u64);

// === impl Spread ===

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}

// === impl Overlap ===

impl Overlap {
    /// A request of this trail goes to `id`. O(log of the trail).
    pub(super) fn on_sent(&mut self, id: BackendId, trail: &PrefixTrail) {
        if trail.hashes().is_empty() {
            return;
        }
        let generation = id.generation;
        let cache = self.caches.entry(generation).or_default();
        for (hash, tokens) in kept(trail) {
            let holders = self.holders.entry(hash).or_default();
            let place = match place_in(holders, generation) {
                Ok(place) if holders[place].users == 0 => {
                    cache.leave(holders[place].tokens);
                    place
                }
                Ok(place) => {
                    cache.shared += holders[place].tokens;
                    place
                }
                Err(place) => {
                    let new = Holding {
                        generation,
                        tokens,
                        users: 0,
                        queued: 0,
                    };
                    holders.insert(place, new);
                    place
                }
            };
            holders[place].users += 1;
        }
        cache.tidy(&self.holders, generation);
    }

    /// A request of this trail, which held `own` tokens of `id` at last, has ended.
    /// O(log of the trail).
    pub(super) fn on_ended(&mut self, id: BackendId, trail: &PrefixTrail, own: Tokens) {
        let generation = id.generation;
        let Some(cache) = self.caches.get_mut(&generation) else {
            return;
        };
        let kept: Vec<(PrefixHash, Tokens)> = kept(trail).collect();
        let known = kept.iter().map(|&(_, tokens)| tokens).sum();
        cache.join(None, own.saturating_sub(known));
        for (hash, _) in kept.into_iter().rev() {
            let Some(holders) = self.holders.get_mut(&hash) else {
                continue;
            };
            // One that was forgotten, or forgotten and sent again, may have no users.
            let place = place_in(holders, generation).ok();
            let Some(holding) = place.map(|place| &mut holders[place]) else {
                continue;
            };
            match holding.users {
                0 => {}
                1 => {
                    holding.users = 0;
                    holding.queued = cache.join(Some(hash), holding.tokens);
                }
                _ => {
                    holding.users -= 1;
                    cache.shared = cache.shared.saturating_sub(holding.tokens);
                }
            }
        }
        cache.tidy(&self.holders, generation);
    }

    /// Whether anything is known of `id`.
    pub(super) fn knows(&self, id: BackendId) -> bool {
        self.caches.contains_key(&id.generation)
    }

    /// The books leave `free` tokens of `id`: forgets what has been overwritten.
    /// Amortised O(1).
    pub(super) fn keep(&mut self, id: BackendId, free: Tokens) {
        let generation = id.generation;
        let Some(cache) = self.caches.get_mut(&generation) else {
            return;
        };
        let free = free.saturating_add(cache.shared);
        while let Some(&front) = cache.queue.front() {
            let holders = &mut self.holders;
            let current = is_current(holders, generation, &front);
            // What is behind a beginning says nothing once that is gone.
            if current && front.beginning.is_some() && cache.tokens <= free {
                break;
            }
            cache.queue.pop_front();
            if !current {
                continue;
            }
            cache.leave(front.tokens);
            if let Some(hash) = front.beginning {
                forget(holders, hash, generation);
            }
        }
    }

    /// The cache of `id` is empty, or the engine gone. O(beginnings of the pool).
    pub(super) fn forget(&mut self, id: BackendId) {
        if self.caches.remove(&id.generation).is_none() {
            return;
        }
        self.holders.retain(|_, holders| {
            holders.retain(|holding| holding.generation != id.generation);
            !holders.is_empty()
        });
    }

    /// The prefill of `demand` where so much of its beginning is cached.
    pub(super) fn prefill(cached: Tokens, demand: &Demand) -> Prefill {
        match cached {
            Tokens::ZERO => Prefill::of(demand),
            cached => after(cached, demand.prompt_total()),
        }
    }

    /// Tokens of the beginning of `demand`'s prompt that `id` probably has.
    pub(super) fn cached(&self, id: BackendId, demand: &Demand) -> Tokens {
        if !self.knows(id) || !is_cacheable(demand) {
            return Tokens::ZERO;
        }
        let hashes = demand.trail.hashes();
        let has = |hash: &PrefixHash| {
            let holders = self.holders.get(hash);
            holders.is_some_and(|holders| place_in(holders, id.generation).is_ok())
        };
        let deepest = deepest(hashes, has);
        within(deepest, demand.prompt_total())
    }

    /// The prefill of `demand` on each backend. O(log of its trail × backends).
    pub(super) fn uncached(&self, demand: &Demand) -> Uncached {
        let mut uncached = Uncached {
            whole: Prefill::of(demand),
            prompt: demand.prompt_total(),
            cached: Vec::new(),
        };
        if self.caches.is_empty() || !is_cacheable(demand) {
            return uncached;
        }
        let hashes = demand.trail.hashes();
        let known = deepest(hashes, |hash| self.holders.contains_key(hash));
        let all = hashes.first().and_then(|hash| self.holders.get(hash));
        let all = all.map_or(0, Vec::len);
        let cached = &mut uncached.cached;
        for nth in (0..known).rev() {
            if cached.len() >= all {
                break;
            }
            let Some(holders) = self.holders.get(&hashes[steps(nth) - 1]) else {
                continue;
            };
            // Those found have this one too: as many are the same.
            if holders.len() == cached.len() {
                continue;
            }
            let tokens = within(nth + 1, uncached.prompt);
            for holding in holders {
                let place = cached.binary_search_by_key(&holding.generation, |&(of, _)| of);
                if let Err(place) = place {
                    cached.insert(place, (holding.generation, tokens));
                }
            }
        }
        uncached
    }

    /// Whether every sum is what it is the sum of.
    pub(super) fn audit(&self) -> bool {
        let mut shared = BTreeMap::<u32, u64>::new();
        for holding in self.holders.values().flatten() {
            let more = u64::from(holding.users.saturating_sub(1)) * holding.tokens.get();
            *shared.entry(holding.generation).or_default() += more;
        }
        self.caches.iter().all(|(generation, cache)| {
            let current = |queued: &&Queued| is_current(&self.holders, *generation, queued);
            let live = cache.queue.iter().filter(current);
            let tokens: Tokens = live.clone().map(|queued| queued.tokens).sum();
            let more = shared.get(generation).copied().unwrap_or_default();
            (cache.live, cache.tokens) == (live.count(), tokens) && cache.shared.get() == more
        })
    }
}

// === impl Cache ===

impl Cache {
    /// Something is used no longer: its number in the queue.
    fn join(&mut self, beginning: Option<PrefixHash>, tokens: Tokens) -> u64 {
        if beginning.is_none() && (self.live == 0 || tokens.is_zero()) {
            return self.number;
        }
        self.number += 1;
        self.live += 1;
        self.tokens += tokens;
        self.queue.push_back(Queued {
            number: self.number,
            beginning,
            tokens,
        });
        self.number
    }

    /// Something is used again, or overwritten.
    fn leave(&mut self, tokens: Tokens) {
        self.live -= 1;
        self.tokens = self.tokens.saturating_sub(tokens);
    }

    /// Takes out what is out of date, where that is most of it.
    fn tidy(&mut self, holders: &Holders, generation: u32) {
        if self.queue.len() > 2 * self.live + SLACK {
            let queue = &mut self.queue;
            queue.retain(|queued| is_current(holders, generation, queued));
        }
    }
}

// === impl Uncached ===

impl Uncached {
    /// Whether any backend has something of it.
    pub(super) const fn is_shared(&self) -> bool {
        !self.cached.is_empty()
    }

    /// What is to be computed where nothing is cached.
    pub(super) const fn whole(&self) -> Prefill {
        self.whole
    }

    /// What is to be computed on `id`.
    pub(super) fn on(&self, id: BackendId) -> Prefill {
        match self.cached_on(id) {
            Tokens::ZERO => self.whole,
            cached => after(cached, self.prompt),
        }
    }

    /// Tokens of its beginning that `id` probably has.
    pub(super) fn cached_on(&self, id: BackendId) -> Tokens {
        let place = self
            .cached
            .binary_search_by_key(&id.generation, |&(of, _)| of);
        place.map_or(Tokens::ZERO, |place| self.cached[place].1)
    }
}

/// The prefill of `prompt`, of which so much is cached.
fn after(cached: Tokens, prompt: Tokens) -> Prefill {
    Prefill::new(prompt.saturating_sub(cached), cached)
}

type Holders = HashMap<PrefixHash, Vec<Holding>, BuildHasherDefault<Spread>>;

fn place_in(holders: &[Holding], generation: u32) -> Result<usize, usize> {
    holders.binary_search_by_key(&generation, |holding| holding.generation)
}

/// Whether what is queued still is what nobody uses.
fn is_current(holders: &Holders, generation: u32, queued: &Queued) -> bool {
    queued.beginning.is_none_or(|hash| {
        let holders = holders.get(&hash).map_or(&[][..], Vec::as_slice);
        let holding = place_in(holders, generation).map(|place| holders[place]);
        holding.is_ok_and(|holding| holding.users == 0 && holding.queued == queued.number)
    })
}

fn forget(holders: &mut Holders, hash: PrefixHash, generation: u32) {
    let Some(of) = holders.get_mut(&hash) else {
        return;
    };
    if let Ok(place) = place_in(of, generation) {
        of.remove(place);
    }
    if of.is_empty() {
        holders.remove(&hash);
    }
}

/// Whether an engine may have its beginning, and we know which: one prompt, and an
/// answer.
pub(super) fn is_cacheable(demand: &Demand) -> bool {
    demand.work == Work::Generate && demand.prompts.len() == 1
}

/// Steps of the `nth` beginning that is kept, from 0.
const fn steps(nth: usize) -> usize {
    if nth < EACH {
        return nth + 1;
    }
    let (octave, place) = ((nth - EACH) / (EACH / 2), (nth - EACH) % (EACH / 2));
    (EACH << octave) + ((place + 1) << (octave + 1))
}

/// The beginnings of `trail` that are kept, shortest first, and how far each goes
/// beyond the one before.
fn kept(trail: &PrefixTrail) -> impl Iterator<Item = (PrefixHash, Tokens)> {
    let hashes = trail.hashes();
    let mut before = 0;
    (0..)
        .map(steps)
        .take_while(|&steps| steps <= hashes.len())
        .map(move |steps| {
            let more = steps - std::mem::replace(&mut before, steps);
            (hashes[steps - 1], tokens(more))
        })
}

/// How many of the kept beginnings are there, where each has every shorter one.
fn deepest(hashes: &[PrefixHash], has: impl Fn(&PrefixHash) -> bool) -> usize {
    let all = (0..).take_while(|&nth| steps(nth) <= hashes.len()).count();
    let (mut there, mut gone) = (0, all + 1);
    while gone - there > 1 {
        let middle = there.midpoint(gone);
        if has(&hashes[steps(middle - 1) - 1]) {
            there = middle;
        } else {
            gone = middle;
        }
    }
    there
}

/// Tokens of so many kept beginnings of `prompt`, of which an engine computes the
/// last token in any case.
fn within(kept: usize, prompt: Tokens) -> Tokens {
    let whole = kept.checked_sub(1).map_or(0, steps);
    tokens(whole).min(prompt.saturating_sub(Tokens::new(1)))
}

fn tokens(steps: usize) -> Tokens {
    Tokens::new(TRAIL_STEP) * u64::try_from(steps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
