//! The flags that a plan is started with, and why each.

use super::super::engine::{KvDtype, PrefixCaching};
use super::super::memory::{Budget, Graphs};
use super::{Flag, Plan, Question, SHARED, share};

// === impl Question ===

impl Question<'_> {
    pub(super) fn flags(&self, plan: &Plan) -> Vec<Flag> {
        let mut flags = vec![self.context_flag(plan)];
        self.budget_flags(plan, &mut flags);
        let parallel = self.engine.parallel;
        let spread = [
            (
                "--tensor-parallel-size",
                parallel.tensor,
                "each GPU holds a part of every layer",
            ),
            (
                "--pipeline-parallel-size",
                parallel.pipeline,
                "each GPU holds a part of the layers",
            ),
            (
                "--data-parallel-size",
                parallel.data,
                "engines with pools of their own",
            ),
            (
                "--decode-context-parallel-size",
                parallel.context,
                "spreads a sequence's tokens over ranks that would hold copies",
            ),
        ];
        for (flag, size, why) in spread.into_iter().filter(|(_, size, _)| *size > 1) {
            flags.push(Flag::new(format!("{flag}={size}"), why));
        }
        if let Some(block) = self.engine.block {
            flags.push(Flag::new(format!("--block-size={block}"), "as asked"));
        }
        if self.graphs == Graphs::Off {
            flags.push(Flag::new(
                "--enforce-eager".to_owned(),
                "no graphs, so no memory for them",
            ));
        }
        match self.engine.prefix {
            PrefixCaching::Default => {}
            PrefixCaching::On => {
                flags.push(Flag::new("--enable-prefix-caching".to_owned(), "as asked"))
            }
            PrefixCaching::Off => flags.push(Flag::new(
                "--no-enable-prefix-caching".to_owned(),
                "as asked",
            )),
        }
        flags
    }

    fn context_flag(&self, plan: &Plan) -> Flag {
        let why = match (self.context, self.model.context) {
            (Some(_), _) => format!("as asked; up to {} would fit", plan.longest),
            (None, Some(made)) if made == plan.longest => "the model's own, which fits".to_owned(),
            (None, _) => "the longest of which one sequence fits".to_owned(),
        };
        Flag::new(format!("--max-model-len={}", plan.context), &why)
    }

    fn budget_flags(&self, plan: &Plan, flags: &mut Vec<Flag>) {
        let pool = u64::try_from(plan.available).unwrap_or(0);
        let bytes = |why: &str| Flag::new(format!("--kv-cache-memory-bytes={pool}"), why);
        let utilization = |why: &str| {
            let share = share(self.utilization());
            Flag::new(format!("--gpu-memory-utilization={share}"), why)
        };
        match self.budget {
            Some(Budget::KvBytes(_)) => {
                flags.push(bytes(
                    "as asked; --gpu-memory-utilization no longer sizes the pool",
                ));
            }
            Some(Budget::Blocks(blocks)) => flags.push(Flag::new(
                format!("--num-gpu-blocks-override={blocks}"),
                "as asked; meant for tests",
            )),
            Some(Budget::Logged(_)) => {}
            _ if self.shares() && self.engine.version.takes_kv_bytes() && pool > 0 => {
                flags.push(utilization(&self.part_of()));
                flags.push(bytes(
                    "a pool of its own: profiling beside others would misjudge it",
                ));
            }
            _ if self.shares() && self.memory.is_some() => {
                flags.push(utilization(&self.part_of()));
            }
            Some(Budget::Utilization(_)) => flags.push(utilization("as asked, of the whole card")),
            None if self.memory.is_some() => flags.push(utilization("the default of the version")),
            None => {}
        }
    }

    /// Flags of a `--kv-cache-dtype` given by name.
    #[must_use]
    pub fn dtype_flag(&self, name: &str) -> Option<Flag> {
        (self.engine.kv != KvDtype::Auto && name != "auto").then(|| {
            Flag::new(
                format!("--kv-cache-dtype={name}"),
                "bytes of a token's keys and values",
            )
        })
    }

    /// How the part of a card that is not this engine's alone comes about.
    fn part_of(&self) -> String {
        let each = share(self.utilization());
        let rule = format!(
            "{} in sum leaves room for peaks of profiling and for restarts",
            share(SHARED * 100)
        );
        let others = match self.others {
            0 => String::new(),
            others => format!(", less {} of others", share(others)),
        };
        match (self.budget, self.instances) {
            (Some(Budget::Utilization(_)), 1) => {
                format!("as asked, beside {} of others", share(self.others))
            }
            (Some(Budget::Utilization(_)), instances) => {
                format!("as asked for each of {instances}")
            }
            (_, 1) => format!("{rule}{others}; it must be free when it starts"),
            (_, instances) => format!(
                "{rule}{others}: {each} for each of {instances}, which must be free when it starts"
            ),
        }
    }
}
