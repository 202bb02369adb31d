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
            longest,
        }
    }

    /// Tokens past which the exact length of a prompt changes nothing.
    pub(super) fn enough(&self) -> Option<u64> {
        let limit = self.ceiling.map(|ceiling| ceiling.limit);
        [limit, self.shortened_to]
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
}
