//! Whether a template treats the texts of a conversation as texts: passes them on
//! whole, and never looks into one but for words that are written in the template.
//!
//! Decides, from the template alone, for conversations of messages that have a role
//! and a text and no more. A type check of the part of the language that most chat
//! templates are written in; a template in any other is not parametric. Never renders.
//!
//! Invariant: two conversations with the same roles, whose texts are not empty,
//! neither begin nor end with white space or control characters, and hold none of
//! the [`searched`] words, are rendered alike but for the texts themselves.

mod reader;

use std::collections::BTreeMap;

use super::code::{Code, Word, code};
use reader::Reader;

/// What a value may hold of a conversation's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Clean,
    /// A whole text, or nothing.
    Text,
    /// Texts among others.
    Mixed,
    /// What a text was split into: itself alone.
    Parts,
    /// A message.
    Item,
    /// Messages.
    List,
}

/// An expression that was read.
#[derive(Clone, Debug)]
struct Seen {
    kind: Kind,
    /// Where it is nothing but a string.
    text: Option<String>,
    /// Whether no text equals it.
    constant: bool,
    /// Whether it is the role of a message.
    role: bool,
    /// Whether it is never true.
    never: bool,
}

/// What is known of a template.
#[derive(Default)]
struct Found<'s> {
    names: BTreeMap<&'s str, Kind>,
    searched: Vec<String>,
}

/// The words that a template seeks in texts; `None` if it is not parametric.
pub(super) fn searched(source: &str) -> Option<Vec<String>> {
    let all = code(source)?;
    let mut found = Found::default();
    found.names.insert("messages", Kind::List);
    loop {
        // A name may be read above the place where it is set.
        let known = found.names.clone();
        found.searched.clear();
        found.read_all(&all)?;
        if found.names == known {
            found.searched.sort_unstable();
            found.searched.dedup();
            return Some(found.searched);
        }
    }
}

/// What may be the one or the other.
fn joined(one: Kind, other: Kind) -> Option<Kind> {
    match (one, other) {
        _ if one == other => Some(one),
        (Kind::Clean, Kind::Text) | (Kind::Text, Kind::Clean) => Some(Kind::Text),
        (Kind::Mixed, Kind::Clean | Kind::Text) | (Kind::Clean | Kind::Text, Kind::Mixed) => {
            Some(Kind::Mixed)
        }
        _ => None,
    }
}

fn clean(seen: &Seen) -> Option<()> {
    (seen.kind == Kind::Clean).then_some(())
}

// === impl Seen ===

impl Seen {
    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            text: None,
            constant: false,
            role: false,
            never: false,
        }
    }
}

// === impl Found ===

impl<'s> Found<'s> {
    /// Reads all but what stands under a condition that is never true.
    fn read_all(&mut self, all: &[Code<'s>]) -> Option<()> {
        // Where something is passed over: how deep in blocks within.
        let mut passing: Option<usize> = None;
        for code in all {
            let first = match code {
                Code::Statement(words) => words.first(),
                Code::Output(_) => None,
            };
            if let Some(depth) = &mut passing {
                match first {
                    Some(Word::Name("if" | "for")) => *depth += 1,
                    Some(Word::Name("endif" | "endfor")) if *depth > 0 => *depth -= 1,
                    Some(Word::Name("elif" | "else" | "endif")) if *depth == 0 => passing = None,
                    _ => {}
                }
            }
            if passing.is_none() && self.read(code)? {
                passing = Some(0);
            }
        }
        Some(())
    }

    /// Reads one tag; whether what follows is never reached.
    fn read(&mut self, code: &Code<'s>) -> Option<bool> {
        let (Code::Output(words) | Code::Statement(words)) = code;
        let mut reader = Reader {
            words,
            at: 0,
            found: self,
        };
        let is_never = match code {
            Code::Output(_) => {
                let kind = reader.expression()?.kind;
                matches!(kind, Kind::Clean | Kind::Text | Kind::Mixed).then_some(false)?
            }
            Code::Statement(_) => reader.statement()?,
        };
        (reader.at == words.len()).then_some(is_never)
    }

    fn assign(&mut self, name: &'s str, kind: Kind) -> Option<()> {
        let known = self.names.get(name).copied();
        let kind = joined(known.unwrap_or(kind), kind)?;
        self.names.insert(name, kind);
        (kind != Kind::Parts && name != "loop").then_some(())
    }

    /// Takes `word` for one that texts must not hold; an empty one is in every text.
    fn seek(&mut self, word: Option<&String>) -> Option<()> {
        let word = word.filter(|word| !word.is_empty())?;
        self.searched.push(word.clone());
        Some(())
    }
}

#[cfg(test)]
mod tests;
