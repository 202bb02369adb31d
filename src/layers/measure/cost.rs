//! The most a request may cost its tenant's rate of tokens.
//!
//! Decides a bound that no answer passes, where there is one: the prompts, each
//! once, and what every sequence may generate. What generates nothing costs its
//! prompts, on every route. An output that nobody bounds is taken as what the
//! operator expects of one; what it is longer is charged when it is over.
//! Never refuses: the rate does.

use crate::core::demand::{Demand, OutputLimit, Work};
use crate::core::units::Tokens;
use crate::layers::steps::Letter;
use crate::tenants::Cost;

/// The cost of `demand`; `longest` is the longest prompt that an engine takes
/// and still generates, where that is known.
pub(super) fn most(demand: &Demand, longest: Option<Tokens>, letter: &Letter) -> Cost {
    let prompt = demand.prompt_total();
    if demand.work != Work::Generate {
        return Cost {
            prompt,
            output: Tokens::ZERO,
        };
    }
    // Engines generate to the end of their context and no further.
    let room = longest.map_or(Tokens::MAX, |longest| {
        let context = longest.saturating_add(Tokens::new(1));
        context.saturating_sub(demand.prompt_longest())
    });
    let all = |each: Tokens| each.min(room).saturating_mul(demand.sequences());
    let output = match demand.output {
        OutputLimit::Asked(tokens) => all(tokens),
        OutputLimit::Open { at_most } => {
            let expected = letter.snapshot.config.admission.open_output_tokens;
            let output = all(at_most.unwrap_or(expected));
            // Nobody asked for it: it is no reason to refuse for good.
            let rate = letter.tenant.tenant.limits.tokens;
            rate.map_or(output, |rate| {
                output.min(Tokens::new(rate.capacity()).saturating_sub(prompt))
            })
        }
    };
    Cost { prompt, output }
}
