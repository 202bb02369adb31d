//! Counts pairs to be scored, in both ways an engine may read them.
//!
//! A cross-encoder reads query and document in one prompt; a bi-encoder reads
//! each text once, apart. Which one a model is does not show from outside, so
//! both are counted and the larger is charged.

use std::borrow::Cow;

use serde_json::Value;

use crate::core::prefix::PrefixTrail;
use crate::core::units::Tokens;
use crate::protocol::pairs::{Pairs, Piece};
use crate::tokenize::{ChatInput, CountError, Effort, ModelCounter, Precision, PromptInput};

use super::count::Counted;

/// Counts `pairs` with `counter`.
pub(super) fn count(
    counter: &ModelCounter,
    pairs: &Pairs<'_>,
    effort: &Effort<'_>,
) -> Result<Counted, CountError> {
    let pieces = || pairs.queries.iter().chain(&pairs.documents);
    let texts: Vec<Cow<'_, str>> = pieces()
        .map(|piece| &piece.text)
        .chain(&pairs.extras)
        .map(|text| Cow::Borrowed(&**text))
        // What the tokenizer adds to a text shows by one that is empty.
        .chain([Cow::Borrowed("")])
        .collect();
    let input = PromptInput::Texts {
        texts: &texts,
        add_special_tokens: true,
    };
    let mut counted = counter.count(&input, effort)?;
    let added = counted.prompts.pop().unwrap_or(0);
    let mut own = counted
        .prompts
        .into_iter()
        .map(|tokens| tokens.saturating_sub(added));
    let mut side = |pieces: &[Piece<'_>], limit: Option<u64>| -> Vec<u64> {
        let own = own.by_ref().take(pieces.len());
        pieces
            .iter()
            .zip(own)
            .map(|(piece, tokens)| {
                let media = |parts: &Value| counter.media_tokens(&ChatInput::new(parts));
                let media = piece.media.as_ref().map_or(0, media);
                tokens.min(limit.unwrap_or(u64::MAX)).saturating_add(media)
            })
            .collect()
    };
    let queries = side(&pairs.queries, pairs.query_limit);
    let documents = side(&pairs.documents, pairs.document_limit);
    let extra = own.fold(0, u64::saturating_add);
    // As many as the tokenizer adds to each; to a pair it adds fewer.
    let between = added.saturating_mul(2).saturating_add(extra);
    let partner = |index: usize| queries.get(index).or(queries.first()).copied();
    let together = documents.iter().enumerate().map(|(index, document)| {
        let query = partner(index).unwrap_or(0);
        query.saturating_add(*document).saturating_add(between)
    });
    let apart = queries.iter().chain(&documents);
    let apart = apart.map(|tokens| tokens.saturating_add(added));
    Ok(Counted {
        prompts: at_least_one(together),
        apart: Some(at_least_one(apart)),
        by_policy: counted.precision != Precision::Estimated,
        precision: counted.precision.and(Precision::Estimated),
        sample: None,
        claim: None,
        overran: false,
        again: None,
        trail: PrefixTrail::default(),
    })
}

fn at_least_one(tokens: impl Iterator<Item = u64>) -> Vec<Tokens> {
    tokens.map(|tokens| Tokens::new(tokens.max(1))).collect()
}
