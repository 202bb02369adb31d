//! Counting by stretch: between added tokens, in chunks, out of the cache.
//!
//! Decides how a text is parted and which engine counts each part. Never cuts
//! where the tokens of the whole could differ. Invariant: what it counts is what
//! the fast engine counts for the whole text.
//!
//! ```text
//!  text ─► added tokens ─► stretches ─► chunks ─► seen before? ─► fast, or tail
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use super::cuts::Family;
use super::marks::{Marks, Stretch};
use super::tally::Tally;
use super::{AddSpecial, AddedTokens, Counted, Encoding, Engines, FAST_BYTES};

/// Bytes of one chunk: small enough that time and abandonment are looked at many
/// times a millisecond, large enough that looking costs nothing.
const CHUNK_BYTES: usize = 16 * 1024;

/// What counting by stretch needs to know of a vocabulary.
pub(super) struct Stretches {
    marks: Marks,
    /// Where stretches may be cut; `None` if nowhere.
    family: Option<Family>,
    /// Tokens of the post-processor.
    frame: u64,
    cache: Cache,
}

// === impl Stretches ===

impl Stretches {
    pub(super) fn new(marks: Marks, family: Option<Family>, frame: u64) -> Arc<Self> {
        Arc::new(Self {
            marks,
            family,
            frame,
            cache: Cache::new(),
        })
    }

    /// Counts `text` by `engines`, whose stretches these are; `None` if no engine
    /// counts some part of it.
    pub(super) fn count(
        &self,
        engines: &Engines,
        text: &str,
        encoding: Encoding,
        mut tally: Tally<'_>,
    ) -> Option<Counted> {
        if encoding.special == AddSpecial::Framed {
            tally.add(Counted::exactly(self.frame));
        }
        let mut rest = text;
        let mut failed = false;
        let mut each = |stretch: Stretch<'_>| {
            let left = self.stretch(engines, stretch, &mut tally);
            failed = left.is_none();
            let (Stretch::Mark(all) | Stretch::Plain(all) | Stretch::Unsure(all)) = stretch;
            let done = all.len() - left.unwrap_or(all.len());
            rest = &rest[done..];
            done == all.len()
        };
        let is_whole = match encoding.added {
            AddedTokens::Recognised => self.marks.part(text, each),
            AddedTokens::Ordinary => each(Stretch::Plain(text)),
        };
        match (failed, is_whole) {
            (true, _) => None,
            (false, true) => Some(tally.whole()),
            (false, false) => Some(tally.short_of(engines.bounds.most(rest))),
        }
    }

    /// Counts a stretch as far as effort goes, and gives the bytes that are left of
    /// it; `None` if no engine counts it.
    fn stretch(
        &self,
        engines: &Engines,
        stretch: Stretch<'_>,
        tally: &mut Tally<'_>,
    ) -> Option<usize> {
        let plain = match stretch {
            Stretch::Mark(_) => {
                tally.add(Counted::exactly(1));
                return Some(0);
            }
            Stretch::Plain(plain) => plain,
            Stretch::Unsure(text) => {
                let encoding = Encoding::recognised(AddSpecial::Bare);
                if tally.is_enough() || !tally.has_time_for(engines.time(text)) {
                    return Some(text.len());
                }
                tally.add(engines.whole(text, encoding)?);
                return Some(0);
            }
        };
        let mut rest = plain;
        while !rest.is_empty() {
            // Before anything else is done for a chunk, finding its end included.
            if tally.is_enough() || !tally.has_time_for(Duration::ZERO) {
                break;
            }
            let end = match self.family {
                Some(family) => family.chunk_end(rest, CHUNK_BYTES),
                None => rest.len(),
            };
            let Some(counted) = self.chunk(engines, &rest[..end], tally)? else {
                break;
            };
            tally.add(counted);
            rest = &rest[end..];
        }
        Some(rest.len())
    }

    /// Counts one chunk; the inner `None` if there is no time for it.
    #[expect(clippy::option_option, reason = "out of effort is not out of engines")]
    fn chunk(&self, engines: &Engines, chunk: &str, tally: &Tally<'_>) -> Option<Option<Counted>> {
        // The shortest too: what stands between the marks of a template comes again.
        let key = self.cache.key(chunk);
        if let Some(tokens) = self.cache.get(key) {
            return Some(Some(Counted::exactly(tokens)));
        }
        if chunk.len() > FAST_BYTES && !tally.has_time_for(engines.time(chunk)) {
            return Some(None);
        }
        let encoding = Encoding {
            special: AddSpecial::Bare,
            added: AddedTokens::Ordinary,
        };
        let counted = engines.whole(chunk, encoding)?;
        if counted.is_exact() {
            self.cache.insert(key, counted.tokens);
        }
        Some(Some(counted))
    }
}
