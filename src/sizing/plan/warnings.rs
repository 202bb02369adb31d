//! What to look at in a plan before it is believed.

use super::super::engine::Version;
use super::super::memory::Budget;
use super::super::model::Assumed;
use super::{Plan, Question, SHARED, share};

/// A smaller block than attention kernels of today take.
const SMALL_BLOCK: u64 = 16;

// === impl Question ===

impl Question<'_> {
    /// Everything doubtful, worst first: what was assumed of the model, then of the
    /// engine, then of the card.
    pub(super) fn warnings(&self, plan: &Plan) -> Vec<String> {
        let assumed = self.model.assumed.iter();
        let mut warnings: Vec<String> = assumed.map(|one| self.gap(one)).collect();
        warnings.extend(self.version_warning());
        warnings.extend(self.block_warning());
        let sum = self.sum(plan);
        if self.shares() && sum > SHARED * 100 {
            let asked = match sum {
                ..=10_000 => format!("{} of it", share(sum)),
                _ => format!("{} times what it has", share(sum)),
            };
            warnings.push(format!(
                "the instances on one GPU ask for {asked} in sum, above 0.80: profiling of one \
                 meets the peaks of another, and a restart may find no room",
            ));
        }
        if let (Some(Budget::KvBytes(_)), false) =
            (self.budget, self.engine.version.takes_kv_bytes())
        {
            warnings.push(format!(
                "vLLM {} has no --kv-cache-memory-bytes: it came with 0.11",
                self.engine.version
            ));
        }
        if let (Some(wanted), Some(made)) = (self.context, self.model.context)
            && wanted > made
        {
            warnings.push(format!(
                "a context of {wanted} is longer than the {made} tokens the model was made for: \
                 vLLM refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
            ));
        }
        warnings
    }

    /// What the file of the model leaves out; a context that was asked for is not
    /// assumed, but nobody can say whether it is one.
    fn gap(&self, assumed: &Assumed) -> String {
        match self.context {
            Some(wanted) if assumed.field == "max_position_embeddings" => format!(
                "config.json has no {}: nobody can say whether the model was made for {wanted} \
                 tokens (--max-model-len), and vLLM will not ask",
                assumed.field
            ),
            _ => assumed.to_string(),
        }
    }

    /// A version whose source was not read.
    fn version_warning(&self) -> Option<String> {
        let version = self.engine.version;
        let (than, read, end) = if version > Version::NEWEST {
            ("newer", Version::NEWEST, "newest")
        } else if version < Version::OLDEST {
            ("older", Version::OLDEST, "oldest")
        } else {
            return None;
        };
        Some(format!(
            "vLLM {version} is {than} than {read}, the {end} whose source was read: defaults and \
             layouts are taken to be the same (--vllm)"
        ))
    }

    fn block_warning(&self) -> Option<String> {
        let block = self.engine.block.filter(|block| *block < SMALL_BLOCK)?;
        Some(format!(
            "--block-size {block}: most attention kernels take multiples of {SMALL_BLOCK} alone, \
             and vLLM may refuse it"
        ))
    }
}
