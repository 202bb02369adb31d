//! One HTTP request's generation: what it has asked of the engine, what it has got so far.
//!
//! News wait in the job, one entry per token, until its reader takes them: a reader that
//! stalls holds at most the tokens it may have, and the engine never waits for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::state::Shared;
use crate::sim::engine::{FinishReason, RequestId};

pub(super) type JobId = u64;

/// Engine requests and what they have brought so far.
#[derive(Default)]
pub(super) struct Job {
    pub(super) requests: Vec<RequestId>,
    /// For each choice, whether it goes on.
    pub(super) open: Vec<bool>,
    pub(super) deltas: VecDeque<Delta>,
    pub(super) dead: bool,
    pub(super) waker: Option<Waker>,
}

/// Something new of one choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) choice: usize,
    /// 1, or 0 for an end that brings no token.
    pub(super) tokens: u64,
    pub(super) finish: Option<Finish>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
    Abort,
}

/// What a job has for its reader.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Deltas(VecDeque<Delta>),
    /// The engine died under it.
    Dead,
    /// Every choice has ended and was told.
    Done,
}

/// A job's owner. Dropping it aborts what is left of the job in the engine.
pub(super) struct JobHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) id: JobId,
}

// === impl Finish ===

impl Finish {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
        }
    }
}

// === impl Job ===

impl Job {
    /// What is new, or the promise to wake `cx` when something is.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Progress> {
        if !self.deltas.is_empty() {
            return Poll::Ready(Progress::Deltas(std::mem::take(&mut self.deltas)));
        }
        if self.dead {
            return Poll::Ready(Progress::Dead);
        }
        if !self.open.contains(&true) {
            return Poll::Ready(Progress::Done);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn push(&mut self, choice: usize, tokens: u64, finish: Option<Finish>) {
        self.deltas.push_back(Delta {
            choice,
            tokens,
            finish,
        });
    }

    /// Ends a choice, on its last token where that is still here.
    pub(super) fn finish(&mut self, choice: usize, reason: FinishReason) {
        let finish = Some(match reason {
            FinishReason::Stop => Finish::Stop,
            FinishReason::Length => Finish::Length,
        });
        self.open[choice] = false;
        match self.deltas.back_mut() {
            Some(last) if last.choice == choice => last.finish = finish,
            _ => self.push(choice, 0, finish),
        }
    }

    pub(super) fn abort_open(&mut self) {
        for choice in 0..self.open.len() {
            if std::mem::take(&mut self.open[choice]) {
                self.push(choice, 0, Some(Finish::Abort));
            }
        }
    }
}

// === impl JobHandle ===

impl JobHandle {
    /// What is new; wakes the caller when something is.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Progress> {
        self.shared.lock().poll_job(self.id, cx)
    }

    /// What is new, waiting for it.
    pub(super) async fn next(&self) -> Progress {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        // A second panic while the first unwinds would end the process.
        if !self.shared.is_broken() {
            self.shared.update(|state| state.drop_job(self.id));
        }
    }
}
