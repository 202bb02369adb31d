//! Which conversations Mistral's library takes.

use std::collections::HashSet;

use super::{Chunk, Item, Role};
use crate::tokenize::chat::Odd;
use crate::tokenize::tekken::Version;

/// Checks what the library checks before it joins messages.
///
/// # Errors
/// [`Odd`] for a conversation that it refuses.
pub(super) fn check(messages: &[Item<'_>], version: Version) -> Result<(), Odd> {
    let refused = !ends_well(messages)
        || !roles_follow(messages)
        || !messages.iter().all(|message| is_sound(message, version))
        || !match version >= Version::V11 {
            true => results_answer(messages),
            false => results_are_as_many(messages),
        };
    if refused { Err(Odd) } else { Ok(()) }
}

/// An answer may only be last if it goes on.
fn ends_well(messages: &[Item<'_>]) -> bool {
    match messages {
        [] => false,
        [only] => matches!(only.role, Role::User | Role::System),
        [.., last] => last.role != Role::Assistant || last.is_open,
    }
}

fn roles_follow(messages: &[Item<'_>]) -> bool {
    messages
        .windows(2)
        .all(|pair| match (pair[0].role, pair[1].role) {
            (Role::System | Role::User, next) => next != Role::Tool,
            (Role::Assistant | Role::Tool, next) => next != Role::System,
        })
}

fn is_sound(message: &Item<'_>, version: Version) -> bool {
    let is_id = |id: &str| match version >= Version::V13 {
        true => !id.is_empty() && id != "null",
        false => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    };
    match message.role {
        Role::Assistant => {
            let says = |chunk: &Chunk<'_>| match chunk {
                Chunk::Text(text) => !text.is_empty(),
                Chunk::Thinking(_) => true,
                Chunk::Border => false,
            };
            let says = message.content.len() > 1 || message.content.iter().any(says);
            let is_one = says == message.calls.is_empty() || version >= Version::V7;
            is_one && message.calls.iter().all(|call| is_id(&call.id))
        }
        Role::Tool => is_id(&message.answers),
        Role::System | Role::User => true,
    }
}

/// Before the next answer, there must be a result for each call.
fn results_are_as_many(messages: &[Item<'_>]) -> bool {
    let (mut calls, mut results) = (0, 0);
    for message in messages.iter().skip(1) {
        match message.role {
            Role::Tool => results += 1,
            Role::Assistant if calls != results => return false,
            Role::Assistant => (calls, results) = (message.calls.len(), 0),
            Role::System | Role::User => {}
        }
    }
    true
}

/// The same, and each result must answer a call of its own.
fn results_answer(messages: &[Item<'_>]) -> bool {
    let mut asked: HashSet<&str> = HashSet::new();
    let mut answered: HashSet<&str> = HashSet::new();
    for message in messages.iter().skip(1) {
        match message.role {
            Role::Tool if !asked.contains(&*message.answers) => return false,
            Role::Tool if !answered.insert(&message.answers) => return false,
            Role::Assistant => {
                if asked.len() != answered.len() {
                    return false;
                }
                answered.clear();
                asked.clear();
                if !message.calls.iter().all(|call| asked.insert(&call.id)) {
                    return false;
                }
            }
            Role::Tool | Role::System | Role::User => {}
        }
    }
    true
}
