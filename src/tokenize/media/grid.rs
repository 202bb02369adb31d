//! The arithmetic of the rules, as the processors do it.
//!
//! Never reads a file or a request. Invariant: the same rounding as the
//! processors', which work in double precision and round half to even.

use super::header::Size;

/// Images longer than this many times their width are refused by the processor.
const STEEPEST: f64 = 200.0;
/// Grids of more tiles than this are no model's.
const MOST_TILES: u64 = 64;

/// Sides in whole units whose product lies between two areas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    unit: f64,
    least: f64,
    most: f64,
}

/// Rows of merged patches, each with an end, and a longest side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    longest: f64,
    patch: u64,
}

/// A grid of tiles of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Pixels of a tile's side.
    pub(super) side: u64,
    /// Tokens of one tile.
    pub(super) tokens: u64,
    pub(super) fewest: u64,
    pub(super) most: u64,
    /// Whether a grid of several tiles is followed by the whole image in one.
    pub(super) overview: bool,
}

// === impl Area ===

impl Area {
    /// `unit` in pixels, both areas in square pixels.
    pub(super) fn new(unit: u64, least: u64, most: u64) -> Option<Self> {
        (unit > 0 && least <= most && unit * unit <= most).then(|| Self {
            unit: real(unit),
            least: real(least),
            most: real(most),
        })
    }

    /// Merged patches of an image; `None` for one too long and narrow. An image
    /// turned by a quarter has as many.
    pub(super) fn tokens(&self, size: Size) -> Option<u64> {
        let (height, width) = (f64::from(size.height), f64::from(size.width));
        if height.max(width) / height.min(width) > STEEPEST {
            return None;
        }
        let unit = self.unit;
        let nearest = |side: f64| (side / unit).round_ties_even();
        let area = nearest(height) * unit * nearest(width) * unit;
        let (rows, columns) = if area > self.most {
            let factor = (height * width / self.most).sqrt();
            let down = |side: f64| (side / factor / unit).floor().max(1.0);
            (down(height), down(width))
        } else if area < self.least {
            let factor = (self.least / (height * width)).sqrt();
            let up = |side: f64| (side * factor / unit).ceil();
            (up(height), up(width))
        } else {
            (nearest(height), nearest(width))
        };
        whole(rows * columns)
    }

    /// No resize leaves more than the largest area, a strip of one unit, or the
    /// smallest area with both sides rounded up.
    pub(super) fn most(&self) -> u64 {
        let units = |area: f64| area / (self.unit * self.unit);
        let least = units(self.least);
        let sides = least.sqrt() * (STEEPEST.sqrt() + 1.0);
        let most = units(self.most).max(STEEPEST).max(least + sides + 1.0);
        whole(most).unwrap_or(u64::MAX)
    }
}

// === impl Rows ===

impl Rows {
    /// Both in pixels.
    pub(super) fn new(longest: u64, patch: u64) -> Option<Self> {
        (patch > 0).then(|| Self {
            longest: real(longest),
            patch,
        })
    }

    /// Patches and row ends.
    pub(super) fn tokens(&self, size: Size) -> u64 {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let factor = (width / self.longest).max(height / self.longest);
        let side = |side: f64| {
            let side = if factor > 1.0 {
                (side / factor).floor()
            } else {
                side
            };
            whole(side).unwrap_or(u64::MAX).max(1).div_ceil(self.patch)
        };
        let (columns, rows) = (side(width), side(height));
        columns.saturating_add(1).saturating_mul(rows)
    }

    /// A square of the longest side.
    pub(super) fn most(&self) -> u64 {
        let side = whole(self.longest).unwrap_or(u64::MAX).div_ceil(self.patch);
        side.saturating_mul(side.saturating_add(1))
    }
}

// === impl Tiles ===

impl Tiles {
    /// Itself, if a processor could work with it.
    pub(super) fn checked(self) -> Option<Self> {
        let possible = self.side > 0
            && self.tokens > 0
            && (1..=MOST_TILES).contains(&self.most)
            && (1..=self.most).contains(&self.fewest);
        possible.then_some(self)
    }

    /// Tokens of all tiles. O(tiles of the largest grid, squared).
    pub(super) fn tokens(&self, size: Size) -> u64 {
        self.of(self.nearest(size))
    }

    /// The largest grid.
    pub(super) fn most(&self) -> u64 {
        self.of(self.most)
    }

    fn of(&self, tiles: u64) -> u64 {
        let overview = u64::from(self.overview && tiles != 1);
        (tiles + overview).saturating_mul(self.tokens)
    }

    /// Tiles of the grid whose shape is nearest to the image's; among grids of one
    /// shape the largest that the image fills by half.
    fn nearest(&self, size: Size) -> u64 {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let shape = width / height;
        let half = 0.5 * real(self.side) * real(self.side);
        let (mut nearest, mut best) = (f64::INFINITY, 1);
        for tiles in self.fewest..=self.most {
            for columns in (1..=tiles).filter(|columns| tiles.is_multiple_of(*columns)) {
                let off = (shape - real(columns) / real(tiles / columns)).abs();
                let fills = width * height > half * real(tiles);
                if off < nearest || (off == nearest && fills) {
                    (nearest, best) = (off, tiles);
                }
            }
        }
        best
    }
}

/// A count as the processors' floating-point number.
fn real(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "pixels and tiles are below 2^53"
    )]
    let real = count as f64;
    real
}

/// A number that is whole already, or is to be rounded down.
pub(super) fn whole(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie in the range of exact numbers"
    )]
    (0.0..9e15).contains(&number).then_some(number as u64)
}
