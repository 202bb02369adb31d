//! The keys of models and tenants.

use super::backend::backends;
use super::reader::Section;
use super::resolved::{
    Anonymous, BackendVisibility, KvLayout, Limits, Model, ModelAccess, OnUncountable, Tenant,
    TokenizerChoice,
};
use super::secret::KeyDigest;
use super::sections::{milliseconds, tokens};
use super::source;
use super::surroundings::Surroundings;
use super::tls;
use crate::core::backend::{Tier, TierSet};
use crate::core::demand::{Length, OffloadRule};
use crate::core::placement::LongOnStandard;
use crate::core::rate::Rate;

pub(super) const MOST_TOKENS: u64 = 1_000_000_000_000;

/// No engine has a longer context.
pub(super) const MOST_CONTEXT: u64 = 1_000_000_000;

pub(super) const TIERS: [(&str, Tier); 3] = [
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
    let mut model = Model {
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
        ..default
    };
    (model.backends, model.backends_file) = backends(&mut section, around);
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
