//! Looks at a pool once it can serve and says what the operator should know.
//!
//! Decides nothing and changes nothing: a small pool, backends that disagree
//! and a tokenizer that is not the engine's are told in the log, once.

use std::sync::Arc;
use std::time::Duration;

use crate::core::backend::{BackendId, Capacity, CapacitySource};
use crate::layers::pool::{CountingPlace, Pool};
use crate::tokenize::{Precision, PromptInput};
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
    let known = capacities(&pool);
    for warning in weigh(&pool, &known) {
        tracing::warn!(model = %pool.name(), "{warning}");
    }
    if pool.counting().place == CountingPlace::Here {
        compare_counts(&pool, &client).await;
    }
}

fn capacities(pool: &Pool) -> Vec<(BackendId, Capacity)> {
    let state = pool.gate().state();
    let known = state.backends.iter();
    known
        .filter_map(|backend| Some((backend.id, backend.capacity?)))
        .collect()
}

/// What the capacities give to think about.
fn weigh(pool: &Pool, known: &[(BackendId, Capacity)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (id, capacity) in known {
        let name = pool.seat(*id);
        let name = name.name();
        if capacity.pool() < capacity.max_model_len {
            warnings.push(format!(
                "the KV pool of {name} holds {} tokens, less than its max_model_len of {}: \
                 longer requests are refused there",
                capacity.pool(),
                capacity.max_model_len
            ));
        }
        if capacity.source == CapacitySource::Assumed {
            warnings.push(format!(
                "the KV capacity of {name} is not known; {} tokens are assumed",
                capacity.pool()
            ));
        }
    }
    let sizes = known.iter().map(|(_, capacity)| capacity.block_size);
    if let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max())
        && least != most
    {
        warnings.push(format!(
            "backends of one pool have block sizes from {} to {}",
            least.get(),
            most.get()
        ));
    }
    warnings
}

/// Asks one engine to count a text that we have counted.
async fn compare_counts<C: Connector>(pool: &Pool, client: &Client<C>) {
    let ours = pool.counter().count(&PromptInput::Texts {
        texts: &[SAMPLE.into()],
        add_special_tokens: true,
    });
    let Some(seat) = capacities(pool).first().map(|(id, _)| pool.seat(*id)) else {
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
