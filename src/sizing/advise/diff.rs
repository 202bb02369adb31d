//! Proposals in the manner of a unified diff: what is set, what should be, and why.

use std::fmt;

use super::proposals::Proposal;

/// Prints proposals as a difference from what runs.
#[derive(Clone, Copy, Debug)]
pub struct Diff<'a>(pub &'a [Proposal]);

// === impl Diff ===

impl fmt::Display for Diff<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        writeln!(f, "--- present\n+++ proposed")?;
        let mut place = None;
        for proposal in self.0 {
            if place != Some(&proposal.place) {
                writeln!(f, "@@ {} @@", proposal.place)?;
                place = Some(&proposal.place);
            }
            writeln!(f, " # {}", proposal.why)?;
            if let Some(from) = &proposal.from {
                writeln!(f, "-{}", set(proposal.flag, from))?;
            }
            writeln!(f, "+{}", set(proposal.flag, &proposal.to))?;
        }
        Ok(())
    }
}

/// As it is written where it is set.
fn set(flag: &str, value: &str) -> String {
    match (flag.starts_with("--"), value) {
        (true, "on") => flag.to_owned(),
        (true, value) => format!("{flag} {value}"),
        (false, value) => format!("{flag} = {value}"),
    }
}
