//! Which vLLM release an endpoint runs, as far as rules depend on it.
//!
//! Never guesses: what is not a released number reads as unknown, and each rule
//! says what it does then.

use std::fmt;

/// The release of an engine, `major.minor`; later parts decide nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The release `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads `0.32.0`, `v0.11.0rc2.dev3+gabc`; `None` for what carries no release
    /// number. A build from an untagged source tree calls itself `0.1.devN` and
    /// reads as unknown too.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let mut parts = text.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor_text = parts.next()?;
        let digits = minor_text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(minor_text.len());
        let minor = minor_text[..digits].parse().ok()?;
        let untagged = parts.next().is_some_and(|part| part.starts_with("dev"));
        (!untagged).then_some(Self { major, minor })
    }

    /// The release named by the answer of `GET /version`, as written.
    pub fn text_of_answer(body: &[u8]) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Answer {
            version: String,
        }
        let answer: Answer = serde_json::from_slice(body).ok()?;
        Some(answer.version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_candidate_and_local_builds_read_as_their_release() {
        for (text, minor) in [
            ("0.32.0", 32),
            ("v0.9.2", 9),
            ("0.11.0rc2.dev3+gabc", 11),
            ("0.12rc1", 12),
        ] {
            assert_eq!(Version::parse(text), Some(Version::new(0, minor)), "{text}");
        }
        assert!(Version::new(0, 9) < Version::new(0, 12));
        assert!(Version::new(0, 33) < Version::new(1, 0));
    }

    #[test]
    fn an_untagged_build_and_nonsense_are_unknown() {
        for text in ["0.1.dev9+g1234567", "dev", "", "0", "x.y"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_answer_of_a_real_server_is_read() {
        let text = Version::text_of_answer(br#"{"version":"0.32.0"}"#);
        assert_eq!(text.as_deref(), Some("0.32.0"));
        assert_eq!(Version::text_of_answer(b"[]"), None);
    }
}
