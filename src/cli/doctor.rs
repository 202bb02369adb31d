//! `tidegate doctor`: what an engine's log means, and what to change.
//!
//! Exit code 0 whenever the log could be read, whatever it says: the kind is in
//! the answer. 1 where it could not be read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::bufread::MultiGzDecoder;

use super::Failure;
use crate::sizing::log::{Diagnosis, Fix, Kind, Value, diagnose};

/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;

/// What a gzip file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Flags of `tidegate doctor`.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// A log of vLLM, also gzipped; standard input without it or with "-".
    #[arg(value_name = "LOG")]
    log: Option<PathBuf>,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Reads the log and prints what it means.
pub(super) fn doctor(flags: &Flags, input: impl Read, out: &mut impl Write) -> Result<(), Failure> {
    let file = flags.log.as_deref().filter(|path| *path != Path::new("-"));
    let name = file.map_or("standard input".into(), |path| path.display().to_string());
    let read = match file {
        Some(path) => File::open(path).and_then(|file| read(BufReader::with_capacity(CHUNK, file))),
        None => read(BufReader::with_capacity(CHUNK, input)),
    };
    let told = read.map_err(|error| Failure::Run(format!("cannot read {name}: {error}")))?;
    if flags.json {
        let text = serde_json::to_string(&told).expect("texts and numbers have a JSON form");
        writeln!(out, "{text}")?;
    } else {
        print(&told, out)?;
    }
    Ok(())
}

fn read(mut log: impl BufRead) -> io::Result<Diagnosis> {
    if log.fill_buf()?.starts_with(&GZIP) {
        let plain = MultiGzDecoder::new(log);
        return diagnose(BufReader::with_capacity(CHUNK, plain));
    }
    diagnose(log)
}

fn print(told: &Diagnosis, out: &mut impl Write) -> io::Result<()> {
    match told.kind {
        Kind::NotRecognised => writeln!(out, "not recognised")?,
        kind => writeln!(out, "{}: {}", kind.name(), kind.meaning())?,
    }
    if let Some(evidence) = &told.evidence {
        writeln!(out, "  line {}: {}", evidence.line, evidence.text)?;
    }
    if let Some(source) = told.evidence.as_ref().and_then(|evidence| evidence.source) {
        writeln!(out, "  a wording of {source}")?;
    }
    for note in &told.notes {
        writeln!(out, "  {note}")?;
    }
    writeln!(out)?;
    let version = told.engine_version.as_deref().unwrap_or("not told");
    writeln!(out, "engine version             {version}")?;
    for (field, value) in told.facts.iter() {
        writeln!(out, "{:26} {}", field.name(), shown(value))?;
    }
    if !told.fixes.is_empty() {
        writeln!(out, "\nto change, in this order:")?;
    }
    for (fix, place) in told.fixes.iter().zip(1..) {
        writeln!(out, "{place}. {}", change(fix))?;
        writeln!(out, "   {}", fix.why)?;
    }
    Ok(())
}

/// `--max-model-len 32768 -> 6528`.
fn change(fix: &Fix) -> String {
    let flag = fix.flag.unwrap_or("outside the flags");
    let from = fix.from.as_ref().map(shown);
    let to = fix.to.as_ref().map(shown);
    match (from, to) {
        (Some(from), Some(to)) => format!("{flag} {from} -> {to}"),
        (Some(from), None) => format!("{flag} {from}"),
        (None, Some(to)) => format!("{flag} {to}"),
        (None, None) => flag.to_owned(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Whole(whole) => whole.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) => text.clone(),
    }
}
