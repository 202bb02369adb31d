//! `tidegate rounds`: rounds of tuning, compared; and where `advise --record` notes them.
//!
//! Decides how a round gets into its file: under a lock, in one write, beginning on a line
//! of its own whatever was cut off before it. Never rewrites what is there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::Failure;
use super::plain::{one_line, say};
use super::table::Table;
use crate::sizing::advise::Advice;
use crate::sizing::advise::rounds::{Figure, Round, Rounds};

/// The file, unless another is named.
pub(super) const FILE: &str = "tidegate-rounds.jsonl";

/// Flags of `tidegate rounds`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The file that `tidegate advise --record NAME` notes rounds in.
    #[arg(value_name = "FILE", default_value = FILE)]
    file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Prints the rounds with their differences.
pub(super) fn rounds(flags: &Flags, out: &mut impl Write) -> Result<(), Failure> {
    let file = flags.file.display();
    let text = fs::read(&flags.file).map_err(|error| {
        let next = "note a round with: tidegate advise LOG --record NAME";
        Failure::Configuration(format!("{file}: {error}; {next}"))
    })?;
    let read = Rounds::read(&String::from_utf8_lossy(&text));
    for bad in &read.bad {
        say(format_args!("{file}: {bad}; this line is passed over"));
    }
    if read.rounds.is_empty() {
        return Err(Failure::Configuration(format!("{file} has no round")));
    }
    if flags.json {
        let text = serde_json::to_string_pretty(&json!({
            "rounds": read.rounds,
            "changes": changes(&read.rounds),
            "bad_lines": read.bad,
        }));
        writeln!(out, "{}", text.expect("texts and numbers have a JSON form"))?;
        return Ok(());
    }
    write!(out, "{}", table(&read.rounds))?;
    for pair in read.rounds.windows(2) {
        tell_flags(&pair[0], &pair[1], out)?;
    }
    Ok(())
}

/// The round of that name: figures of `advice`, found under `flags`.
pub(super) fn round(name: &str, advice: &Advice, flags: &BTreeMap<String, String>) -> Round {
    Round {
        at: format!("{:.0}", Timestamp::now()),
        name: name.to_owned(),
        figures: advice.figures,
        flags: flags.clone(),
    }
}

/// Appends a round.
///
/// # Errors
/// The file cannot be written.
pub(super) fn note(round: &Round, path: &Path) -> Result<(), Failure> {
    append(round, path)
        .map_err(|error| Failure::Run(format!("cannot note it in {}: {error}", path.display())))
}

fn append(round: &Round, path: &Path) -> io::Result<()> {
    let open = OpenOptions::new()
        .create(true)
        .read(true)
        .append(true)
        .open(path);
    let mut file = open?;
    // Held until the file is closed; released by the system where the process ends before.
    file.lock()?;
    let mut line = round.line();
    if is_cut(&mut file)? {
        line.insert(0, '\n');
    }
    file.write_all(line.as_bytes())?;
    file.sync_data()
}

/// Whether the last line has no end.
fn is_cut(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

fn table(rounds: &[Round]) -> Table<7> {
    let mut table = Table::new([
        "ROUND",
        "AT",
        "KV TOKENS",
        "TTFT P50 s",
        "TTFT P99 s",
        "OUTPUT TOKENS/s",
        "PEAK KV %",
    ]);
    for (place, round) in rounds.iter().enumerate() {
        let before = place
            .checked_sub(1)
            .map(|before| [&rounds[0], &rounds[before]]);
        let [kv, p50, p99, rate, peak] = Figure::ALL.map(|figure| cell(figure, round, before));
        table.row([
            round.name.clone(),
            round.at.clone(),
            kv,
            p50,
            p99,
            rate,
            peak,
        ]);
    }
    table
}

/// A figure, and its change since the first round and since the one before, which for the
/// second are the same.
fn cell(figure: Figure, round: &Round, before: Option<[&Round; 2]>) -> String {
    let Some(value) = figure.of(&round.figures) else {
        return "–".to_owned();
    };
    let value = match figure {
        Figure::KvTokens => format!("{value:.0}"),
        Figure::TtftP50 | Figure::TtftP99 => format!("{value:.3}"),
        Figure::OutputRate => format!("{value:.1}"),
        Figure::PeakUsage => format!("{:.1}", 100.0 * value),
    };
    let Some([first, previous]) = before else {
        return value;
    };
    let change = |since: &Round| {
        let change = figure.change(&since.figures, &round.figures);
        change.map_or("–".to_owned(), |change| {
            format!("{:+.1} %", 100.0 * change)
        })
    };
    if std::ptr::eq(first, previous) {
        format!("{value} ({})", change(first))
    } else {
        format!("{value} ({}, last {})", change(first), change(previous))
    }
}

/// Changes since the first round and the one before, as shares, for each but the first.
fn changes(rounds: &[Round]) -> Vec<serde_json::Value> {
    let since = |before: &Round, after: &Round| {
        let [kv, p50, p99, rate, peak] =
            Figure::ALL.map(|figure| figure.change(&before.figures, &after.figures));
        json!({
            "kv_tokens": kv,
            "ttft_p50_seconds": p50,
            "ttft_p99_seconds": p99,
            "output_tokens_per_second": rate,
            "peak_kv_usage": peak,
        })
    };
    let pairs = rounds.windows(2);
    let pairs = pairs.map(|pair| {
        json!({
            "name": pair[1].name,
            "since_first": since(&rounds[0], &pair[1]),
            "since_last": since(&pair[0], &pair[1]),
        })
    });
    pairs.collect()
}

fn tell_flags(before: &Round, after: &Round, out: &mut impl Write) -> Result<(), Failure> {
    for (flag, then, now) in after.changed(before) {
        let [then, now] = [then, now].map(|value| value.unwrap_or("not known"));
        let told = format!("{}: {flag} {then} -> {now}", after.name);
        writeln!(out, "{}", one_line(&told))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizing::advise::figures::Figures;

    fn round(name: &str, kv: u64, ttft: f64) -> Round {
        Round {
            at: "2026-11-30T10:00:00Z".to_owned(),
            name: name.to_owned(),
            figures: Figures {
                kv_tokens: Some(kv),
                ttft_p50_seconds: Some(ttft),
                ..Figures::default()
            },
            flags: [("--max-model-len".to_owned(), kv.to_string())].into(),
        }
    }

    #[test]
    fn changes_are_told_since_the_first_and_since_the_last() {
        let rounds = [
            round("a", 1000, 2.0),
            round("b", 1500, 1.0),
            round("c", 1200, 1.5),
        ];
        let told = table(&rounds).to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[1].contains("  1000    "), "{told}");
        assert!(lines[2].contains("1500 (+50.0 %)"), "{told}");
        assert!(lines[2].contains("1.000 (-50.0 %)"), "{told}");
        assert!(lines[3].contains("1200 (+20.0 %, last -20.0 %)"), "{told}");
        assert!(lines[3].contains("1.500 (-25.0 %, last +50.0 %)"), "{told}");
        let mut out = Vec::new();
        tell_flags(&rounds[0], &rounds[1], &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "b: --max-model-len 1000 -> 1500\n"
        );
    }

    #[test]
    fn rounds_noted_at_one_time_are_all_there_and_a_cut_line_costs_only_itself() {
        let folder = std::env::temp_dir().join(format!("tidegate-rounds-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("rounds.jsonl");
        fs::write(&path, "{\"at\":\"2026").unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8_u64 {
                let path = &path;
                scope.spawn(move || {
                    for place in 0..25 {
                        note(&round("r", 100 * writer + place, 1.0), path).unwrap();
                    }
                });
            }
        });
        let read = Rounds::read(&fs::read_to_string(&path).unwrap());
        let mut kv: Vec<u64> = read
            .rounds
            .iter()
            .filter_map(|r| r.figures.kv_tokens)
            .collect();
        kv.sort_unstable();
        let expected: Vec<u64> = (0..8)
            .flat_map(|w| (0..25).map(move |p| 100 * w + p))
            .collect();
        assert_eq!(kv, expected);
        assert_eq!(read.bad.len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
