//! Who held the device's memory when an allocation failed.
//!
//! Decides by the figures of PyTorch's message how much was held by others.
//! In a container PyTorch cannot tell its own process from others and lists
//! itself as `Process 133288`: the one that holds at least what PyTorch
//! allocated is taken for itself.

use std::sync::LazyLock;

use regex::Regex;

use super::facts::{Facts, Field};

/// Share of a device that others must hold to be the cause: a desktop takes less.
const MUCH: f64 = 0.25;

/// What a context takes beside what PyTorch reserves, in GiB, where the message
/// does not tell.
const CONTEXT: f64 = 1.0;

static HOLDS: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        r"[Pp]rocess (\d+) has ([\d.]+) GiB memory in use",
        r"this process has ([\d.]+) GiB memory in use",
    ]
    .map(|pattern| Regex::new(pattern).expect("it is tried by the tests of this file"))
});

/// What the message says of others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Others {
    /// GiB they held.
    pub(super) gib: f64,
    /// Their process numbers, where told.
    pub(super) processes: Vec<u64>,
    /// Whether they held enough to be the cause.
    pub(super) much: bool,
}

/// Reads the message `text`; `facts` hold its capacity, free and allocated memory.
pub(super) fn others(text: &str, facts: &Facts) -> Option<Others> {
    let total = facts.number(Field::Total)?;
    let free = facts.number(Field::FreeThen).unwrap_or(0.0);
    let [process, own] = &*HOLDS;
    let number = |text: &str| text.parse::<f64>().ok().filter(|gib| *gib <= total);
    let mut listed: Vec<(u64, f64)> = process
        .captures_iter(text)
        .filter_map(|found| Some((found[1].parse().ok()?, number(&found[2])?)))
        .collect();
    let own = own.captures(text).and_then(|found| number(&found[1]));
    let own = own.filter(|gib| *gib > 0.0);
    let own = own.or_else(|| own_among(&mut listed, facts));
    let own = own.or_else(|| Some(facts.number(Field::HeldByEngine)? + CONTEXT))?;
    let gib = if listed.is_empty() {
        total - free - own
    } else {
        listed.iter().map(|(_, gib)| gib).sum()
    };
    let others = Others {
        gib: gib.max(0.0),
        processes: listed.into_iter().map(|(pid, _)| pid).collect(),
        much: gib >= MUCH * total,
    };
    Some(others)
}

/// Takes this process out of those listed.
fn own_among(listed: &mut Vec<(u64, f64)>, facts: &Facts) -> Option<f64> {
    let allocated = facts.number(Field::Allocated)?;
    let at = listed.iter().position(|(_, gib)| *gib >= allocated)?;
    Some(listed.remove(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(total: &str, free: &str, allocated: &str, text: &str) -> Option<Others> {
        let mut facts = Facts::default();
        facts.tell(Field::Total, total);
        facts.tell(Field::FreeThen, free);
        facts.tell(Field::Allocated, allocated);
        others(text, &facts)
    }

    #[test]
    fn in_a_container_the_process_listed_is_the_engine_itself() {
        let text = "Process 133288 has 22.97 GiB memory in use. Of the allocated memory 20.21 GiB";
        let others = told("23.57", "0.59", "20.21", text).unwrap();
        assert!(!others.much && others.processes.is_empty(), "{others:?}");
    }

    #[test]
    fn another_process_that_holds_half_a_card_is_the_cause() {
        let text = "Process 7 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 11.40 GiB memory in use.";
        let others = told("23.68", "0.2", "11.0", text).unwrap();
        let expected = Others {
            gib: 12.0,
            processes: vec![7],
            much: true,
        };
        assert_eq!(others, expected);
    }

    #[test]
    fn an_old_message_tells_others_by_what_is_missing() {
        let mut facts = Facts::default();
        for (field, text) in [
            (Field::Total, "44.56 GiB"),
            (Field::FreeThen, "565.31 MiB"),
            (Field::HeldByEngine, "27.93 GiB"),
        ] {
            facts.tell(field, text);
        }
        let others = others("", &facts).unwrap();
        assert!(
            others.much && (others.gib - 15.08).abs() < 0.01,
            "{others:?}"
        );
    }

    #[test]
    fn sizes_larger_than_the_device_are_no_sizes() {
        let text = "this process has 17179869184.00 GiB memory in use";
        assert_eq!(told("8.0", "0.0", "7.0", text), None);
    }
}
