//! The configuration the gateway is given, and how it changes under load.
//!
//! Tenants `one` to `three` stay, with limits that move; `guest` and the last
//! engine come and go.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tidegate::sim::random::{Random, mix};

use crate::fleet::{SEQUENCES, directory};

/// Tenants with keys: three that stay, and one that comes and goes.
pub(crate) const TENANTS: [&str; 4] = ["one", "two", "three", "guest"];
/// Which of them is the guest.
pub(crate) const GUEST: usize = 3;

/// Everything that a written configuration depends on.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    pub(crate) gateway: u16,
    pub(crate) admin: u16,
    /// Ports of all engines; the last is listed only where `extra` says so.
    pub(crate) engines: Vec<u16>,
    pub(crate) extra: Listed,
    pub(crate) guest: Listed,
    /// Share of KV that tenant `three` may hold, in tokens.
    pub(crate) third_tokens: u64,
    /// Weight of tenant `two`.
    pub(crate) second_weight: u64,
    pub(crate) seed: u64,
    pub(crate) max_num_seqs: u64,
}

/// Whether the configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Yes,
    No,
}

/// The key of a tenant; nothing outside a client may ever show it.
pub(crate) fn key(seed: u64, tenant: usize) -> String {
    let tenant = u64::try_from(tenant).expect("there are four tenants");
    format!("sk-{:016x}{:016x}", mix(seed, tenant), mix(!seed, tenant))
}

// === impl Settings ===

impl Settings {
    /// Everything listed, at the ports of the gateway, its admin listener and the engines.
    pub(crate) fn new(seed: u64, gateway: (u16, u16), engines: Vec<u16>) -> Self {
        Self {
            directory: directory(seed),
            gateway: gateway.0,
            admin: gateway.1,
            engines,
            extra: Listed::Yes,
            guest: Listed::Yes,
            third_tokens: 4_000_000,
            second_weight: 2,
            seed,
            max_num_seqs: SEQUENCES,
        }
    }

    /// Changes what a reload may change.
    pub(crate) fn shuffle(&mut self, random: &mut Random) {
        self.extra = Listed::drawn(random);
        self.guest = Listed::drawn(random);
        self.third_tokens = random.between(200_000, 4_000_000);
        self.second_weight = random.between(1, 5);
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.join("tidegate.toml")
    }

    pub(crate) fn access_log(&self) -> PathBuf {
        self.directory.join("access.log")
    }

    /// Replaces the configuration in one step, as a careful operator does.
    pub(crate) fn write(&self, text: &str) {
        let next = self.directory.join("next.toml");
        std::fs::write(&next, text).expect("the run's directory is writable");
        std::fs::rename(&next, self.file()).expect("a rename within a directory");
    }

    /// Engines in the configuration.
    pub(crate) fn listed_engines(&self) -> usize {
        self.engines.len() - usize::from(self.extra == Listed::No)
    }

    pub(crate) fn text(&self) -> String {
        let template = self.directory.join("chat.jinja");
        let mut text = head(self, &template);
        for (index, port) in self.engines.iter().take(self.listed_engines()).enumerate() {
            let seqs = self.max_num_seqs;
            let _infallible = write!(
                text,
                "[[models.backends]]\nname = \"engine-{index}\"\nurl = \"http://127.0.0.1:{port}\"\nmax_num_seqs = {seqs}\n"
            );
        }
        let listed = TENANTS.len() - usize::from(self.guest == Listed::No);
        for (index, name) in TENANTS.iter().take(listed).enumerate() {
            let digest = Sha256::digest(key(self.seed, index));
            let hex = digest.iter().fold(String::new(), |mut hex, byte| {
                let _infallible = write!(hex, "{byte:02x}");
                hex
            });
            let _infallible = write!(
                text,
                "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{hex}\"]\n"
            );
            let _infallible = match index {
                1 => writeln!(text, "weight = {}", self.second_weight),
                2 => writeln!(text, "max_in_flight_tokens = {}", self.third_tokens),
                _ => Ok(()),
            };
        }
        text
    }
}

fn head(settings: &Settings, template: &Path) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:{}\"\n\
         [admin]\nlisten = \"127.0.0.1:{}\"\n\
         [upstream]\nstream_silence_timeout = \"60s\"\n\
         [queue]\nmax_requests = 8192\nmax_tokens = 100000000\n\
         [log]\nlevel = \"info\"\naccess_log = {:?}\naccess_queue_records = 2048\n\
         [[models]]\nname = \"sim\"\ntokenizer = \"tiktoken:o200k_base\"\nchat_template_file = {template:?}\n",
        settings.gateway,
        settings.admin,
        settings.access_log(),
    )
}

// === impl Listed ===

impl Listed {
    fn drawn(random: &mut Random) -> Self {
        if random.between(0, 1) == 0 {
            Self::Yes
        } else {
            Self::No
        }
    }
}
