//! Who may be connected: a place for each connection, and who makes room.
//!
//! Decides which connections end when there are too many. One that asks for
//! something, its request read to the end, keeps its place until the answer is
//! over; one that does not is *silent*, whether it has sent nothing, half a
//! head or half a body. A newcomer is always let in while anybody is silent:
//! the one that has been for longest goes. So whoever holds thousands of
//! connections open crowds out himself, and a client that comes with a request
//! is served. Where there is room and it is only that one address has too many,
//! the oldest of those has a last chance first: it may have spoken while this
//! process was too busy to listen. Invariant: never more places taken than there
//! are.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::telemetry::Crowd;

/// How long a newcomer may be silent, whoever else comes from its address, and
/// how long it has to speak once it is in doubt.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// In all.
    pub(super) total: usize,
    /// From one address (one /64 of IPv6), of those that are silent for longer
    /// than [`GRACE`] and have had no good answer yet.
    pub(super) strangers: usize,
}

/// The places of a listener. A clone is the same places.
#[derive(Clone)]
pub(super) struct Places(Arc<Shared>);

struct Shared {
    /// How much room there is at the moment.
    room: Box<dyn Fn() -> Room + Send + Sync>,
    /// Locked for a few steps of a map at a time.
    book: Mutex<Book>,
}

/// The place of one connection; dropping it leaves.
#[derive(Debug)]
pub struct Place {
    places: Places,
    id: u64,
    /// Ends when the connection must make room.
    make_room: Option<oneshot::Receiver<()>>,
    /// Told when it must speak or leave.
    doubts: Arc<Notify>,
}

/// Where the requests of one connection report to.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    places: Places,
    id: u64,
}

/// One request of a connection, from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct Asked {
    connection: Reports,
    /// Whether it was read to its end.
    read: bool,
}

#[derive(Debug, Default)]
struct Book {
    last: u64,
    taken: HashMap<u64, Entry>,
    /// The silent ones, by the order in which they fell silent.
    silent: BTreeMap<u64, u64>,
    /// Of each address, those of them that had no good answer yet.
    strangers: HashMap<IpAddr, BTreeMap<u64, u64>>,
    crowded_out: u64,
    turned_away: u64,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Requests that were read to their end and are not over.
    asking: u32,
    known: bool,
    /// It was told to speak or leave, and has not spoken since.
    doubted: bool,
    /// Half a request has ended a doubt in this silence; it does so once.
    excused: bool,
    doubts: Arc<Notify>,
    /// Its turn among the silent ones, and since when; `None` while it asks.
    silent: Option<(u64, Instant)>,
    /// Dropped or sent to where it must make room.
    _leave: oneshot::Sender<()>,
}

// === impl Room ===

impl Room {
    /// As many as wished, so that each can have a connection to a backend too
    /// and some of the `files` this process may open are left.
    pub(super) fn within(self, files: u64) -> Self {
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        let most = (files.saturating_sub(RESERVE) / 2).max(1);
        Self {
            total: self.total.min(most),
            ..self
        }
    }
}

/// Files kept for listeners, probes, logs, tokenizers and the operator.
const RESERVE: usize = 128;

// === impl Places ===

impl Places {
    /// As many as `room` says whenever a connection comes.
    pub(super) fn new(room: impl Fn() -> Room + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            room: Box::new(room),
            book: Mutex::default(),
        }))
    }

    /// A place for a connection from `address`, where there is one.
    pub(super) fn enter(&self, address: IpAddr) -> Option<Place> {
        let room = (self.0.room)();
        let (leave, make_room) = oneshot::channel();
        let doubts = Arc::new(Notify::new());
        let entry = Entry {
            address: network(address),
            asking: 0,
            known: false,
            doubted: false,
            excused: false,
            doubts: Arc::clone(&doubts),
            silent: None,
            _leave: leave,
        };
        let id = self.book().enter(entry, room)?;
        Some(Place {
            places: self.clone(),
            id,
            make_room: Some(make_room),
            doubts,
        })
    }

    /// Ends the connection that has been silent for longest; says whether there
    /// was one.
    pub(super) fn make_room(&self) -> bool {
        self.book().crowd_out_oldest()
    }

    /// What there is to see.
    pub(super) fn crowd(&self) -> Crowd {
        let book = self.book();
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        Crowd {
            open: count(book.taken.len()),
            silent: count(book.silent.len()),
            crowded_out: book.crowded_out,
            turned_away: book.turned_away,
        }
    }

    /// Nothing under this lock panics half way.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one address: whoever has one of IPv6 has a /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

// === impl Place ===

impl Place {
    /// Ends when this connection must make room for another. To be polled behind
    /// what reads the connection, so that what has come counts; a last chance
    /// begins when this is polled, and is lost if it is dropped then.
    pub(super) async fn crowded_out(&mut self) {
        let (places, doubts, id) = (&self.places, &self.doubts, self.id);
        let Some(make_room) = &mut self.make_room else {
            return;
        };
        loop {
            let last_chance = async {
                doubts.notified().await;
                tokio::time::sleep(GRACE).await;
                places.book().still_in_doubt(id)
            };
            tokio::select! {
                // Nothing is ever sent: the entry goes, and the sender with it.
                _ = &mut *make_room => break,
                leaves = last_chance => if leaves { break },
            }
        }
        self.make_room = None;
    }

    /// What its requests report to.
    pub(super) fn reports(&self) -> Reports {
        Reports {
            places: self.places.clone(),
            id: self.id,
        }
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Places").field(&self.crowd()).finish()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.book().remove(self.id);
    }
}

// === impl Reports ===

impl Reports {
    /// A request whose head is there.
    pub(super) fn asked(&self) -> Asked {
        self.places.book().begins_to_ask(self.id);
        Asked {
            connection: self.clone(),
            read: false,
        }
    }

    /// Ends once the connection has been silent for `limit` without a break.
    pub(super) async fn silent_for(&self, limit: Duration) {
        loop {
            let now = Instant::now();
            let since = self.since().unwrap_or(now);
            if since + limit <= now {
                return;
            }
            tokio::time::sleep_until(since + limit).await;
        }
    }

    fn since(&self) -> Option<Instant> {
        let book = self.places.book();
        Some(book.taken.get(&self.id)?.silent?.1)
    }
}

// === impl Asked ===

impl Asked {
    /// The request was read to its end: the connection is silent no longer.
    pub(super) fn was_read(&mut self) {
        if !std::mem::replace(&mut self.read, true) {
            self.connection.places.book().asks(self.connection.id);
        }
    }

    /// The answer was a good one: this is no stranger.
    pub(super) fn went_well(&self) {
        self.connection.places.book().known(self.connection.id);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.read {
            self.connection.places.book().is_over(self.connection.id);
        }
    }
}

// === impl Book ===

impl Book {
    fn enter(&mut self, entry: Entry, room: Room) -> Option<u64> {
        if self.taken.len() >= room.total && !self.crowd_out_oldest() {
            self.turned_away += 1;
            return None;
        }
        // Two for one, so that a crowd shrinks even if it came within the grace.
        self.doubt_stranger(entry.address, room);
        self.doubt_stranger(entry.address, room);
        self.last += 1;
        let id = self.last;
        self.taken.insert(id, entry);
        self.fall_silent(id);
        Some(id)
    }

    fn crowd_out_oldest(&mut self) -> bool {
        let oldest = self.silent.first_key_value().map(|(_, id)| *id);
        oldest.is_some_and(|id| self.crowd_out(id))
    }

    /// Tells the oldest stranger from `address` to speak or leave, where there
    /// are too many. It is none of them any more.
    fn doubt_stranger(&mut self, address: IpAddr, room: Room) {
        let Some(strangers) = self.strangers.get_mut(&address) else {
            return;
        };
        if strangers.len() < room.strangers {
            return;
        }
        let Some(oldest) = strangers.first_entry() else {
            return;
        };
        let Some(entry) = self.taken.get_mut(oldest.get()) else {
            return;
        };
        let is_old = |(_, since): (u64, Instant)| since.elapsed() >= GRACE;
        if entry.silent.is_some_and(is_old) {
            entry.doubted = true;
            entry.doubts.notify_one();
            oldest.remove();
        }
    }

    /// Whether the last chance of a connection was for nothing; if so, it is out.
    fn still_in_doubt(&mut self, id: u64) -> bool {
        let in_doubt = self.taken.get(&id).is_some_and(|entry| entry.doubted);
        in_doubt && self.crowd_out(id)
    }

    fn crowd_out(&mut self, id: u64) -> bool {
        self.crowded_out += 1;
        self.remove(id)
    }

    /// Takes it out, which tells it to leave where it has not left.
    fn remove(&mut self, id: u64) -> bool {
        self.speak(id);
        self.taken.remove(&id).is_some()
    }

    /// A head came: if that is the answer to a doubt, the rest of the request
    /// may not have been read yet either.
    fn begins_to_ask(&mut self, id: u64) {
        let Some(entry) = self.taken.get_mut(&id) else {
            return;
        };
        if entry.doubted && !entry.excused {
            self.speak(id);
            self.fall_silent(id);
            if let Some(entry) = self.taken.get_mut(&id) {
                entry.excused = true;
            }
        }
    }

    fn asks(&mut self, id: u64) {
        self.speak(id);
        if let Some(entry) = self.taken.get_mut(&id) {
            entry.asking += 1;
            entry.excused = false;
        }
    }

    fn is_over(&mut self, id: u64) {
        let Some(entry) = self.taken.get_mut(&id) else {
            return;
        };
        entry.asking -= 1;
        if entry.asking == 0 {
            self.fall_silent(id);
        }
    }

    fn known(&mut self, id: u64) {
        if let Some(entry) = self.taken.get_mut(&id) {
            entry.known = true;
        }
    }

    fn fall_silent(&mut self, id: u64) {
        let Some(entry) = self.taken.get_mut(&id) else {
            return;
        };
        self.last += 1;
        let turn = self.last;
        entry.silent = Some((turn, Instant::now()));
        self.silent.insert(turn, id);
        if !entry.known {
            let strangers = self.strangers.entry(entry.address).or_default();
            strangers.insert(turn, id);
        }
    }

    fn speak(&mut self, id: u64) {
        let Some(entry) = self.taken.get_mut(&id) else {
            return;
        };
        entry.doubted = false;
        let Some((turn, _)) = entry.silent.take() else {
            return;
        };
        self.silent.remove(&turn);
        if let Some(strangers) = self.strangers.get_mut(&entry.address) {
            strangers.remove(&turn);
            if strangers.is_empty() {
                self.strangers.remove(&entry.address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
