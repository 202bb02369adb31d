//! The demo's traffic, and who sends it.

use std::time::Duration;

use crate::core::demand::TenantId;
use crate::core::units::Tokens;
use crate::sim::workload::{Arrivals, Asked, Class, Flow, Lengths, WorkloadSpec};

/// Who sends the load, by the index of [`TenantId`]. The names are also their API keys.
pub(super) const TENANTS: [&str; 3] = ["chat", "documents", "greedy"];

const CHAT: TenantId = TenantId(0);
const DOCUMENTS: TenantId = TenantId(1);
const GREEDY: TenantId = TenantId(2);

/// Fifty seconds of a mixed day: chats all along, questions about documents beside them,
/// a book that only the slowest engine can hold, a prompt that nothing can, and a tenant
/// that sends a night's batch at once.
pub(super) fn workload(seed: u64) -> WorkloadSpec {
    WorkloadSpec {
        seed,
        duration: Duration::from_secs(50),
        flows: vec![chats(), documents(), book(), greedy(), impossible()],
    }
}

fn chats() -> Flow {
    Flow {
        tenant: CHAT,
        class: Class::Chat,
        arrivals: during(4.0, 0, 50),
        prompt: Lengths::around(Tokens::new(400), 0.7, Tokens::new(3_000)),
        shared: Tokens::new(64),
        output: Lengths::around(Tokens::new(320), 0.6, Tokens::new(1_024)),
        asked: Asked::Nothing,
    }
}

fn documents() -> Flow {
    Flow {
        tenant: DOCUMENTS,
        class: Class::Documents,
        arrivals: during(0.6, 1, 50),
        prompt: Lengths::around(Tokens::new(11_000), 0.5, Tokens::new(40_000)),
        shared: Tokens::new(128),
        output: Lengths::around(Tokens::new(250), 0.5, Tokens::new(512)),
        asked: Asked::Tokens(Tokens::new(512)),
    }
}

/// Longer than the large engine's context.
fn book() -> Flow {
    Flow {
        arrivals: Arrivals::Once(Duration::from_secs(2)),
        prompt: Lengths::exactly(Tokens::new(56_000)),
        ..documents()
    }
}

fn greedy() -> Flow {
    Flow {
        tenant: GREEDY,
        class: Class::Greedy,
        arrivals: during(20.0, 15, 18),
        prompt: Lengths::around(Tokens::new(600), 0.4, Tokens::new(3_000)),
        shared: Tokens::new(64),
        output: Lengths::around(Tokens::new(1_300), 0.3, Tokens::new(2_048)),
        asked: Asked::Tokens(Tokens::new(2_048)),
    }
}

fn impossible() -> Flow {
    Flow {
        class: Class::Impossible,
        arrivals: Arrivals::Once(Duration::from_secs(10)),
        prompt: Lengths::exactly(Tokens::new(150_000)),
        ..documents()
    }
}

/// `rate` a second between two seconds of the load.
fn during(rate: f64, from: u64, until: u64) -> Arrivals {
    Arrivals::PerSecond {
        rate,
        from: Duration::from_secs(from),
        until: Duration::from_secs(until),
    }
}
