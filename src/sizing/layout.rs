//! How vLLM lays a model's caches out in blocks.
//!
//! Decides groups, block size and bytes per block as its
//! `v1/core/kv_cache_utils.py` does: layers that keep the same go into groups of
//! equal size, all groups draw on one pool, so one block is as large as the
//! largest group's layers need. Small pages get more tokens per block, states
//! are padded to the attention's page. Never rounds up what it promises.

use super::engine::{Device, Engine, Version};
use super::model::{Cache, Kind, Model, Span, State};

/// The caches of a model under one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Groups that each need blocks of their own.
    pub groups: Vec<Group>,
    /// Bytes of one block on the GPU that needs most.
    pub block_bytes: u64,
    /// Tokens of the smallest block, over all ranks that share a sequence.
    pub block_size: u64,
    /// Bytes one token takes in all attention layers of one GPU, rounded up.
    pub token_bytes: u64,
    /// Of those, bytes that stay as a sequence grows past all windows.
    pub growing_bytes: u64,
    /// Bytes of state one sequence holds on one GPU whatever its length.
    pub state_bytes: u64,
    version: Version,
}

/// Layers that share a table of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Layers, over all stages.
    pub layers: u64,
    /// Blocks it needs for a length.
    pub need: Need,
}

/// Blocks a group needs for one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// One for every so many tokens.
    Full {
        /// Tokens of a block, over the ranks that share a sequence.
        block: u64,
    },
    /// Those of the last tokens, and one more.
    Window {
        /// Tokens of a block.
        block: u64,
        /// Tokens kept: the window and what is in flight.
        kept: u64,
    },
    /// Those of a chunk and what is in flight.
    Chunk {
        /// Tokens of a block.
        block: u64,
        /// Tokens kept.
        kept: u64,
    },
    /// A fixed number.
    State {
        /// Blocks.
        blocks: u64,
    },
}

/// One layer's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    layer: u64,
    kind: Kind,
    /// Tokens of its block.
    block: u64,
    /// Bytes of its block.
    bytes: u64,
}

// === impl Layout ===

impl Layout {
    /// Lays out `model` under `engine`.
    #[must_use]
    pub fn new(model: &Model, engine: &Engine) -> Self {
        let pages = pages(model, engine);
        let groups = if uniform(&pages) {
            vec![pages.clone()]
        } else {
            grouped(unified(pages.clone()), engine.version)
        };
        let stages = stages(model.layers, engine.parallel.pipeline);
        let bytes = stages.iter().map(|stage| {
            let of = |group: &Vec<Page>| -> u64 {
                let within = group.iter().filter(|page| stage.contains(&page.layer));
                total(within.map(|page| page.bytes))
            };
            groups.iter().map(of).max().unwrap_or(0)
        });
        let needs = groups.iter().filter_map(|group| {
            let first = group.first()?;
            Some(Group {
                layers: group.len() as u64,
                need: need(first, engine),
            })
        });
        let needs: Vec<Group> = needs.collect();
        let heaviest = |counts: &dyn Fn(&Cache) -> bool| {
            let sums = stages.iter().map(|stage| {
                let caches = model.caches.iter();
                let caches = caches.filter(|cache| stage.contains(&cache.layer) && counts(cache));
                total(caches.map(|cache| kept(cache.kind, engine)))
            });
            sums.max().unwrap_or(0)
        };
        let context = engine.parallel.context;
        Self {
            block_bytes: bytes.max().unwrap_or(1).max(1),
            block_size: needs
                .iter()
                .filter_map(|group| group.need.block())
                .min()
                .unwrap_or(1),
            token_bytes: heaviest(&|cache| cache.kind.grows()).div_ceil(context),
            growing_bytes: heaviest(&|cache| grows(cache.kind, engine.version)).div_ceil(context),
            state_bytes: heaviest(&|cache| !cache.kind.grows()).saturating_mul(engine.states()),
            groups: needs,
            version: engine.version,
        }
    }

    /// Blocks in `bytes`, the null block among them.
    #[must_use]
    pub fn blocks(&self, bytes: u64) -> u64 {
        bytes / self.block_bytes
    }

    /// Blocks a sequence of `tokens` holds at most, over all groups.
    #[must_use]
    pub fn blocks_of(&self, tokens: u64) -> u64 {
        total(self.groups.iter().map(|group| group.need.blocks(tokens)))
    }

    /// The size in tokens as vLLM logs it: from 0.21 on concurrency times
    /// `context`, before that blocks times tokens over groups. Rounded down.
    #[must_use]
    pub fn tokens(&self, blocks: u64, context: u64) -> u64 {
        if self.version.logs_by_concurrency() {
            let needed = u128::from(self.blocks_of(context).max(1));
            let tokens = u128::from(blocks) * u128::from(context) / needed;
            return u64::try_from(tokens).unwrap_or(u64::MAX);
        }
        let groups = self.groups.len().max(1) as u64;
        (blocks / groups).saturating_mul(self.block_size)
    }

    /// Sequences of `context` tokens that `blocks` hold, as vLLM logs it; its
    /// figure has the null block in it.
    #[must_use]
    pub fn concurrency(&self, blocks: u64, context: u64) -> f64 {
        approximate(blocks) / approximate(self.blocks_of(context).max(1))
    }

    /// The longest context up to `most` that one sequence can have; 0 where
    /// none fits.
    #[must_use]
    pub fn longest(&self, blocks: u64, most: u64) -> u64 {
        let usable = blocks.saturating_sub(u64::from(self.version.checks_null_block()));
        let (mut fits, mut not) = (0, most.saturating_add(1));
        while not - fits > 1 {
            let middle = fits + (not - fits) / 2;
            if self.blocks_of(middle) <= usable {
                fits = middle;
            } else {
                not = middle;
            }
        }
        fits
    }
}

// === impl Need ===

impl Need {
    /// Tokens of a block, where it holds tokens.
    fn block(self) -> Option<u64> {
        match self {
            Self::Full { block } | Self::Window { block, .. } | Self::Chunk { block, .. } => {
                Some(block)
            }
            Self::State { .. } => None,
        }
    }

    /// `max_admission_blocks_per_request` of vLLM's v1/kv_cache_interface.py.
    fn blocks(self, tokens: u64) -> u64 {
        match self {
            Self::Full { block } => tokens.div_ceil(block),
            Self::Window { block, kept } => tokens.min(kept).div_ceil(block) + 1,
            Self::Chunk { block, kept } => tokens.min(kept).div_ceil(block),
            Self::State { blocks } => blocks,
        }
    }
}

/// A count as a float; exact up to 2^53, which no pool reaches.
pub(super) fn approximate(count: u64) -> f64 {
    let high = u32::try_from(count >> 32).expect("32 of 64 bits");
    let low = u32::try_from(count & u64::from(u32::MAX)).expect("32 of 64 bits");
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

/// A sum that stays at the most 64 bits hold: no card has as much.
fn total(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// Bytes a layer keeps per token, or per sequence for a state, on one GPU.
fn kept(kind: Kind, engine: &Engine) -> u64 {
    let tensor = engine.parallel.tensor;
    match kind {
        Kind::Attention {
            kv_heads, width, ..
        } => (kv_heads / tensor).max(1) * engine.kv.bytes(width),
        Kind::Latent { width, index } => engine.kv.latent_bytes(width, index),
        Kind::State(state) => state_bytes(state, tensor),
    }
}

/// Whether a layer's cache grows without end.
fn grows(kind: Kind, version: Version) -> bool {
    match kind {
        Kind::Attention { span, .. } => span == Span::Full || !version.keeps_windows(),
        Kind::Latent { .. } => true,
        Kind::State(_) => false,
    }
}

/// Bytes of a state on one of `tensor` ranks; groups that do not divide are
/// copied so that each rank has one.
fn state_bytes(state: State, tensor: u64) -> u64 {
    let groups = match state.groups {
        0 => 0,
        groups if groups.is_multiple_of(tensor) => groups,
        groups => groups + tensor.saturating_sub(groups),
    };
    let channels = (state.channels + 2 * groups * state.group_width) / tensor;
    channels * state.steps * 2 + state.cells / tensor * state.cell_bytes
}

/// One page per cache, before they are made equal.
fn pages(model: &Model, engine: &Engine) -> Vec<Page> {
    let latent = model
        .caches
        .iter()
        .any(|cache| matches!(cache.kind, Kind::Latent { .. }));
    let base = match (engine.block, engine.device) {
        (Some(block), _) => block,
        (None, Device::Cpu) => 128,
        (None, Device::Gpu) if latent => 64,
        (None, Device::Gpu) => 16,
    };
    let sizes = |grows: bool| {
        let caches = model
            .caches
            .iter()
            .filter(move |cache| cache.kind.grows() == grows);
        caches.map(|cache| kept(cache.kind, engine)).max()
    };
    let token = sizes(true).unwrap_or(1).max(1);
    let block = match sizes(false) {
        Some(state) => aligned(base, latent, state, token),
        None => base,
    };
    let page = |cache: &Cache| Page {
        layer: cache.layer,
        kind: seen(cache.kind, engine.version),
        block,
        bytes: match cache.kind {
            Kind::State(_) => block.saturating_mul(token),
            kind => block.saturating_mul(kept(kind, engine)),
        },
    };
    model.caches.iter().map(page).collect()
}

/// A layer as the version keeps it: windows are kept whole before 0.10.
fn seen(kind: Kind, version: Version) -> Kind {
    match kind {
        Kind::Attention {
            kv_heads, width, ..
        } if !version.keeps_windows() => Kind::Attention {
            kv_heads,
            width,
            span: Span::Full,
        },
        kind => kind,
    }
}

/// Tokens of a block whose page holds a state (`_align_hybrid_block_size`).
fn aligned(base: u64, latent: bool, state: u64, token: u64) -> u64 {
    let step = if latent { base.max(128) } else { base.max(16) };
    let block = step * state.div_ceil(step * token);
    block.max(base)
}

/// Whether all pages need the same blocks for every length.
fn uniform(pages: &[Page]) -> bool {
    let Some(first) = pages.first() else {
        return true;
    };
    pages.iter().all(|page| alike(page.kind, first.kind))
}

/// Whether two layers need blocks alike; their widths may differ.
fn alike(one: Kind, other: Kind) -> bool {
    match (one, other) {
        (Kind::Attention { span: one, .. }, Kind::Attention { span: other, .. }) => one == other,
        (Kind::Latent { .. }, Kind::Latent { .. }) => true,
        (Kind::State(one), Kind::State(other)) => one == other,
        _ => false,
    }
}

/// Pages of one size: a small one gets more tokens where it divides the
/// largest, and is padded where not (`unify_kv_cache_spec_page_size`).
fn unified(mut pages: Vec<Page>) -> Vec<Page> {
    let largest = pages.iter().map(|page| page.bytes).max().unwrap_or(1);
    for page in &mut pages {
        if page.kind.grows() && largest.is_multiple_of(page.bytes.max(1)) {
            page.block = page.block.saturating_mul(largest / page.bytes.max(1));
        }
        page.bytes = largest;
    }
    pages
}

/// Groups of equal size (`_get_kv_cache_groups_uniform_page_size`).
fn grouped(pages: Vec<Page>, version: Version) -> Vec<Vec<Page>> {
    let mut buckets: Vec<Vec<Page>> = Vec::new();
    for page in pages {
        let same = |bucket: &&mut Vec<Page>| {
            let first = bucket.first();
            first.is_some_and(|first| alike(first.kind, page.kind) && first.block == page.block)
        };
        match buckets.iter_mut().find(same) {
            Some(bucket) => bucket.push(page),
            None => buckets.push(vec![page]),
        }
    }
    let least = buckets.iter().map(Vec::len).min().unwrap_or(1);
    let most = buckets.iter().map(Vec::len).max().unwrap_or(1);
    // Padding the smaller kind wastes less than halving the larger: below 1.25
    // times (0.11), 1.5 times (0.32).
    let hundredths = if version < Version::new(25) { 125 } else { 150 };
    let size = if most * 100 < least * hundredths {
        most
    } else {
        least
    };
    let split = |bucket: Vec<Page>| {
        let count = bucket.len().div_ceil(size);
        (0..count)
            .map(move |first| {
                bucket
                    .iter()
                    .skip(first)
                    .step_by(count)
                    .copied()
                    .collect::<Vec<_>>()
            })
            .collect::<Vec<_>>()
    };
    buckets.into_iter().flat_map(split).collect()
}

fn need(page: &Page, engine: &Engine) -> Need {
    let flight = engine.in_flight();
    let block = page.block;
    let full = Need::Full {
        block: block.saturating_mul(engine.parallel.context),
    };
    match page.kind {
        Kind::State(_) => Need::State {
            blocks: engine.states(),
        },
        Kind::Attention { span, .. } => match span {
            Span::Full => full,
            Span::Window(window) => Need::Window {
                block,
                kept: (window - 1).saturating_add(flight),
            },
            Span::Chunk(chunk) => Need::Chunk {
                block,
                kept: chunk.saturating_add(flight),
            },
        },
        Kind::Latent { .. } => full,
    }
}

/// The layers of each pipeline stage (`get_pp_indices` of vLLM's
/// distributed/utils.py): what does not divide goes to the stages before the
/// last, from the back.
fn stages(layers: u64, count: u64) -> Vec<std::ops::Range<u64>> {
    let (each, rest) = (layers / count, layers % count);
    let mut next = 0;
    (0..count)
        .map(|stage| {
            let more = stage + 1 < count && stage + 1 + rest >= count;
            let first = next;
            next = first + each + u64::from(more);
            first..next
        })
        .collect()
}
