//! How far a study is: a bar on stderr, nothing where stderr is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::replay::cells::{Cell, Kept, Study, Watch};

/// The bar; counts seconds of trace.
pub(super) struct Bar(ProgressBar);

// === impl Bar ===

impl Bar {
    pub(super) fn new(study: &Study<'_>) -> Self {
        let seconds = study.cells().iter().map(|cell| study.seconds(cell)).sum();
        let bar = ProgressBar::with_draw_target(Some(seconds), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {elapsed} {msg}");
        bar.set_style(style.expect("the template is one"));
        Self(bar)
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Watch for Bar {
    fn moved(&self, seconds: u64) {
        self.0.inc(seconds);
    }

    fn done(&self, cell: &Cell, kept: Kept) {
        let name = cell.policy.kind().name();
        let how = match kept {
            Kept::Before => "kept",
            Kept::Now => "played",
        };
        self.0.set_message(format!(
            "{name}, load {}, seed {} {how}",
            cell.load, cell.seed
        ));
    }
}
