//! How many tokens are enough to refuse a prompt, or to know its length.
//!
//! Decides where counting may stop because nothing after it changes what
//! happens. Never refuses by itself: a prompt that is not past the ceiling is
//! checked in full by the tenant's limits and by admission. Invariant: a prompt
//! past the ceiling would be refused whatever its exact length.

use crate::core::backend::Capacity;
use crate::core::units::Tokens;
use crate::layers::error::{MeasureError, Whose};
use crate::layers::pool::Pool;
use crate::protocol::request::Truncate;
use crate::protocol::{Route, WorkKind};
use crate::tenants::TenantRef;

use super::beside::Beside;

/// The lowest limit that a prompt may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ceiling {
    limit: Tokens,
    whose: Whose,
}

/// What bounds the prompts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The limit past which it is refused, where there is one.
    pub(super) ceiling: Option<Ceiling>,
    /// What the engine shortens each prompt to, where it does.
    pub(super) shortened_to: Option<Tokens>,
    /// What such a prompt is charged then, where it holds more than text.
    pub(super) at_most: Option<Tokens>,
    /// The longest prompt any engine takes, where that is known.
    pub(super) longest: Option<Tokens>,
}

/// Whether it depends on the model how texts become prompts.
pub(super) fn has_two_readings(route: Route) -> bool {
    matches!(route, Route::Score | Route::Rerank)
}

// === impl Bounds ===

impl Bounds {
    /// The bounds of a request to `pool` by `route`.
    pub(super) fn of(
        pool: &Pool,
        tenant: &TenantRef,
        (route, truncate): (Route, Option<Truncate>),
    ) -> Self {
        let state = pool.gate().state();
        let longest = |length: fn(Capacity) -> Tokens| -> Option<Tokens> {
            let allowed = state
                .backends
                .iter()
                .filter(|backend| tenant.tenant.tiers.contains(backend.tier));
            // A backend whose capacity is not known might hold anything.
            let lengths = allowed.map(|backend| backend.capacity.map(length));
            lengths.collect::<Option<Vec<_>>>()?.into_iter().max()
        };
        let limits = &tenant.tenant.limits;
        // Of equal ones the first that a full check would find.
        let limits = [
            (limits.max_prompt, Whose::TenantPrompt),
            (limits.max_context, Whose::TenantContext),
            (longest(|capacity| capacity.context_limit()), Whose::Fleet),
        ];
        let lowest = limits
            .into_iter()
            .filter_map(|(limit, whose)| limit.map(|limit| Ceiling { limit, whose }))
            .min_by_key(|ceiling| ceiling.limit);
        let one = Tokens::new(1);
        let longest = longest(|capacity| capacity.max_model_len);
        // One that generates leaves room for an output token.
        let longest = longest.map(|longest| match route.work() {
            WorkKind::Generate => longest.saturating_sub(one).max(one),
            WorkKind::Pool | WorkKind::Aside => longest,
        });
        Self {
            // Where nothing is held, nothing is too long; where it depends on the
            // model what makes a prompt, a part of it says nothing.
            ceiling: lowest.filter(|_| route.work() != WorkKind::Aside && !has_two_readings(route)),
            shortened_to: match truncate {
                None => None,
                Some(Truncate::To(tokens)) => Some(Tokens::new(tokens).max(one)),
                Some(Truncate::ToModel) => longest,
            },
            at_most: None,
            longest,
        }
    }

    /// Leaves on top of what prompts are shortened to what truncation does not
    /// shorten. Such a prompt is counted to its end; none is longer than what any
    /// engine takes.
    pub(super) fn leave(&mut self, beside: Beside) {
        let longest = self.longest.unwrap_or(Tokens::MAX);
        self.at_most = match (self.shortened_to, beside) {
            (None, _) | (_, Beside::Nothing) => None,
            (Some(limit), Beside::Tokens(more)) => Some(limit.saturating_add(more).min(longest)),
            (_, Beside::Unknown) => Some(longest),
            (_, Beside::All) => {
                self.shortened_to = None;
                None
            }
        };
    }

    /// Tokens past which the exact length of a prompt changes nothing.
    pub(super) fn enough(&self) -> Option<u64> {
        let limit = self.ceiling.map(|ceiling| ceiling.limit);
        let shortened = self.shortened_to.filter(|_| self.at_most.is_none());
        [limit, shortened]
            .into_iter()
            .flatten()
            .min()
            .map(Tokens::get)
    }

    /// The refusal of a prompt of `at_least` so many tokens, if that is one.
    pub(super) fn refusal(&self, at_least: Tokens) -> Option<MeasureError> {
        let Ceiling { limit, whose } = self.ceiling?;
        (at_least > limit).then_some(MeasureError::TooLong {
            at_least,
            limit,
            whose,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::layers::fixture::Fixture;

    fn bounds(fixture: &Fixture, route: Route, truncate: Option<Truncate>) -> Bounds {
        Bounds::of(&fixture.pool, &fixture.tenant, (route, truncate))
    }

    #[test]
    fn the_lowest_limit_is_the_ceiling_and_says_whose_it_is() {
        let mut fixture = Fixture::new();
        let of_fleet = bounds(&fixture, Route::Completions, None);
        assert_eq!(of_fleet.enough(), Some(1024));
        assert_eq!(of_fleet.refusal(Tokens::new(1024)), None);
        let refused = |bounds: Bounds| match bounds.refusal(Tokens::new(2000)) {
            Some(MeasureError::TooLong { limit, whose, .. }) => (limit.get(), whose),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(of_fleet), (1024, Whose::Fleet));
        fixture.limit(Limits {
            max_context: Some(Tokens::new(700)),
            max_prompt: Some(Tokens::new(800)),
            ..Limits::default()
        });
        let of_tenant = bounds(&fixture, Route::Embeddings, None);
        assert_eq!(refused(of_tenant), (700, Whose::TenantContext));
        assert_eq!(bounds(&fixture, Route::Tokenize, None).enough(), None);
    }

    #[test]
    fn a_prompt_that_is_shortened_need_not_be_counted_further() {
        let fixture = Fixture::new();
        let to = |tokens| bounds(&fixture, Route::Completions, Some(Truncate::To(tokens)));
        assert_eq!(to(10).enough(), Some(10));
        assert_eq!(to(5000).enough(), Some(1024));
        let to_model = bounds(&fixture, Route::Completions, Some(Truncate::ToModel));
        assert_eq!(to_model.shortened_to, Some(Tokens::new(1023)));
        let pooled = bounds(&fixture, Route::Score, Some(Truncate::ToModel));
        assert_eq!(pooled.shortened_to, Some(Tokens::new(1024)));
        // What makes a prompt is not known: no text alone is too long.
        assert_eq!(bounds(&fixture, Route::Score, None).ceiling, None);
    }

    #[test]
    fn what_is_beside_the_text_stays_on_top_of_what_it_is_shortened_to() {
        let fixture = Fixture::new();
        let left = |truncate, beside| {
            let mut bounds = bounds(&fixture, Route::ChatCompletions, Some(truncate));
            bounds.leave(beside);
            (bounds.enough(), bounds.at_most.map(Tokens::get))
        };
        let image = Beside::Tokens(Tokens::new(300));
        assert_eq!(left(Truncate::To(10), image), (Some(1024), Some(310)));
        assert_eq!(left(Truncate::ToModel, image), (Some(1024), Some(1023)));
        let unknown = left(Truncate::To(10), Beside::Unknown);
        assert_eq!(unknown, (Some(1024), Some(1023)));
        assert_eq!(left(Truncate::To(10), Beside::All), (Some(1024), None));
        assert_eq!(left(Truncate::To(10), Beside::Nothing), (Some(10), None));
    }
}
