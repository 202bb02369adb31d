//! vLLM's scheduler: who computes how many tokens in the next step, who is preempted.
//!
//! [`Scheduler::plan`] decides a step, [`Scheduler::collect`] takes in the results of the
//! oldest planned one. It knows no time beyond stamping events.

use std::collections::{BTreeMap, VecDeque};

use super::blocks::{BlockIndex, Pool};
use super::sequence::{Sequence, SequenceId, Sequences};
use super::step_time::Batch;
use super::{EngineSpec, EngineStats, FinishReason, OnOverflow, RequestId, SimEvent, SimRequest};
use crate::core::backend::PrefixCaching;
use crate::core::time::Time;
use crate::core::units::{Blocks, Tokens};

#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    spec: EngineSpec,
    pool: Pool,
    requests: BTreeMap<RequestId, Live>,
    sequences: Sequences,
    running: Vec<SequenceId>,
    waiting: VecDeque<SequenceId>,
    /// Planned steps whose results are not in yet, oldest first: the sequences that get a token.
    planned: VecDeque<Vec<SequenceId>>,
    next_request: u64,
    counters: EngineStats,
}

/// What is left of a request.
#[derive(Clone, Debug)]
struct Live {
    sequences: Vec<SequenceId>,
    declared: Blocks,
}

/// A step while it is being planned.
#[derive(Default)]
struct Plan {
    budget: Tokens,
    batch: Batch,
    emitting: Vec<SequenceId>,
    preempted: bool,
}

// === impl Scheduler ===

impl Scheduler {
    pub(super) fn new(spec: EngineSpec) -> Self {
        Self {
            pool: Pool::new(spec.blocks),
            spec,
            requests: BTreeMap::new(),
            sequences: Sequences::default(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            planned: VecDeque::new(),
            next_request: 0,
            counters: EngineStats::default(),
        }
    }

    pub(super) fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    pub(super) fn has_work(&self) -> bool {
        !self.sequences.is_empty()
    }

    pub(super) fn is_live(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    pub(super) fn stats(&self) -> EngineStats {
        EngineStats {
            running: u32::try_from(self.running.len()).unwrap_or(u32::MAX),
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            used: self.used(),
            usable: self.spec.usable(),
            ..self.counters
        }
    }

    pub(super) fn add(&mut self, request: SimRequest) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let room = self.spec.max_model_len.saturating_sub(request.prompt);
        assert!(
            !room.is_zero(),
            "a prompt of {} tokens leaves no room in a context of {}",
            request.prompt,
            self.spec.max_model_len,
        );
        let sequences = (0..request.samples.max(1))
            .map(|sample| {
                let sequence = Sequence::new(id, sample, &request, room);
                let sequence = self.sequences.insert(sequence);
                self.waiting.push_back(sequence);
                sequence
            })
            .collect();
        let declared = request.declared;
        self.requests.insert(
            id,
            Live {
                sequences,
                declared,
            },
        );
        self.declare(declared);
        id
    }

    pub(super) fn abort(&mut self, id: RequestId) {
        let Some(live) = self.requests.remove(&id) else {
            return;
        };
        self.counters.declared -= live.declared;
        self.counters.aborted += 1;
        for sequence in live.sequences {
            self.remove(sequence);
        }
    }

    /// Plans a step, or `None` where nothing can be computed.
    pub(super) fn plan(&mut self, now: Time, out: &mut Vec<SimEvent>) -> Option<Batch> {
        loop {
            let mut plan = Plan {
                budget: self.spec.max_num_batched_tokens,
                ..Plan::default()
            };
            self.plan_running(now, &mut plan, out);
            if !plan.preempted {
                self.plan_waiting(now, &mut plan, out);
            }
            if !plan.batch.tokens.is_zero() {
                self.counters.steps += 1;
                self.counters.peak_used = self.counters.peak_used.max(self.used());
                self.planned.push_back(plan.emitting);
                return Some(plan.batch);
            }
            // A sequence that had to preempt itself left blocks to others: plan again.
            if !plan.preempted {
                return None;
            }
        }
    }

    /// Takes in the results of the oldest planned step.
    pub(super) fn collect(&mut self, now: Time, out: &mut Vec<SimEvent>) {
        for id in self.planned.pop_front().unwrap_or_default() {
            let Some(sequence) = self.sequences.get_mut(id) else {
                continue; // aborted, or ended by its own stop a step ago
            };
            sequence.pending = sequence.pending.saturating_sub(Tokens::new(1));
            sequence.generated += Tokens::new(1);
            self.counters.generated += Tokens::new(1);
            self.counters.preemptions_told += u64::from(std::mem::take(&mut sequence.untold));
            let (request, sample, total) = (sequence.request, sequence.sample, sequence.generated);
            if total == Tokens::new(1) {
                self.counters.prompt += sequence.prompt;
                out.push(SimEvent::FirstToken {
                    request,
                    sample,
                    at: now,
                    cached: sequence.cached,
                });
            }
            out.push(SimEvent::Tokens {
                request,
                sample,
                at: now,
                total,
            });
            if let Some(reason) = sequence.finish() {
                self.finish(id, reason, now, out);
            }
        }
    }

    fn plan_running(&mut self, now: Time, plan: &mut Plan, out: &mut Vec<SimEvent>) {
        let mut index = 0;
        while index < self.running.len() && !plan.budget.is_zero() {
            let id = self.running[index];
            let chunk = self.sequences[id].wanted().min(plan.budget);
            if chunk.is_zero() {
                index += 1;
                continue;
            }
            while !self.grow(id, chunk) {
                let last = *self.running.last().expect("`id` itself is running");
                self.preempt_last(now, out);
                plan.preempted = true;
                if last == id {
                    return;
                }
            }
            self.book(id, chunk, plan);
            index += 1;
        }
    }

    fn plan_waiting(&mut self, now: Time, plan: &mut Plan, out: &mut Vec<SimEvent>) {
        let most = usize::try_from(self.spec.max_num_seqs).unwrap_or(usize::MAX);
        while let Some(&id) = self.waiting.front() {
            if plan.budget.is_zero() || self.running.len() >= most {
                return;
            }
            if !self.might_fit(id) {
                return;
            }
            let hits = self.hits(id);
            if !self.fits(id, &hits, plan.budget) {
                return; // head of line: nobody passes it
            }
            self.admit(id, &hits);
            let sequence = &self.sequences[id];
            if sequence.preemptions == 0 {
                out.push(SimEvent::Started {
                    request: sequence.request,
                    sample: sequence.sample,
                    at: now,
                    cached: sequence.cached,
                });
            }
            let chunk = self.sequences[id].wanted().min(plan.budget);
            let grown = self.grow(id, chunk);
            debug_assert!(grown, "what fits as a whole fits in part");
            self.book(id, chunk, plan);
        }
    }

    /// Whether it could fit if all that others may hold of it were held: cheaper than
    /// looking its blocks up, and asked in each step while the head of the line waits.
    fn might_fit(&self, id: SequenceId) -> bool {
        let sequence = &self.sequences[id];
        let whole = sequence.tokens().blocks_up(self.spec.block_size);
        whole.saturating_sub(sequence.shareable(whole)) <= self.pool.free()
    }

    /// The leading blocks of `id` that are in the cache; never its last token, which has to
    /// be computed to get the next one.
    fn hits(&self, id: SequenceId) -> Vec<BlockIndex> {
        if self.spec.prefix_caching == PrefixCaching::PerSequence {
            return Vec::new();
        }
        let sequence = &self.sequences[id];
        let size = self.spec.block_size;
        let most = sequence
            .tokens()
            .saturating_sub(Tokens::new(1))
            .blocks_down(size);
        let most = usize::try_from(most.get()).unwrap_or(usize::MAX);
        (0..most)
            .map_while(|index| self.pool.find(sequence.content(index, size)))
            .collect()
    }

    /// Whether the whole sequence as it stands, less its hits, fits in the free blocks, and
    /// its first chunk of at most `budget`: with a token that was on its way when the
    /// sequence was preempted, and with what is looked ahead, that may take a block more.
    fn fits(&self, id: SequenceId, hits: &[BlockIndex], budget: Tokens) -> bool {
        let (sequence, size) = (&self.sequences[id], self.spec.block_size);
        let (whole, found) = (sequence.tokens(), count(hits.len()));
        let end = (found.tokens(size) + budget).min(whole + sequence.pending);
        let first = (end + self.spec.lookahead).min(self.spec.max_model_len);
        let new = first.max(whole).blocks_up(size).saturating_sub(found);
        let revived = hits
            .iter()
            .filter(|&&block| self.pool.is_free(block))
            .count();
        let kept = if self.running.is_empty() {
            Blocks::ZERO
        } else {
            self.spec.blocks.share(self.spec.watermark)
        };
        new + count(revived) + kept <= self.pool.free()
    }

    fn admit(&mut self, id: SequenceId, hits: &[BlockIndex]) {
        for &block in hits {
            self.pool.hold(block);
        }
        let sequence = &mut self.sequences[id];
        sequence.blocks = hits.to_vec();
        sequence.published = hits.len();
        let found = count(hits.len());
        self.waiting.pop_front();
        self.running.push(id);
        let found = found.tokens(self.spec.block_size);
        let sequence = &mut self.sequences[id];
        sequence.computed = found;
        if sequence.preemptions > 0 {
            return;
        }
        sequence.cached = found;
        let queried = sequence.prompt;
        if self.spec.prefix_caching == PrefixCaching::Shared {
            self.counters.prefix_queries += queried;
            self.counters.prefix_hits += found;
        }
    }

    /// Gets the blocks for `chunk` more tokens, or leaves everything as it is.
    fn grow(&mut self, id: SequenceId, chunk: Tokens) -> bool {
        let size = self.spec.block_size;
        let sequence = &mut self.sequences[id];
        let slots = (sequence.computed + chunk + self.spec.lookahead).min(self.spec.max_model_len);
        let held = count(sequence.blocks.len());
        let new = slots.blocks_up(size).saturating_sub(held);
        if new > self.pool.free() {
            return false;
        }
        for _ in 0..new.get() {
            let block = self.pool.take().expect("the free blocks were counted");
            sequence.blocks.push(block);
        }
        if self.spec.prefix_caching == PrefixCaching::Shared {
            let known = (sequence.computed + chunk).min(sequence.tokens());
            let full = usize::try_from(known.blocks_down(size).get()).unwrap_or(usize::MAX);
            for index in sequence.published..full {
                self.pool
                    .publish(sequence.blocks[index], sequence.content(index, size));
            }
            sequence.published = sequence.published.max(full);
        }
        true
    }

    /// Enters a chunk whose blocks are there into the step.
    fn book(&mut self, id: SequenceId, chunk: Tokens, plan: &mut Plan) {
        let sequence = &mut self.sequences[id];
        let batch = &mut plan.batch;
        let before = sequence.computed;
        plan.budget -= chunk;
        batch.tokens += chunk;
        let decodes = !sequence.generated.is_zero()
            && before >= sequence.tokens() + sequence.pending - Tokens::new(1);
        if decodes || !sequence.pending.is_zero() {
            batch.decoding += 1;
            batch.decode_context += before + chunk;
        } else {
            batch.prefill += chunk;
            self.counters.prefilled += chunk;
            batch.prefill_attention += chunk.as_f64() * (before.as_f64() + chunk.as_f64() / 2.0);
        }
        self.counters.recomputed += (before + chunk).min(sequence.lost).saturating_sub(before);
        sequence.computed += chunk;
        if sequence.wanted().is_zero() {
            sequence.pending += Tokens::new(1);
            batch.emitting += 1;
            plan.emitting.push(id);
        }
    }

    fn preempt_last(&mut self, now: Time, out: &mut Vec<SimEvent>) {
        let id = self.running.pop().expect("the caller found one running");
        let sequence = &mut self.sequences[id];
        let (request, sample) = (sequence.request, sequence.sample);
        assert!(
            self.spec.on_overflow == OnOverflow::Preempt,
            "the pool overflowed: request {} sample {sample} would be preempted with {} of {} blocks used",
            request.0,
            self.used(),
            self.spec.usable(),
        );
        self.counters.discarded += self.sequences[id].computed;
        let blocks = self.sequences[id].preempt();
        self.pool.release(&blocks);
        self.waiting.push_front(id);
        self.counters.preemptions += 1;
        out.push(SimEvent::Preempted {
            request,
            sample,
            at: now,
        });
    }

    fn finish(&mut self, id: SequenceId, reason: FinishReason, now: Time, out: &mut Vec<SimEvent>) {
        let Some(sequence) = self.remove(id) else {
            return;
        };
        match reason {
            FinishReason::Stop => self.counters.stopped += 1,
            FinishReason::Length => self.counters.length_limited += 1,
        }
        let request = sequence.request;
        out.push(SimEvent::Finished {
            request,
            sample: sequence.sample,
            at: now,
            reason,
            generated: sequence.generated,
        });
        let live = self
            .requests
            .get_mut(&request)
            .expect("its request is live");
        live.sequences.retain(|&other| other != id);
        if live.sequences.is_empty() {
            self.counters.declared -= live.declared;
            self.requests.remove(&request);
            out.push(SimEvent::Ended { request, at: now });
        }
    }

    fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let sequence = self.sequences.remove(id)?;
        self.pool.release(&sequence.blocks);
        self.running.retain(|&other| other != id);
        self.waiting.retain(|&other| other != id);
        Some(sequence)
    }

    fn declare(&mut self, blocks: Blocks) {
        self.counters.declared += blocks;
        if self.counters.declared <= self.spec.usable() {
            return;
        }
        self.counters.declared_overflows += 1;
        assert!(
            self.spec.on_overflow == OnOverflow::Preempt,
            "footprints of {} blocks were declared for a pool of {}",
            self.counters.declared,
            self.spec.usable(),
        );
    }

    pub(super) fn used(&self) -> Blocks {
        self.spec.usable() - self.pool.free()
    }
}

fn count(blocks: usize) -> Blocks {
    Blocks::new(u64::try_from(blocks).unwrap_or(u64::MAX))
}
