//! A lease as its account keeps it for looks at one moment, with what every look
//! asks worked out.
//!
//! Says exactly what its [`Runner`] says, several times faster: a look goes over all
//! leases of a backend. It is made anew whenever its lease has grown.

use super::sums::Moments;
use super::{Pools, Runner, SELDOM};
use crate::core::backend::Capacity;
use crate::core::footprint::{Shape, sequence_blocks};
use crate::core::lengths::Curve;
use crate::core::units::{Blocks, Tokens};

/// One lease.
#[derive(Clone, Debug)]
pub(in crate::core) struct Track {
    curve: Curve,
    generated: Tokens,
    pub(super) remaining: Tokens,
    /// Share of sequences of its kind that come as far as it has.
    came: f64,
    prefix: Blocks,
    pools: Pools,
    size: Size,
    /// What it holds in its last moment, in shares of a pool.
    last: f64,
}

/// What a look at blocks needs.
#[derive(Clone, Debug)]
enum Size {
    /// One sequence after a prompt of so many tokens.
    One(Tokens),
    Any(Box<Shape>),
}

/// A track at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Probability that it is there.
    pub(super) alive: f64,
    /// What it holds then; what it held last, where it has ended before.
    pub(super) mass: f64,
}

// === impl Track ===

impl Track {
    /// `runner` on a backend of `capacity`.
    pub(in crate::core) fn of(runner: Runner<'_>, capacity: &Capacity) -> Self {
        let size = match runner.shape.one_prompt() {
            Some(prompt) => Size::One(prompt),
            None => Size::Any(Box::new(runner.shape.clone())),
        };
        let mut track = Self {
            curve: runner.curve.clone(),
            generated: runner.generated,
            remaining: runner.remaining(),
            came: runner.curve.share_beyond(runner.generated),
            prefix: runner.prefix,
            pools: Pools::of(capacity),
            size,
            last: 0.0,
        };
        track.last = track.mass(track.remaining, capacity);
        track
    }

    /// How it stands when each sequence has emitted `ahead` more tokens.
    #[inline]
    pub(super) fn at(&self, ahead: Tokens, capacity: &Capacity) -> Point {
        if ahead > self.remaining {
            return Point {
                alive: 0.0,
                mass: self.last,
            };
        }
        let further = ahead.saturating_sub(Tokens::new(1));
        Point {
            alive: self.curve.given_after((self.generated, self.came), further),
            mass: self.mass(ahead, capacity),
        }
    }

    /// Whether what is there then is its matter, if it is a newcomer.
    pub(super) fn reaches(&self, ahead: Tokens, capacity: &Capacity) -> bool {
        self.at(ahead, capacity).alive >= SELDOM
    }

    /// What it adds then.
    pub(super) fn moments(&self, ahead: Tokens, capacity: &Capacity) -> Moments {
        self.at(ahead, capacity).moments()
    }

    fn mass(&self, ahead: Tokens, capacity: &Capacity) -> f64 {
        let then = self.generated.saturating_add(ahead);
        let blocks = match &self.size {
            Size::One(prompt) => sequence_blocks(*prompt, then, capacity),
            Size::Any(shape) => shape.blocks(then, capacity),
        };
        self.pools.share(blocks.saturating_sub(self.prefix))
    }

    /// Whether it says what `runner` says, as far as a few moments tell.
    pub(in crate::core) fn is_of(&self, runner: Runner<'_>, capacity: &Capacity) -> bool {
        let moments = [1, 17, 150, 2000].map(Tokens::new);
        self.remaining == runner.remaining()
            && moments
                .iter()
                .all(|&ahead| self.moments(ahead, capacity) == runner.moments(ahead, capacity))
    }
}

// === impl Point ===

impl Point {
    /// What it adds.
    pub(super) fn moments(self) -> Moments {
        Moments::of(self.alive, self.mass)
    }
}
