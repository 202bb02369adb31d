//! What happens while a run goes on, on stderr.
//!
//! On a terminal a few lines are redrawn in place; elsewhere one line now and then. Only
//! looks: the run does not know that it is watched.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::board::{Board, CLASSES, Stage, Tally, name};
use super::fleet::Fleet;
use super::gateway::Books;
use crate::sim::engine::EngineStats;

/// What is watched.
pub(super) struct Scene {
    /// Which of the runs.
    pub(super) title: &'static str,
    pub(super) fleet: Arc<Fleet>,
    pub(super) board: Arc<Board>,
    /// The gateway's books, where there is a gateway.
    pub(super) books: Option<Books>,
    /// Real seconds per second of engine time.
    pub(super) scale: f64,
}

/// How a scene is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// Redrawn in place.
    Redraw,
    /// One line at a time.
    Lines,
    /// Not at all.
    Nothing,
}

/// A scene on stderr; dropping it stops the pictures.
pub(super) struct Live(JoinSet<()>);

// === impl Show ===

impl Show {
    /// As stderr allows.
    pub(super) fn on_stderr() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Redraw
        } else {
            Self::Lines
        }
    }

    const fn every(self) -> Duration {
        match self {
            Self::Redraw => Duration::from_millis(200),
            Self::Lines | Self::Nothing => Duration::from_secs(2),
        }
    }
}

// === impl Live ===

impl Live {
    /// Shows `scene` until dropped. Needs a runtime around it.
    pub(super) fn start(scene: Scene, show: Show) -> Self {
        let mut task = JoinSet::new();
        if show != Show::Nothing {
            task.spawn(watch(scene, show));
        }
        Self(task)
    }

    /// Stops the pictures; none comes after this.
    pub(super) async fn stop(mut self) {
        self.0.shutdown().await;
    }
}

async fn watch(scene: Scene, show: Show) {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(show.every());
    let mut drawn = 0;
    loop {
        ticks.tick().await;
        let at = start.elapsed().div_f64(scene.scale);
        let text = match show {
            Show::Redraw => {
                let picture = scene.picture(at);
                let lines = picture.lines().count();
                let text = format!("{}{picture}", back(drawn));
                drawn = lines;
                text
            }
            Show::Lines | Show::Nothing => scene.line(at),
        };
        // Whoever closes stderr does not want to see more; the run goes on.
        if std::io::stderr().write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Takes the cursor back over `lines` and clears what was there.
fn back(lines: usize) -> String {
    match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\x1b[J"),
    }
}

// === impl Scene ===

impl Scene {
    /// A few lines, each ended.
    fn picture(&self, at: Duration) -> String {
        let mut text = format!("{}, after {:.1} s\n", self.title, at.as_secs_f64());
        for (class, tally) in CLASSES.into_iter().zip(self.board.tallies()) {
            line(
                &mut text,
                format_args!("  {:<11}{}", name(class), stages(tally)),
            );
        }
        for (engine, stats) in self.fleet.engines.iter().zip(self.fleet.stats()) {
            line(
                &mut text,
                format_args!(
                    "  {:<11}running {:>3}  waiting {:>3}  KV {:>3} %  preemptions {:>4}",
                    engine.name,
                    stats.running,
                    stats.waiting,
                    percent(&stats),
                    stats.preemptions
                ),
            );
        }
        if let Some(books) = &self.books {
            let queue = books.state().queue;
            line(
                &mut text,
                format_args!(
                    "  {:<11}waiting {:>3}, {} tokens",
                    "gateway", queue.requests, queue.tokens
                ),
            );
        }
        text
    }

    /// The same on one line.
    fn line(&self, at: Duration) -> String {
        let mut text = format!("{:<18}{:>6.1} s", self.title, at.as_secs_f64());
        for (class, tally) in CLASSES.into_iter().zip(self.board.tallies()) {
            part(&mut text, format_args!("{} {}", name(class), short(tally)));
        }
        for (engine, stats) in self.fleet.engines.iter().zip(self.fleet.stats()) {
            part(
                &mut text,
                format_args!(
                    "{} {}+{} KV {}% preempted {}",
                    engine.name,
                    stats.running,
                    stats.waiting,
                    percent(&stats),
                    stats.preemptions
                ),
            );
        }
        if let Some(books) = &self.books {
            part(
                &mut text,
                format_args!("gateway +{}", books.state().queue.requests),
            );
        }
        text.push('\n');
        text
    }
}

/// How a line without a terminal is to be read.
pub(super) const LEGEND: &str =
    "each class: running+waiting, answered, refused; each engine: running+waiting sequences";

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("a string takes any text");
}

fn part(text: &mut String, what: std::fmt::Arguments<'_>) {
    write!(text, " | {what}").expect("a string takes any text");
}

fn stages(tally: Tally) -> String {
    format!(
        "running {:>3}  waiting {:>3}  answered {:>4}  refused {:>3}",
        tally.at(Stage::Running),
        tally.at(Stage::Waiting),
        tally.at(Stage::Done),
        tally.at(Stage::Refused)
    )
}

fn short(tally: Tally) -> String {
    format!(
        "{}+{} {} ok {} refused",
        tally.at(Stage::Running),
        tally.at(Stage::Waiting),
        tally.at(Stage::Done),
        tally.at(Stage::Refused)
    )
}

/// KV in use, rounded down.
fn percent(stats: &EngineStats) -> u64 {
    stats.used.get() * 100 / stats.usable.get().max(1)
}
