//! The text of a configuration, put together key by key.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use tidegate::config::{Config, load};

use super::engine::Engine;
use super::fake::Fake;
use super::secrets;

/// A configuration to be.
#[derive(Clone)]
pub(crate) struct Setup {
    sections: BTreeMap<String, BTreeMap<String, String>>,
    models: String,
    tenants: String,
}

impl Setup {
    /// Free ports, quick probes, a log that is read at the end, strict
    /// reservations, no models.
    pub(crate) fn new() -> Self {
        let empty = Self {
            sections: BTreeMap::new(),
            models: String::new(),
            tenants: String::new(),
        };
        empty
            .set("server.listen", "\"127.0.0.1:0\"")
            .set("admin.listen", "\"127.0.0.1:0\"")
            .set("probe.interval", "\"100ms\"")
            .set("log.access_log", &format!("{:?}", access_log()))
            .set("admission.reservation", "\"strict\"")
    }

    /// One model `tiny`, counted by the engine, on these backends.
    pub(crate) fn tiny(backends: &[String]) -> Self {
        Self::new().model("name = \"tiny\"", backends)
    }

    /// Sets `section.key` to a TOML value.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        let (section, key) = key.split_once('.').unwrap();
        let section = self.sections.entry(section.into()).or_default();
        section.insert(key.into(), value.into());
        self
    }

    /// One more model, of these TOML lines.
    pub(crate) fn model(mut self, lines: &str, backends: &[String]) -> Self {
        write!(self.models, "[[models]]\n{lines}\n{}", backends.concat()).unwrap();
        self
    }

    /// One more tenant with this key; `lines` are TOML.
    pub(crate) fn tenant(mut self, name: &str, key: &str, lines: &str) -> Self {
        secrets::key(key);
        let digest = Sha256::digest(key.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(
            self.tenants,
            "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{digest}\"]\n{lines}"
        )
        .unwrap();
        self
    }

    /// The tenant of requests without a key; `lines` are TOML.
    pub(crate) fn anonymous(mut self, lines: &str) -> Self {
        let tenant = "[[tenants]]\nname = \"all\"\nanonymous = \"accepted\"";
        writeln!(self.tenants, "{tenant}\n{lines}").unwrap();
        self
    }

    /// Without models and tenants, to be given others.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            sections: self.sections.clone(),
            models: String::new(),
            tenants: String::new(),
        }
    }

    /// The configuration, which must be valid.
    pub(crate) fn config(&self) -> Config {
        let text = self.text();
        load(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
    }

    /// The configuration as a file has it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.sections {
            writeln!(text, "[{section}]").unwrap();
            for (key, value) in keys {
                writeln!(text, "{key} = {value}").unwrap();
            }
        }
        text += &self.models;
        text += &self.tenants;
        text
    }
}

/// A file of its own for each gateway; removed when its test is over.
fn access_log() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("access-{}-{number}.log", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A backend's part of a configuration.
pub(crate) fn backend(name: &str, url: &str, lines: &str) -> String {
    format!("[[models.backends]]\nname = \"{name}\"\nurl = \"{url}\"\n{lines}\n")
}

impl Fake {
    /// As the backend `name`.
    pub(crate) fn backend(&self, name: &str) -> String {
        backend(name, &self.url(), "")
    }

    /// As a backend of this tier, which is also its name.
    pub(crate) fn tier(&self, tier: &str) -> String {
        backend(tier, &self.url(), &format!("tier = \"{tier}\""))
    }
}

impl Engine {
    /// As the backend `name`.
    pub(crate) fn named(&self, name: &str) -> String {
        backend(name, &self.server().url(), "")
    }

    /// As a backend of this tier, which is also its name.
    pub(crate) fn tier(&self, tier: &str) -> String {
        backend(tier, &self.server().url(), &format!("tier = \"{tier}\""))
    }
}
