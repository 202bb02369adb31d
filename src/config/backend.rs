//! The keys of backends, and the files that list them.
//!
//! Decides what one engine is to the gateway, and where a model's engines are
//! written: beside the model, or in a file of their own that other programs keep.
//! Never looks anything up: see [`super::discovery`].

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;

use super::discovery::Discover;
use super::fleet::{MOST_CONTEXT, MOST_TOKENS, TIERS};
use super::reader::Section;
use super::secret::Secret;
use super::sections::{secret, tokens};
use super::surroundings::Surroundings;
use super::tls::{self, BackendTls};
use crate::core::backend::Tier;
use crate::core::units::{BlockSize, Blocks, Tokens};

const HEADER_NAME: &str = "1 to 128 visible ASCII characters";

const FILE: &str = "the path of a TOML or JSON file of backends";

const DISCOVER: [(&str, Discover); 2] = [
    ("off", Discover::Off),
    (
        "dns",
        Discover::Dns {
            every: Discover::EVERY,
        },
    ),
];

const INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// One engine endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Name in logs, metrics and headers.
    pub name: String,
    /// `http://host:port` or `https://host:port`, without a path.
    pub url: Uri,
    /// Context class.
    pub tier: Tier,
    /// Key sent to the engine in place of the client's.
    pub api_key: Option<Secret>,
    /// TLS towards it; there where `url` is https.
    pub tls: Option<BackendTls>,
    /// What the operator knows better than the engine's metrics.
    pub kv: KvOverrides,
    /// Data-parallel engines behind the address; at least 1.
    pub data_parallel_ranks: u32,
    /// Whether it is one engine, or one at each address of its host.
    pub discover: Discover,
}

/// Capacity figures that override what the engine advertises, each per rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvOverrides {
    /// KV pool in tokens, usable as given; excludes `blocks`.
    pub tokens: Option<Tokens>,
    /// KV pool in usable blocks, the null block already left out; excludes `tokens`.
    pub blocks: Option<Blocks>,
    /// Tokens per block.
    pub block_size: Option<BlockSize>,
    /// Longest context, prompt plus output.
    pub max_model_len: Option<Tokens>,
    /// Sequences the engine runs at one time.
    pub max_num_seqs: Option<u32>,
    /// KV slots a running sequence takes beyond its tokens.
    pub lookahead: Option<Tokens>,
}

/// The file that lists some of a model's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendsFile {
    /// Where it is.
    pub path: PathBuf,
    /// Place of its first one among the model's backends; the rest are its too.
    pub first: usize,
}

/// The backends of a model: those beside it, then those of the file it names.
pub(super) fn backends(
    model: &mut Section<'_>,
    around: &dyn Surroundings,
) -> (Vec<Backend>, Option<BackendsFile>) {
    let mut sections = model.list("backends");
    let path = model.path_of("backends");
    let listed = model
        .text("backends_file", FILE)
        .map(|written| BackendsFile {
            path: around.path(&written),
            first: sections.len(),
        });
    if let Some(file) = &listed {
        sections.extend(of_file(model, &file.path, around));
    }
    // A file may name none for a while.
    if sections.is_empty() && listed.is_none() && !model.report().is_wrong(&path) {
        model.note(
            "backends",
            None,
            "at least one [[models.backends]] is needed",
        );
    }
    let backends = sections.into_iter().map(|section| backend(section, around));
    (backends.collect(), listed)
}

/// The sections of a file of backends: TOML, or JSON of the same form where its
/// name says so.
fn of_file<'r>(model: &Section<'r>, path: &Path, around: &dyn Surroundings) -> Vec<Section<'r>> {
    let name = path.display().to_string();
    let text = match around.text(path) {
        Ok(text) => text,
        Err(error) => {
            model.note(
                "backends_file",
                None,
                format!("{name} cannot be read: {error}"),
            );
            return Vec::new();
        }
    };
    let is_json = path.extension().is_some_and(|ending| ending == "json");
    let parse = if is_json {
        Section::parse_json
    } else {
        Section::parse_other
    };
    let Some(mut file) = parse(&name, &text, model.report()) else {
        return Vec::new();
    };
    let sections = file.list("backends");
    file.finish();
    sections
}

fn backend(mut section: Section<'_>, around: &dyn Surroundings) -> Backend {
    let url = url(&mut section);
    let default = Backend::new(url);
    let name = section.text("name", HEADER_NAME);
    let backend = Backend {
        name: name.unwrap_or(default.name),
        url: default.url.clone(),
        tier: section.word("tier", &TIERS, default.tier),
        api_key: secret(&mut section, ["api_key_env", "api_key_file"], around),
        kv: overrides(&mut section),
        tls: tls::backend(&mut section, &default.url, around),
        data_parallel_ranks: section
            .small("data_parallel_ranks", 1..=1024)
            .unwrap_or(default.data_parallel_ranks),
        discover: discover(&mut section, &default.url),
    };
    let visible = backend.name.bytes().all(|byte| byte.is_ascii_graphic());
    if !visible || backend.name.len() > 128 {
        section.note(
            "name",
            Some(format!("{:?}", backend.name)),
            format!("must be {HEADER_NAME}"),
        );
    }
    section.finish();
    backend
}

/// Whether one backend is written, or a name behind which there are several.
fn discover(section: &mut Section<'_>, url: &Uri) -> Discover {
    let how = section.word("discover", &DISCOVER, Discover::Off);
    let every = section.time("discover_interval", INTERVALS, Discover::EVERY);
    if how == Discover::Off {
        return how;
    }
    let host = url.host().unwrap_or_default();
    if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        section.note(
            "discover",
            Some("\"dns\"".to_owned()),
            "needs a url with a host name, not an IP address",
        );
    }
    Discover::Dns { every }
}

fn overrides(section: &mut Section<'_>) -> KvOverrides {
    let block_size = section.small("block_size", 1..=4096);
    let overrides = KvOverrides {
        tokens: tokens(section, "kv_tokens", 1..=MOST_TOKENS),
        blocks: section
            .number("kv_blocks", 1..=MOST_TOKENS)
            .map(Blocks::new),
        block_size: block_size.and_then(BlockSize::new),
        max_model_len: tokens(section, "max_model_len", 1..=MOST_CONTEXT),
        max_num_seqs: section.small("max_num_seqs", 1..=1_000_000),
        lookahead: tokens(section, "lookahead_tokens", 0..=1024),
    };
    if overrides.tokens.is_some() && overrides.blocks.is_some() {
        section.note("kv_blocks", None, "set this or kv_tokens, not both");
    }
    overrides
}

/// The backend's address; a stand-in goes on where it is wrong or missing.
fn url(section: &mut Section<'_>) -> Uri {
    const FORM: &str = "http:// or https://host:port, without a path";
    let stand_in = Uri::from_static("http://invalid");
    let missing = !section.has("url");
    let Some(written) = section.text("url", FORM) else {
        if missing {
            section.note("url", None, format!("is needed: {FORM}"));
        }
        return stand_in;
    };
    let uri = written.parse::<Uri>().ok().filter(is_plain);
    uri.unwrap_or_else(|| {
        let shown = (!written.contains('@')).then(|| format!("{written:?}"));
        section.note("url", shown, format!("must be {FORM}"));
        stand_in
    })
}

fn is_plain(uri: &Uri) -> bool {
    let host = uri.host().is_some_and(|host| !host.is_empty());
    let authority = uri
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    let port = uri.port_u16() != Some(0)
        && (uri.port().is_none() == uri.authority().is_some_and(no_colon));
    let bare = uri.path() == "/" && uri.query().is_none();
    let scheme = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
    scheme && host && authority && port && bare
}

/// Whether nothing like a port follows the host, so that an empty or too large one is not taken for none.
fn no_colon(authority: &http::uri::Authority) -> bool {
    let text = authority.as_str();
    let after_v6 = text.rfind(']').map_or(0, |end| end + 1);
    !text[after_v6..].contains(':')
}
