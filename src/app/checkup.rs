//! Looks at a pool once it can serve and says what the operator should know.
//!
//! Decides nothing and changes nothing: a small pool, backends that disagree
//! and a tokenizer that is not the engine's are told in the log, once.

use std::sync::Arc;
use std::time::Duration;

use crate::core::backend::{BackendId, Capacity, CapacitySource, Tier};
use crate::core::stats::BackendState;
use crate::layers::pool::{CountingPlace, Pool};
use crate::tokenize::{Effort, Precision, PromptInput};
use crate::upstream::client::{Bounds, Client, Connector};
use crate::upstream::tokenize::{Question, tokenize};

/// How often the pool is looked at until it can serve.
const LOOK: Duration = Duration::from_secs(1);
/// Bounds of the one question asked.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(10),
    bytes: 64 * 1024,
};
/// A text on which tokenizers differ: cases, digits, accents, an emoji, code.
const SAMPLE: &str = "Ünïcode & 12345 tokens: naïve façade — `let x = f(0x1F);`\n\t日本語 🦀 END";

/// Waits until `pool` can serve and looks at it.
pub(super) async fn look_at<C: Connector>(pool: Arc<Pool>, client: Client<C>) {
    while !pool.is_ready() {
        tokio::time::sleep(LOOK).await;
    }
    for warning in weigh(&known(&pool)) {
        tracing::warn!(model = %pool.name(), "{warning}");
    }
    if pool.counting().place == CountingPlace::Here {
        compare_counts(&pool, &client).await;
    }
}

/// A backend whose capacity is known.
struct Known {
    id: BackendId,
    name: Arc<str>,
    tier: Tier,
    capacity: Capacity,
}

fn known(pool: &Pool) -> Vec<Known> {
    let state = pool.gate().state();
    let known = |backend: &BackendState| {
        Some(Known {
            id: backend.id,
            name: Arc::clone(pool.seat(backend.id).name()),
            tier: backend.tier,
            capacity: backend.capacity?,
        })
    };
    state.backends.iter().filter_map(known).collect()
}

/// What the capacities give to think about.
fn weigh(known: &[Known]) -> Vec<String> {
    let mut warnings: Vec<_> = known.iter().filter_map(too_small).collect();
    warnings.extend(known.iter().filter_map(|backend| {
        let assumed = backend.capacity.source == CapacitySource::Assumed;
        assumed.then(|| {
            let pool = backend.capacity.pool();
            format!(
                "KV capacity of {} is not known; {pool} tokens are assumed",
                backend.name
            )
        })
    }));
    for tier in Tier::ALL {
        let of_tier = || known.iter().filter(|backend| backend.tier == tier);
        let lengths = of_tier().map(|backend| backend.capacity.max_model_len.get());
        warnings.extend(differ(tier, "max_model_len", lengths));
        let sizes = of_tier().map(|backend| u64::from(backend.capacity.block_size.get()));
        warnings.extend(differ(tier, "block size", sizes));
    }
    warnings
}

fn too_small(backend: &Known) -> Option<String> {
    let (pool, longest) = (backend.capacity.pool(), backend.capacity.max_model_len);
    (pool < longest).then(|| {
        format!(
            "KV pool of {} holds {pool} tokens, less than its max_model_len of {longest}: \
             longer requests are refused there",
            backend.name
        )
    })
}

fn differ(tier: Tier, what: &str, values: impl Iterator<Item = u64> + Clone) -> Option<String> {
    let (least, most) = (values.clone().min()?, values.max()?);
    (least != most).then(|| format!("{tier} backends differ in {what}: {least} to {most}"))
}

/// Asks one engine to count a text that we have counted.
async fn compare_counts<C: Connector>(pool: &Pool, client: &Client<C>) {
    let sample = PromptInput::Texts {
        texts: &[SAMPLE.into()],
        add_special_tokens: true,
    };
    let ours = pool.counter().count(&sample, &Effort::default());
    let Some(seat) = known(pool).first().map(|backend| pool.seat(backend.id)) else {
        return;
    };
    let question = Question::Text {
        model: pool.name(),
        prompt: SAMPLE,
        add_special_tokens: Some(true),
    };
    let theirs = tokenize(client, seat.endpoint(), &question, BOUNDS).await;
    if let (Ok(ours), Ok(theirs)) = (ours, theirs)
        && ours.precision == Precision::Exact
        && ours.total() != theirs.count
    {
        tracing::warn!(
            model = %pool.name(),
            backend = %seat.name(),
            ours = ours.total(),
            theirs = theirs.count,
            "a text counts differently here and in the engine: the tokenizer is not the engine's"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::backend::PrefixCaching;
    use crate::core::units::{BlockSize, Blocks, Tokens};

    fn backend(name: &str, max_model_len: u64, source: CapacitySource) -> Known {
        Known {
            id: BackendId {
                slot: 0,
                generation: 0,
            },
            name: Arc::from(name),
            tier: Tier::Standard,
            capacity: Capacity {
                blocks: Blocks::new(64),
                block_size: BlockSize::new(16).unwrap(),
                max_model_len: Tokens::new(max_model_len),
                max_num_seqs: None,
                lookahead: Tokens::ZERO,
                prefix_caching: PrefixCaching::Shared,
                source,
            },
        }
    }

    #[test]
    fn an_operator_is_told_of_small_assumed_and_uneven_backends() {
        let even = [backend("a", 1024, CapacitySource::Configured)];
        assert_eq!(weigh(&even), [""; 0]);
        let uneven = [
            backend("a", 1024, CapacitySource::Assumed),
            backend("b", 4096, CapacitySource::Configured),
        ];
        let expected = [
            "KV pool of b holds 1024 tokens, less than its max_model_len of 4096: \
             longer requests are refused there",
            "KV capacity of a is not known; 1024 tokens are assumed",
            "standard backends differ in max_model_len: 1024 to 4096",
        ];
        assert_eq!(weigh(&uneven), expected);
    }
}
