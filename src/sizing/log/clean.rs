//! What wrapped a line on its way here, taken off.
//!
//! Decides what of a line the engine wrote: terminal colours, the time stamps of
//! docker, kubectl, journald and shippers, container names, Ray's and torchrun's
//! ranks, and the engine's own `(EngineCore pid=7) ERROR 11-29 14:45:28 [core.py:1510]`
//! come off. Never changes what is left, its indentation included.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Colours and cursor moves, as bytes or as people paste them.
static COLOUR: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?:\x1b|\u{2190}|\\x1b|\\u001b)\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
});

/// One wrapping at the start of a line. `source` names who wrote it where several
/// write into one log.
static WRAPPING: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)^(?:
          \[pod/(?P<pod>[^\]]+)\]\ ?                                                       # kubectl logs --prefix
        | (?P<compose>[A-Za-z0-9][\w.-]*)\s*\|\ (?:\ ?\d{4}-\d\d-\d\dT\S+\ )?              # docker compose logs
        | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\t|\ |$) # docker -t, kubectl --timestamps
        | (?:stdout|stderr)\ [FP]\                                                         # CRI
        | [A-Z][a-z]{2}\ +\d+\ \d\d:\d\d:\d\d\ \S+\ [^\s:\[]+(?:\[\d+\])?:\                # journald, syslog
        | \|\ (?:ERROR|INFO|WARNING)\ \|\ (?:stderr|stdout)\ \|\ ?                         # FastChat
        | \ *\|\ +                                                                            # Buildkite
        | [\u{2502}\u{2503}]\ ?                                                            # terminal boards
        | \[rank\d+\]:\ ?                                                                  # torchrun
        | \[resource\.labels\.[^\]]*\]\ ?                                                  # Google Cloud
        | (?:INFO|ERROR|WARNING|DEFAULT)\ \d{4}-\d\d-\d\dT\S+\ ?                           # the same
        | vLLM\ (?:STDOUT|STDERR):\ ?
        )",
    )
});

/// The engine's own head of a line.
static HEAD: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)^(?:\(?(?P<process>[A-Za-z][A-Za-z0-9_-]*)?\ ?(?:rank=\d+\ )?pid=(?P<pid>\d+)(?:,\ ip=[^)\s]*)?\)\ ?)?
          (?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\ \d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d+)?
             \ \[?[\w./\\]+\.py:\d+\]\ ?)?",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is tried by the tests of this file")
}

/// How loud a line is, by the engine's own head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// No head that tells it: tracebacks on stderr, uvicorn, argparse.
    Untold,
    Quiet,
    Warning,
    Error,
}

/// What the engine wrote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cleaned<'a> {
    /// Container or pod, where the log tells; else empty.
    pub(super) source: &'a str,
    /// Process number, where the log tells; else empty.
    pub(super) process: &'a str,
    pub(super) level: Level,
    /// The line without its wrappings, indentation kept.
    pub(super) text: &'a str,
}

/// The line without colours, and out of the JSON that docker's json-file driver,
/// journald and JSON loggers put around it.
pub(super) fn unwrapped(line: &str) -> Cow<'_, str> {
    let line = match line.starts_with('{') {
        true => message(line).map_or(Cow::Borrowed(line), Cow::Owned),
        false => Cow::Borrowed(line),
    };
    if !line.contains('[') {
        return line;
    }
    match COLOUR.replace_all(&line, "") {
        Cow::Borrowed(_) => line,
        Cow::Owned(plain) => Cow::Owned(plain),
    }
}

fn message(line: &str) -> Option<String> {
    let object: Value = serde_json::from_str(line).ok()?;
    let keys = ["log", "MESSAGE", "message", "msg", "text"];
    let text = keys.iter().find_map(|key| object.get(key)?.as_str())?;
    Some(text.trim_end().to_owned())
}

/// Takes the wrappings off a line that [`unwrapped`] gave.
pub(super) fn clean(line: &str) -> Cleaned<'_> {
    let mut rest = line;
    let mut source = "";
    // Three are the most seen around one line; eight bounds a line of bars.
    for _ in 0..8 {
        let Some(found) = WRAPPING.captures(rest) else {
            break;
        };
        if let Some(name) = found.name("pod").or(found.name("compose")) {
            source = name.as_str();
        }
        rest = &rest[found[0].len()..];
    }
    let head = HEAD.captures(rest);
    let part = |name: &str| head.as_ref().and_then(|head| head.name(name));
    let level = match part("level").map(|level| level.as_str()) {
        None => Level::Untold,
        Some("DEBUG" | "INFO") => Level::Quiet,
        Some("WARNING") => Level::Warning,
        Some(_) => Level::Error,
    };
    let process = part("pid").map_or("", |pid| pid.as_str());
    let head = head.as_ref().map_or(0, |head| head[0].len());
    Cleaned {
        source,
        process,
        level,
        text: rest[head..].trim_end_matches([' ', '\u{2502}', '\u{2503}', '\t']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line as it comes, and what of it is the engine's.
    const WRAPPED: [(&str, &str, &str, Level); 16] = [
        (
            "(EngineCore pid=22808) ERROR 11-29 14:45:28 [core.py:1510] ValueError: x",
            "",
            "22808",
            Level::Error,
        ),
        (
            "(EngineCore_DP0 pid=7) \u{1b}[1;36mINFO\u{1b}[0;0m 11-29 14:45:28 [v1/engine/core.py:9] x",
            "",
            "7",
            Level::Quiet,
        ),
        (
            "\u{1b}[1;36m(VllmWorker rank=1 pid=978)\u{1b}[0;0m ERROR 03-19 07:27:53 [multiproc_executor.py:375] x",
            "",
            "978",
            Level::Error,
        ),
        (
            "(RayWorkerWrapper pid=206994, ip=192.0.2.25) ERROR 03-27 10:29:13 [worker_base.py:620] x",
            "",
            "206994",
            Level::Error,
        ),
        (
            "ERROR 11-18 18:07:28 engine.py:366] ValueError: x",
            "",
            "",
            Level::Error,
        ),
        (
            "vllm-1  | ERROR 11-18 18:07:28 engine.py:366] x",
            "vllm-1",
            "",
            Level::Error,
        ),
        (
            "[pod/vllm-0/server] (APIServer pid=1) WARNING 11-29 14:07:57 [a.py:1] x",
            "vllm-0/server",
            "1",
            Level::Warning,
        ),
        (
            "2024-06-28T06:11:52.685300953Z (LLMRayActor pid=20770) INFO 06-28 06:11:45 worker.py:45] x",
            "",
            "20770",
            Level::Quiet,
        ),
        (
            "2024-06-28T06:11:52.685300953Z stderr F RuntimeError: x",
            "",
            "",
            Level::Untold,
        ),
        (
            "Nov 29 14:07:57 gpu-7 vllm[812]: INFO 11-29 14:07:57 [a.py:3] x",
            "",
            "",
            Level::Quiet,
        ),
        (
            "2024-02-20 21:46:23 | ERROR | stderr | ValueError: x",
            "",
            "",
            Level::Untold,
        ),
        ("[rank0]: torch.OutOfMemoryError: x", "", "", Level::Untold),
        (
            "\u{2502} ERROR 09-27 06:46:46 engine.py:157] x      \u{2502}",
            "",
            "",
            Level::Error,
        ),
        (
            "INFO 2025-11-19T20:16:36.096Z [resource.labels.containerName: vllm] (EngineCore_DP0 pid=270) ERROR 11-19 12:16:36 [v1/engine/core.py:842] x",
            "",
            "270",
            Level::Error,
        ),
        (
            "[2025-03-10T15:07:20Z] INFO 03-10 08:07:20 [gpu_model_runner.py:1067] x",
            "",
            "",
            Level::Quiet,
        ),
        (
            "  | [2025-03-10T15:07:20Z] ERROR 03-10 08:07:20 [core.py:302] x",
            "",
            "",
            Level::Error,
        ),
    ];

    #[test]
    fn every_wrapping_comes_off_and_tells_who_wrote() {
        for (line, source, process, level) in WRAPPED {
            let plain = unwrapped(line);
            let plain = plain.trim_start();
            let cleaned = clean(plain);
            let text = cleaned.text.trim_end();
            assert!(
                text == "x" || text.ends_with("Error: x"),
                "{line}: {cleaned:?}"
            );
            assert!(!text.contains('|'), "{line}: {cleaned:?}");
            assert_eq!(
                (cleaned.source, cleaned.process, cleaned.level),
                (source, process, level),
                "{line}"
            );
        }
    }

    #[test]
    fn the_json_around_a_line_comes_off() {
        for line in [
            r#"{"log":"ValueError: x\n","stream":"stderr","time":"2026-11-29T14:07:57Z"}"#,
            r#"{"MESSAGE":"ValueError: x","_PID":"7"}"#,
            r#"{"message":"ValueError: x","levelname":"ERROR"}"#,
        ] {
            assert_eq!(unwrapped(line), "ValueError: x");
        }
        assert_eq!(unwrapped("{not json"), "{not json");
    }

    #[test]
    fn indentation_within_a_traceback_is_kept() {
        let line = "(EngineCore pid=1) ERROR 11-29 14:45:28 [core.py:1510]     raise ValueError(";
        assert_eq!(clean(line).text, "    raise ValueError(");
    }
}
