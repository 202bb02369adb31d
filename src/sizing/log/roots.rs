//! The first real exception of a run.
//!
//! Decides which exception started a failure: not one that wraps another, and
//! once requests are served not one of a request long before. Keeps two quotes.

use std::sync::LazyLock;

use regex::Regex;

use super::run::Quote;

/// An exception as a traceback ends with it.
static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failed|OutOfResources)(?:: |\(['\x22]|$)|^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception) \[|^(?:Value error|Assertion failed), |^[\w./ -]*: error: ";
    Regex::new(pattern).expect("it is tried by the tests of this file")
});

/// Words of exceptions that stand for another one.
const WRAPPERS: [&str; 22] = [
    "Engine core initialization failed",
    "Engine process failed to start",
    "See root cause above",
    "EngineDeadError",
    "EngineGenerateError",
    "WorkerProc initialization failed",
    "check the stack trace above",
    "stack trace for the root cause",
    "See stack trace",
    "Executor failed",
    "cannot schedule new futures after shutdown",
    "CancelledError",
    "Engine loop has died",
    "Engine process (pid ",
    "Engine loop is not running",
    "Background loop",
    "Task finished unexpectedly",
    "ChildFailedError",
    "ProcessRaisedException",
    "BrokenPipeError",
    "ConnectionResetError",
    "EOFError",
];

/// Lines between two exceptions beyond which they are of two stories.
const FAR: u64 = 400;

/// Exceptions of a run.
#[derive(Debug, Default)]
pub(super) struct Roots {
    first: Option<Quote>,
    /// The first of the present story, and the line of its last.
    story: Option<(Quote, u64)>,
    /// The one that belongs to the engine's end.
    fatal: Option<Quote>,
    died: bool,
}

// === impl Roots ===

impl Roots {
    /// Notes an exception, if `text` is a real one.
    pub(super) fn note(&mut self, line: u64, text: &str) {
        let text = text.strip_prefix("  ").unwrap_or(text);
        if !EXCEPTION.is_match(text) || WRAPPERS.iter().any(|words| text.contains(words)) {
            return;
        }
        let quote = Quote::of(line, text);
        self.first.get_or_insert_with(|| quote.clone());
        match &mut self.story {
            Some((_, last)) if line - *last < FAR => *last = line,
            story => *story = Some((quote.clone(), line)),
        }
        if self.died {
            self.fatal.get_or_insert(quote);
        }
    }

    /// Notes that the engine is gone at this line.
    pub(super) fn died(&mut self, line: u64) {
        if self.died {
            return;
        }
        self.died = true;
        let story = self.story.as_ref();
        let near = story.filter(|(_, last)| line - *last < FAR);
        self.fatal = near.map(|(quote, _)| quote.clone());
    }

    /// The first of the run.
    pub(super) fn first(&self) -> Option<&Quote> {
        self.first.as_ref()
    }

    /// The one that belongs to the engine's end: just before it, else the next after.
    pub(super) fn fatal(&self) -> Option<&Quote> {
        self.fatal.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_and_other_lines_are_no_exceptions() {
        let mut roots = Roots::default();
        for text in [
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
            "INFO:     127.0.0.1:1 - \"POST /v1/completions HTTP/1.1\" 500 Internal Server Error",
            "    raise ValueError(",
            "Error with model error=ErrorInfo(",
        ] {
            roots.note(1, text);
        }
        assert_eq!(roots.first(), None);
        roots.note(
            9,
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        );
        roots.note(12, "KeyError: 'rope'");
        assert_eq!(roots.first().map(|quote| quote.line), Some(9));
    }

    #[test]
    fn the_exception_of_a_request_long_ago_did_not_kill_the_engine() {
        let mut roots = Roots::default();
        roots.note(10, "ValueError: a request");
        roots.note(5000, "RuntimeError: the real one");
        roots.died(5010);
        assert_eq!(roots.fatal().map(|quote| quote.line), Some(5000));
    }

    #[test]
    fn an_exception_after_the_end_explains_it_where_none_stood_before() {
        let mut roots = Roots::default();
        roots.died(108);
        roots.note(146, "RuntimeError: CPU Generator does not use offset");
        assert_eq!(roots.fatal().map(|quote| quote.line), Some(146));
    }
}
