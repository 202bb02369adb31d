//! The beginnings of a prompt, as hashes: which of them an engine has had before.
//!
//! Decides how the bytes of a prompt are cut and what else makes two prompts that
//! begin alike different to an engine's cache. Positions in tokens are not known
//! here, so a step is [`STEP_BYTES`] of text, and there are never more steps than
//! the prompt has tokens for. Invariant: equal hashes are equal beginnings, within
//! one process; without its keys, which it makes at its start, they tell nothing.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use crate::core::prefix::{PrefixHash, PrefixTrail, TRAIL_STEP};
use crate::core::units::Tokens;
use crate::protocol::Request;
use crate::protocol::request::{Chat, Prompt};

use super::super::steps::Letter;

/// Text of one step: what [`TRAIL_STEP`] tokens are in most languages. Where they
/// are more, less is thought to be had before than is.
const STEP_BYTES: usize = 2048;

/// Steps of a prompt that are told; further ones are taken for new.
pub(super) const MOST_STEPS: usize = 256;

/// Steps that are hashed on an async thread: a tenth of a millisecond.
pub(super) const INLINE_STEPS: usize = 32;

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Everything beside the prompt that a cache tells prompts apart by.
#[derive(Clone, Debug)]
pub(super) struct Seed(DefaultHasher);

/// Cuts what is written into steps.
struct Cutter {
    hasher: DefaultHasher,
    /// Bytes of the step at hand.
    filled: usize,
    hashes: Vec<PrefixHash>,
    most: usize,
}

// === impl Seed ===

impl Seed {
    /// The seed of a request: model, cache salt, and how the prompt is rendered.
    /// `None` where what the engine makes of the prompt is not known.
    pub(super) fn of(letter: &Letter, request: &Request<'_>, salt: Option<&str>) -> Option<Self> {
        let known = match &request.prompt {
            Prompt::Chat(chat) => !chat.media && chat.unseen == Default::default(),
            Prompt::Texts { texts, .. } => texts.len() == 1,
            _ => false,
        };
        if !known || request.truncate.is_some() || request.brings_template {
            return None;
        }
        let mut hasher = KEYS.build_hasher();
        letter.served.hash(&mut hasher);
        salt.or(request.cache_salt.as_deref()).hash(&mut hasher);
        Some(Self(hasher))
    }

    /// The trail of `prompt`, at most `most` steps. Linear in what is hashed.
    pub(super) fn trail(self, prompt: &Prompt<'_>, most: usize) -> PrefixTrail {
        let mut cutter = Cutter {
            hasher: self.0,
            filled: 0,
            hashes: Vec::new(),
            most,
        };
        let written = match prompt {
            Prompt::Chat(chat) => write_chat(chat, &mut cutter),
            Prompt::Texts { texts, .. } => texts
                .iter()
                .try_for_each(|text| cutter.write_all(text.as_bytes())),
            _ => Ok(()),
        };
        // It says no where it has enough, and never for another reason.
        drop(written);
        PrefixTrail::new(Arc::from(cutter.hashes))
    }
}

/// What stands first in most templates is written first.
fn write_chat(chat: &Chat<'_>, to: &mut Cutter) -> io::Result<()> {
    chat.reasoning_effort.hash(&mut to.hasher);
    chat.add_special_tokens.hash(&mut to.hasher);
    if let Some(variables) = &chat.chat_template_kwargs {
        let variables = serde_json::to_vec(variables)?;
        variables.hash(&mut to.hasher);
    }
    for part in [&chat.tools, &chat.documents].into_iter().flatten() {
        serde_json::to_writer(&mut *to, part)?;
    }
    // Message by message: a list that goes on ends otherwise than one that ends.
    for message in chat.messages.as_array().into_iter().flatten() {
        serde_json::to_writer(&mut *to, message)?;
    }
    Ok(())
}

/// As much of `trail` as a prompt of this length has steps.
pub(super) fn within(trail: PrefixTrail, prompt: Tokens) -> PrefixTrail {
    let steps = usize::try_from(prompt.get() / TRAIL_STEP).unwrap_or(usize::MAX);
    match trail.hashes().get(..steps) {
        Some(fewer) => PrefixTrail::new(Arc::from(fewer)),
        None => trail,
    }
}

// === impl Cutter ===

impl Write for Cutter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.hashes.len() == self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(STEP_BYTES - self.filled);
        self.hasher.write(&bytes[..taken]);
        self.filled += taken;
        if self.filled == STEP_BYTES {
            self.hashes.push(PrefixHash(self.hasher.finish()));
            self.filled = 0;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
