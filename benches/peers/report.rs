//! What the measurements of all rounds come to: medians, their spread, and what the
//! direct way took off.
//!
//! Decides what counts: a measurement with a wrong answer in it does not.

use std::fmt::Write as _;

use serde::Deserialize;

/// Everything `run` has written.
#[derive(Debug, Deserialize)]
pub(crate) struct Results {
    date: String,
    command: String,
    rounds: u32,
    seconds: f64,
    cpu: String,
    kernel: String,
    long_prompt_tokens: u64,
    peers: Vec<Peer>,
    cells: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
struct Peer {
    name: String,
    version: Option<String>,
    not_run: Option<String>,
    /// What its own log says against the figures.
    #[serde(default)]
    faults: Vec<String>,
}

/// One measurement. What a kind of measurement does not have is absent.
#[derive(Debug, Deserialize)]
struct Cell {
    round: u32,
    peer: String,
    cell: String,
    seconds: f64,
    errors: u64,
    first_error: Option<String>,
    requests: Option<f64>,
    pieces: Option<f64>,
    whole_us: Option<Times>,
    cpu_us: Option<f64>,
    rate: Option<f64>,
    streams: Option<f64>,
    before_bytes: Option<f64>,
    after_bytes: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Times {
    p50: f64,
    p99: f64,
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Median; of an even number of rounds the mean of the middle two.
    pub(crate) median: f64,
    least: f64,
    most: f64,
}

/// What is told of every proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Requests a second with 32 at a time.
    Saturation,
    /// Processor time for each of them, in microseconds.
    PerRequest,
    /// Added to the median at half of its saturation, in microseconds.
    HalfP50,
    /// The same of the p99.
    HalfP99,
    /// Added to the median at the rate that is the same for all, in microseconds.
    CommonP50,
    /// The same of the p99.
    CommonP99,
    /// Processor time for each chunk of a stream, in microseconds.
    PerChunk(&'static str),
    /// Memory of an idle stream, in KiB.
    Idle,
    /// Processor time of a long prompt, in milliseconds.
    Long,
}

/// In the order in which they are told.
const COLUMNS: [Column; 12] = [
    Column::Saturation,
    Column::PerRequest,
    Column::HalfP50,
    Column::HalfP99,
    Column::CommonP50,
    Column::CommonP99,
    Column::PerChunk("paced100"),
    Column::PerChunk("paced2000"),
    Column::PerChunk("fast100"),
    Column::PerChunk("fast2000"),
    Column::Idle,
    Column::Long,
];

/// The way without a proxy, as the measurements name it.
const DIRECT: &str = "direct";

// === impl Results ===

impl Results {
    /// Names of the proxies as they were started, tidegate first.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.peers.iter().map(|peer| &*peer.name).collect();
        names.sort_by_key(|&name| name != "tidegate");
        names
    }

    /// When, on what and by which command.
    pub(crate) fn origin(&self) -> String {
        format!(
            "{}, {}, Linux {}, {} rounds of {} s: `{}`",
            self.date, self.cpu, self.kernel, self.rounds, self.seconds, self.command
        )
    }

    /// A figure of a proxy; `None` where no round has it without a wrong answer.
    pub(crate) fn figure(&self, peer: &str, column: Column) -> Option<Figure> {
        let own = self.cells.iter().filter(|cell| cell.peer == peer);
        let own = own.filter(|cell| cell.errors == 0 && cell.cell == column.cell());
        Figure::of(own.filter_map(|cell| column.value(cell, self)).collect())
    }

    /// The table, and what must be known to read it.
    pub(crate) fn table(&self) -> String {
        let mut text = format!("{}\n\n| |", self.origin());
        let names = self.names();
        for name in &names {
            write!(text, " {name} |").expect("a string takes all");
        }
        text += "\n|---|";
        text += &"---|".repeat(names.len());
        for column in COLUMNS {
            write!(text, "\n| {} |", column.title(self)).expect("a string takes all");
            for name in &names {
                let figure = self.figure(name, column);
                let told = figure.map_or_else(String::new, Figure::told);
                write!(text, " {told} |").expect("a string takes all");
            }
        }
        text += "\n\n";
        self.notes(&mut text);
        text
    }

    /// Versions, what did not run, and what was wrong.
    fn notes(&self, text: &mut String) {
        for peer in &self.peers {
            let name = &peer.name;
            let version = peer.version.as_deref().unwrap_or("not installed");
            let mut line = format!("- {name}: {version}");
            if let Some(reason) = &peer.not_run {
                line += &format!("; not run: {reason}");
            }
            if let Some(fault) = peer.faults.first() {
                line += &format!("; it complained {} times: {fault}", peer.faults.len());
            }
            for cell in self
                .cells
                .iter()
                .filter(|cell| cell.peer == *name && cell.errors > 0)
            {
                let what = cell.first_error.as_deref().unwrap_or("?");
                line += &format!(
                    "; {} in round {}: {} wrong answers, such as: {what}",
                    cell.cell,
                    cell.round + 1,
                    cell.errors
                );
            }
            for column in [Column::Idle, Column::HalfP50] {
                line += &self.aside(name, column);
            }
            *text += &line;
            text.push('\n');
        }
        let direct = self.figure(DIRECT, Column::Saturation);
        if let Some(direct) = direct {
            let direct = direct.told();
            *text += &format!("- straight at the engine: {direct} requests/s\n");
        }
    }

    /// The load a figure was measured at, where proxies differ in it.
    fn aside(&self, peer: &str, column: Column) -> String {
        let own = self.cells.iter().filter(|cell| cell.peer == peer);
        let own = own.filter(|cell| cell.cell == column.cell());
        let (values, unit): (Vec<f64>, _) = match column {
            Column::Idle => (
                own.filter_map(|cell| cell.streams).collect(),
                "idle streams",
            ),
            _ => (
                own.filter_map(|cell| cell.rate).collect(),
                "requests/s as half",
            ),
        };
        Figure::of(values).map_or_else(String::new, |figure| {
            format!("; {} {unit}", rounded(figure.median))
        })
    }

    /// What the direct way took at the same rate in the same round.
    fn direct(&self, cell: &Cell) -> Option<Times> {
        let name = format!("{} of {}", cell.cell, cell.peer);
        let mut others = self.cells.iter().filter(|other| other.round == cell.round);
        others
            .find(|other| other.peer == DIRECT && other.cell == name)?
            .whole_us
    }
}

// === impl Column ===

impl Column {
    /// What it is called in a table.
    pub(crate) fn title(self, results: &Results) -> String {
        let tokens = results.long_prompt_tokens / 1000;
        match self {
            Self::Saturation => "requests/s, 32 at a time".into(),
            Self::PerRequest => "CPU µs a request".into(),
            Self::HalfP50 => "added p50 at half of saturation, µs".into(),
            Self::HalfP99 => "added p99 at half of saturation, µs".into(),
            Self::CommonP50 => "added p50 at 1,000/s, µs".into(),
            Self::CommonP99 => "added p99 at 1,000/s, µs".into(),
            Self::PerChunk("paced100") => "CPU µs a chunk, one each 10 ms, 100 a stream".into(),
            Self::PerChunk("paced2000") => "CPU µs a chunk, one each 10 ms, 2,000 a stream".into(),
            Self::PerChunk("fast100") => "CPU µs a chunk, at once, 100 a stream".into(),
            Self::PerChunk(_) => "CPU µs a chunk, at once, 2,000 a stream".into(),
            Self::Idle => "KiB an idle stream".into(),
            Self::Long => format!("CPU ms a prompt of {tokens},000 tokens"),
        }
    }

    /// The measurement it is of.
    fn cell(self) -> &'static str {
        match self {
            Self::Saturation | Self::PerRequest => "plain",
            Self::HalfP50 | Self::HalfP99 => "half",
            Self::CommonP50 | Self::CommonP99 => "common",
            Self::PerChunk(cell) => cell,
            Self::Idle => "idle",
            Self::Long => "long",
        }
    }

    fn value(self, cell: &Cell, results: &Results) -> Option<f64> {
        let added = |of: fn(Times) -> f64| Some(of(cell.whole_us?) - of(results.direct(cell)?));
        let each = |count: Option<f64>| {
            let count = count.filter(|&count| count > 0.0);
            Some(cell.cpu_us? / count?)
        };
        match self {
            Self::Saturation => Some(cell.requests.filter(|&count| count > 0.0)? / cell.seconds),
            Self::PerRequest => each(cell.requests),
            Self::HalfP50 | Self::CommonP50 => added(|times| times.p50),
            Self::HalfP99 | Self::CommonP99 => added(|times| times.p99),
            Self::PerChunk(_) => each(cell.pieces),
            Self::Idle => {
                let streams = cell.streams.filter(|&streams| streams > 0.0);
                Some((cell.after_bytes? - cell.before_bytes?) / 1024.0 / streams?)
            }
            Self::Long => each(cell.requests).map(|micros| micros / 1000.0),
        }
    }
}

// === impl Figure ===

impl Figure {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self {
            median: f64::midpoint(low, high),
            least,
            most,
        })
    }

    /// Median and spread.
    fn told(self) -> String {
        format!(
            "{} ({}–{})",
            rounded(self.median),
            rounded(self.least),
            rounded(self.most)
        )
    }
}

/// Three figures at least, thousands apart.
pub(crate) fn rounded(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.places$}");
    let whole = text.find('.').unwrap_or(text.len());
    let mut grouped = String::new();
    for (at, digit) in text.char_indices() {
        let left = whole.saturating_sub(at);
        if at > 0 && at < whole && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
