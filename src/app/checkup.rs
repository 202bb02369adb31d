//! Looks at a pool once it can serve and says what the operator should know.
//!
//! Decides nothing itself: a small pool and backends that disagree are told in the
//! log, once, and a tokenizer that is not the engine's is found by comparing, each
//! time there is a new one.

use std::sync::Arc;
use std::time::Duration;

use crate::core::backend::{BackendId, Capacity, CapacitySource, Tier};
use crate::core::stats::BackendState;
use crate::layers::pool::{CountingPlace, Pool};
use crate::telemetry::Metrics;
use crate::upstream::client::{Client, Connector};

use super::compare::Comparison;

/// How often the pool is looked at until it can serve.
const LOOK: Duration = Duration::from_secs(1);
/// Waits until `pool` can serve and looks at it.
pub(super) async fn look_at<C: Connector>(
    pool: Arc<Pool>,
    client: Client<C>,
    metrics: Arc<Metrics>,
) {
    while !pool.is_ready() {
        tokio::time::sleep(LOOK).await;
    }
    let known = known(&pool);
    for warning in weigh(&known) {
        tracing::warn!(model = %pool.name(), "{warning}");
    }
    let seat = known.first().and_then(|backend| pool.seat_of(backend.id));
    let (Some(seat), CountingPlace::Here) = (seat, pool.counting().place) else {
        return;
    };
    let comparison = Comparison {
        pool: &pool,
        seat: &seat,
        client: &client,
        metrics: &metrics,
    };
    loop {
        // Weak, so that a counter out of use is not held, and its address not
        // given to the next.
        let compared = Arc::downgrade(&pool.counter());
        comparison.run().await;
        while std::ptr::eq(Arc::as_ptr(&pool.counter()), compared.as_ptr()) {
            tokio::time::sleep(LOOK).await;
        }
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
            name: Arc::clone(pool.seat_of(backend.id)?.name()),
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
