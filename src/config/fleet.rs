//! The keys of models, their backends, and tenants.

use http::Uri;
use http::uri::Scheme;

use super::reader::Section;
use super::resolved::{
    Anonymous, Backend, BackendVisibility, KvLayout, KvOverrides, Limits, Model, ModelAccess,
    OnUncountable, Tenant, TokenizerChoice,
};
use super::secret::KeyDigest;
use super::sections::{milliseconds, secret, tokens};
use super::source;
use super::surroundings::Surroundings;
use super::tls;
use crate::core::backend::{Tier, TierSet};
use crate::core::demand::{Length, OffloadRule};
use crate::core::placement::LongOnStandard;
use crate::core::rate::Rate;
use crate::core::units::{BlockSize, Blocks};

const MOST_TOKENS: u64 = 1_000_000_000_000;

/// No engine has a longer context.
const MOST_CONTEXT: u64 = 1_000_000_000;

const TIERS: [(&str, Tier); 3] = [
    ("standard", Tier::Standard),
    ("large", Tier::Large),
    ("offload", Tier::Offload),
];

const UNCOUNTABLE: [(&str, OnUncountable); 2] = [
    ("estimate", OnUncountable::Estimate),
    ("refuse", OnUncountable::Refuse),
];

const LONG_ON_STANDARD: [(&str, LongOnStandard); 2] = [
    ("when_nothing_larger", LongOnStandard::WhenNothingLarger),
    ("never", LongOnStandard::Never),
];

const LAYOUTS: [(&str, KvLayout); 2] =
    [("uniform", KvLayout::Uniform), ("hybrid", KvLayout::Hybrid)];

const ANONYMOUS: [(&str, Anonymous); 2] = [
    ("refused", Anonymous::Refused),
    ("accepted", Anonymous::Accepted),
];

const OFFLOAD: [(&str, OffloadRule); 3] = [
    ("when_only", OffloadRule::WhenOnly),
    ("when_faster", OffloadRule::WhenFaster),
    ("never", OffloadRule::Never),
];

const LENGTHS: [(&str, Length); 2] = [
    ("by_footprint", Length::ByFootprint),
    ("long", Length::Long),
];

const VISIBILITY: [(&str, BackendVisibility); 2] = [
    ("shown", BackendVisibility::Shown),
    ("hidden", BackendVisibility::Hidden),
];

const HEADER_NAME: &str = "1 to 128 visible ASCII characters";

/// The models of the file. None at all is a problem.
pub(super) fn models(root: &mut Section<'_>, around: &dyn Surroundings) -> Vec<Model> {
    let sections = root.list("models");
    if sections.is_empty() && !root.report().is_wrong("models") {
        root.note("models", None, "at least one [[models]] is needed");
    }
    sections
        .into_iter()
        .map(|section| model(section, around))
        .collect()
}

fn model(mut section: Section<'_>, around: &dyn Surroundings) -> Model {
    let name = needed_name(&mut section, "name", "the model id that clients ask for");
    let default = Model::new(name, Vec::new());
    let kwargs = section.free_table("template_kwargs", "a table of template variables");
    let template = section.text("chat_template_file", "the path of a Jinja template");
    let model = Model {
        aliases: section
            .texts("aliases", "a list of model ids")
            .unwrap_or_default(),
        tokenizer: tokenizer(&mut section, around).unwrap_or(default.tokenizer),
        on_uncountable: section.word("on_uncountable", &UNCOUNTABLE, default.on_uncountable),
        stored_history: tokens(&mut section, "stored_history_tokens", 0..=MOST_CONTEXT)
            .unwrap_or(default.stored_history),
        chat_template_file: template.map(|written| around.path(&written)),
        template_kwargs: json_object(&section, kwargs),
        long_on_standard: section.word(
            "long_on_standard",
            &LONG_ON_STANDARD,
            default.long_on_standard,
        ),
        kv_layout: section.optional_word("kv_layout", &LAYOUTS),
        backends: backends(&mut section, around),
        name: default.name,
    };
    if let Some(path) = model
        .chat_template_file
        .as_ref()
        .filter(|path| !around.is_file(path))
    {
        let problem = format!("{} is not a file", path.display());
        section.note("chat_template_file", None, problem);
    }
    section.finish();
    model
}

/// A name that must be there; where it is not, a stand-in goes on.
fn needed_name(section: &mut Section<'_>, key: &'static str, meaning: &str) -> String {
    let before = section.has(key);
    let name = section.text(key, meaning);
    if name.is_none() && !before {
        section.note(key, None, format!("is needed: {meaning}"));
    }
    name.unwrap_or_default()
}

fn tokenizer(section: &mut Section<'_>, around: &dyn Surroundings) -> Option<TokenizerChoice> {
    let written = section.text("tokenizer", source::FORMS)?;
    TokenizerChoice::parse(&written, around)
        .map_err(|problem| section.note("tokenizer", Some(format!("{written:?}")), problem))
        .ok()
}

/// Template variables as the templates take them. TOML dates and NaN have no JSON form.
fn json_object(
    section: &Section<'_>,
    table: toml::Table,
) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(table) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => {
            section.note(
                "template_kwargs",
                None,
                "holds a value that JSON cannot express",
            );
            serde_json::Map::new()
        }
    }
}

fn backends(model: &mut Section<'_>, around: &dyn Surroundings) -> Vec<Backend> {
    let sections = model.list("backends");
    let path = model.path_of("backends");
    if sections.is_empty() && !model.report().is_wrong(&path) {
        model.note(
            "backends",
            None,
            "at least one [[models.backends]] is needed",
        );
    }
    sections
        .into_iter()
        .map(|section| backend(section, around))
        .collect()
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

/// The tenants of the file, or of the file that `tenants_file` names.
pub(super) fn tenants(root: &mut Section<'_>, around: &dyn Surroundings) -> Vec<Tenant> {
    let mut sections = root.list("tenants");
    if let Some(written) = root.text("tenants_file", "the path of a TOML file of [[tenants]]") {
        if !sections.is_empty() {
            root.note("tenants_file", None, "set this or [[tenants]], not both");
        }
        sections = other_tenants(root, &written, around);
    }
    sections.into_iter().map(tenant).collect()
}

fn other_tenants<'r>(
    root: &Section<'r>,
    written: &str,
    around: &dyn Surroundings,
) -> Vec<Section<'r>> {
    let path = around.path(written);
    let text = match around.text(&path) {
        Ok(text) => text,
        Err(error) => {
            let problem = format!("{} cannot be read: {error}", path.display());
            root.note("tenants_file", None, problem);
            return Vec::new();
        }
    };
    let Some(mut other) = Section::parse_tenants(&path.display().to_string(), &text, root.report())
    else {
        return Vec::new();
    };
    let sections = other.list("tenants");
    other.finish();
    sections
}

fn tenant(mut section: Section<'_>) -> Tenant {
    let name = needed_name(
        &mut section,
        "name",
        "the tenant's name in logs and metrics",
    );
    let default = Tenant::new(name);
    let models = section.texts("models", "a list of model names or aliases");
    let tiers = section.word_list("tiers", &TIERS);
    let tenant = Tenant {
        keys: keys(&mut section),
        certificates: tls::matches(&mut section),
        anonymous: section.word("anonymous", &ANONYMOUS, default.anonymous),
        limits: limits(&mut section),
        weight: section
            .small("weight", 1..=10_000)
            .unwrap_or(default.weight),
        in_flight_share: section.share("in_flight_share", 0.0..=1.0, default.in_flight_share),
        priority: section.signed("priority"),
        models: models.map_or(ModelAccess::All, ModelAccess::Only),
        tiers: tiers.map_or(TierSet::ALL, TierSet::from_iter),
        offload: section.word("offload", &OFFLOAD, default.offload),
        length: section.word("length", &LENGTHS, default.length),
        backend_name: section.word("backend_name", &VISIBILITY, default.backend_name),
        name: default.name,
    };
    section.finish();
    tenant
}

/// Digests of keys. What is wrong is not shown: it may be a key.
fn keys(section: &mut Section<'_>) -> Vec<KeyDigest> {
    const FORM: &str = "a list of SHA-256 digests, each of 64 hexadecimal digits";
    let texts = section.hidden_texts("key_sha256", FORM);
    let digests: Vec<_> = texts
        .iter()
        .filter_map(|text| KeyDigest::from_hex(text))
        .collect();
    if digests.len() < texts.len() {
        section.note("key_sha256", None, format!("must be {FORM}"));
    }
    digests
}

fn limits(section: &mut Section<'_>) -> Limits {
    Limits {
        max_context: tokens(section, "max_context_tokens", 1..=MOST_CONTEXT),
        max_prompt: tokens(section, "max_prompt_tokens", 1..=MOST_CONTEXT),
        max_output: tokens(section, "max_output_tokens", 1..=MOST_CONTEXT),
        max_in_flight: tokens(section, "max_in_flight_tokens", 1..=MOST_TOKENS),
        max_waiting: section.small("max_waiting", 0..=1_000_000),
        max_queue_wait: section.optional_time("max_queue_wait", milliseconds(100..=86_400_000)),
        requests: rate(section, ["requests_per_minute", "request_burst"]),
        tokens: rate(section, ["tokens_per_minute", "token_burst"]),
        max_body_bytes: section.number("max_body_bytes", 1024..=1 << 30),
    }
}

/// A rate, whose burst is a minute's worth where none is given.
fn rate(section: &mut Section<'_>, [rate, burst]: [&'static str; 2]) -> Option<Rate> {
    let per_minute = section.number(rate, 1..=MOST_TOKENS);
    let at_once = section.number(burst, 1..=MOST_TOKENS);
    if let (None, Some(at_once)) = (per_minute, at_once) {
        let problem = format!("means nothing without {rate}");
        section.note(burst, Some(at_once.to_string()), problem);
    }
    per_minute.map(|per_minute| Rate {
        per_minute,
        burst: at_once.unwrap_or(per_minute),
    })
}
