//! Checks that compare keys with each other.

use std::collections::HashMap;

use http::uri::Scheme;

use super::reader::Report;
use super::resolved::{
    Anonymous, Config, Model, ModelAccess, OnUncountable, Tenant, TokenizerChoice,
};
use super::units::time_text;
use crate::core::backend::{Tier, TierSet};
use crate::core::demand::OffloadRule;

/// Notes every contradiction within `config`.
pub(super) fn check(config: &Config, report: &Report) {
    server(config, report);
    probe(config, report);
    models(config, report);
    tenants(config, report);
}

fn server(config: &Config, report: &Report) {
    let (server, admin) = (&config.server, &config.admin);
    if server.body_budget_bytes < server.max_body_bytes {
        let problem = format!(
            "must be at least server.max_body_bytes, {}",
            server.max_body_bytes
        );
        report.contradiction(
            &["server.body_budget_bytes", "server.max_body_bytes"],
            Some(server.body_budget_bytes.to_string()),
            problem,
        );
    }
    if server.listen == admin.listen && admin.listen.port() != 0 {
        let problem = "must differ from server.listen";
        report.contradiction(
            &["admin.listen", "server.listen"],
            Some(format!("\"{}\"", admin.listen)),
            problem,
        );
    }
    if !admin.listen.ip().to_canonical().is_loopback() && admin.token.is_none() {
        let problem = "needs token_env or token_file, since others than this machine can reach it";
        report.contradiction(
            &["admin.listen", "admin.token_env", "admin.token_file"],
            Some(format!("\"{}\"", admin.listen)),
            problem,
        );
    }
}

fn probe(config: &Config, report: &Report) {
    let probe = &config.probe;
    let least = probe.interval + probe.timeout;
    if probe.stale_after <= least {
        let problem = format!(
            "must be longer than interval and timeout together, {}",
            time_text(least)
        );
        report.contradiction(
            &["probe.stale_after", "probe.interval", "probe.timeout"],
            Some(format!("\"{}\"", time_text(probe.stale_after))),
            problem,
        );
    }
}

/// Tells the second of two equal things where the first is.
struct Unique<'r> {
    report: &'r Report,
    first: HashMap<String, String>,
}

impl<'r> Unique<'r> {
    fn new(report: &'r Report) -> Self {
        Self {
            report,
            first: HashMap::new(),
        }
    }

    /// Notes that `shown` at `path` was there before. An empty `thing` stands for one that is missing.
    fn see(&mut self, thing: String, path: String, shown: Option<&str>) {
        if thing.is_empty() {
            return;
        }
        if let Some(first) = self.first.get(&thing) {
            let shown = shown.map(|shown| format!("{shown:?}"));
            self.report
                .note(path, shown, format!("is already at {first}"));
        } else {
            self.first.insert(thing, path);
        }
    }
}

fn models(config: &Config, report: &Report) {
    let (mut ids, mut names, mut addresses) = (
        Unique::new(report),
        Unique::new(report),
        Unique::new(report),
    );
    for (index, model) in config.models.iter().enumerate() {
        let path = format!("models[{index}]");
        ids.see(
            model.name.clone(),
            format!("{path}.name"),
            Some(&model.name),
        );
        for (alias, name) in model.aliases.iter().enumerate() {
            ids.see(name.clone(), format!("{path}.aliases[{alias}]"), Some(name));
        }
        for (place, backend) in model.backends.iter().enumerate() {
            let path = model.place_of(place, &path);
            let (name, url) = (format!("{path}.name"), format!("{path}.url"));
            // Without one of its own a backend is named after its address.
            if !report.is_wrong(&url) && !report.is_wrong(&name) {
                names.see(backend.name.clone(), name, Some(&backend.name));
            }
            let host = backend.url.host().unwrap_or_default().to_ascii_lowercase();
            let default = if backend.url.scheme() == Some(&Scheme::HTTPS) {
                443
            } else {
                80
            };
            let port = backend.url.port_u16().unwrap_or(default);
            let address = if host == "invalid" {
                String::new()
            } else {
                format!("{host}:{port}")
            };
            addresses.see(address, url, Some(&backend.url.to_string()));
        }
        if model.tokenizer == TokenizerChoice::Estimate
            && model.on_uncountable == OnUncountable::Refuse
        {
            let problem = "refuses every request of a model whose tokenizer is \"estimate\"";
            report.contradiction(
                &[
                    &format!("{path}.on_uncountable"),
                    &format!("{path}.tokenizer"),
                ],
                Some("\"refuse\"".to_owned()),
                problem,
            );
        }
    }
}

fn tenants(config: &Config, report: &Report) {
    let (mut names, mut keys, mut certificates, mut anonymous) = (
        Unique::new(report),
        Unique::new(report),
        Unique::new(report),
        Unique::new(report),
    );
    for (index, tenant) in config.tenants.iter().enumerate() {
        let path = report.tenant_at(index);
        names.see(
            tenant.name.clone(),
            format!("{path}.name"),
            Some(&tenant.name),
        );
        for (place, key) in tenant.keys.iter().enumerate() {
            keys.see(
                format!("{:?}", key.0),
                format!("{path}.key_sha256[{place}]"),
                None,
            );
        }
        for (place, certificate) in tenant.certificates.iter().enumerate() {
            certificates.see(
                format!("{certificate:?}"),
                format!("{path}.certificates[{place}]"),
                None,
            );
        }
        shown(config, tenant, &path, report);
        if tenant.anonymous == Anonymous::Accepted {
            anonymous.see(
                "accepted".to_owned(),
                format!("{path}.anonymous"),
                Some("accepted"),
            );
        } else if tenant.keys.is_empty()
            && tenant.certificates.is_empty()
            && config.auth.jwt.is_none()
        {
            let problem = "is needed, or anonymous = \"accepted\": nobody could be this tenant";
            let key = |key| format!("{path}.{key}");
            let keys = ["key_sha256", "certificates", "anonymous"].map(key);
            let keys = [&*keys[0], &*keys[1], &*keys[2], "auth.jwt"];
            report.contradiction(&keys, None, problem);
        }
        limits(tenant, &path, report);
        queue_wait(config, tenant, &path, report);
        body(config, tenant, &path, report);
        tiers(tenant, &path, report);
        access(config, tenant, &path, report);
    }
}

/// Nobody can be asked for a certificate in clear text.
fn shown(config: &Config, tenant: &Tenant, path: &str, report: &Report) {
    let asked = config
        .server
        .tls
        .as_ref()
        .and_then(|tls| tls.clients.as_ref());
    if !tenant.certificates.is_empty() && asked.is_none() {
        let problem = "needs client_ca_file of [server.tls]: no client is asked for one";
        if !report.is_wrong("server.tls") {
            report.note(format!("{path}.certificates"), None, problem);
        }
    }
}

fn limits(tenant: &Tenant, path: &str, report: &Report) {
    let limits = &tenant.limits;
    let Some(context) = limits.max_context else {
        return;
    };
    for (key, limit) in [
        ("max_prompt_tokens", limits.max_prompt),
        ("max_output_tokens", limits.max_output),
    ] {
        if let Some(limit) = limit.filter(|limit| *limit > context) {
            let problem = format!("must be at most max_context_tokens, {context}");
            let keys = [
                &*format!("{path}.{key}"),
                &*format!("{path}.max_context_tokens"),
            ];
            report.contradiction(&keys, Some(limit.to_string()), problem);
        }
    }
}

fn queue_wait(config: &Config, tenant: &Tenant, path: &str, report: &Report) {
    let most = config.queue.max_wait;
    if let Some(wait) = tenant.limits.max_queue_wait.filter(|wait| *wait > most) {
        let problem = format!("must be at most queue.max_wait, {}", time_text(most));
        report.contradiction(
            &[&*format!("{path}.max_queue_wait"), "queue.max_wait"],
            Some(format!("\"{}\"", time_text(wait))),
            problem,
        );
    }
}

fn body(config: &Config, tenant: &Tenant, path: &str, report: &Report) {
    let most = config.server.max_body_bytes;
    if let Some(bytes) = tenant.limits.max_body_bytes.filter(|bytes| *bytes > most) {
        let problem = format!("must be at most server.max_body_bytes, {most}");
        let shown = Some(bytes.to_string());
        let key = format!("{path}.max_body_bytes");
        report.contradiction(&[&key, "server.max_body_bytes"], shown, problem);
    }
}

fn tiers(tenant: &Tenant, path: &str, report: &Report) {
    let keys = [&*format!("{path}.offload"), &*format!("{path}.tiers")];
    let offload_only = tenant.tiers == TierSet::NONE.with(Tier::Offload);
    if offload_only && tenant.offload == OffloadRule::Never {
        let problem = "must not be \"never\" where tiers is only \"offload\"";
        report.contradiction(&keys, Some("\"never\"".to_owned()), problem);
    }
    if !tenant.tiers.contains(Tier::Offload) && tenant.offload == OffloadRule::WhenFaster {
        let problem = "must not be \"when_faster\" where tiers leaves out \"offload\"";
        report.contradiction(&keys, Some("\"when_faster\"".to_owned()), problem);
    }
}

fn access(config: &Config, tenant: &Tenant, path: &str, report: &Report) {
    let ModelAccess::Only(names) = &tenant.models else {
        return;
    };
    if names.is_empty() {
        report.note(
            format!("{path}.models"),
            None,
            "must name at least one model, or be left out for all",
        );
    }
    let names_are_known = !report.any_wrong(is_model_name);
    let tiers_are_known = !["tiers", "offload"]
        .iter()
        .any(|key| report.is_wrong(&format!("{path}.{key}")))
        && !report.any_wrong(is_tier);
    for (place, name) in names.iter().enumerate() {
        let problem = match config.model_serving(name) {
            None if names_are_known => "no model has this name or alias",
            Some(model) if tiers_are_known && !usable(tenant, model) => {
                "no backend of it is in a tier this tenant may use"
            }
            _ => continue,
        };
        report.note(
            format!("{path}.models[{place}]"),
            Some(format!("{name:?}")),
            problem,
        );
    }
}

fn is_model_name(key: &str) -> bool {
    let of_models = key.starts_with("models");
    of_models && (key.ends_with(".name") || key.contains(".aliases") || !key.contains('.'))
}

fn is_tier(key: &str) -> bool {
    let of_backends = key.starts_with("models") && key.contains(".backends");
    of_backends && (key.ends_with(".tier") || key.ends_with(".backends"))
}

/// Whether any backend of `model` is in a tier the tenant may use.
pub(super) fn usable(tenant: &Tenant, model: &Model) -> bool {
    let allowed = |tier: Tier| {
        tenant.tiers.contains(tier)
            && (tier != Tier::Offload || tenant.offload != OffloadRule::Never)
    };
    model.backends.iter().any(|backend| allowed(backend.tier))
}

/// Turns aliases in tenants' model lists into base names, so that an alias
/// never is a second set of limits.
pub(super) fn resolve_models(config: &mut Config) {
    let bases: HashMap<String, String> = config
        .models
        .iter()
        .flat_map(|model| {
            model
                .served_ids()
                .map(|id| (id.to_owned(), model.name.clone()))
        })
        .collect();
    for tenant in &mut config.tenants {
        if let ModelAccess::Only(names) = &mut tenant.models {
            for name in names.iter_mut() {
                *name = bases.get(name).unwrap_or(name).clone();
            }
            names.sort();
            names.dedup();
        }
    }
}
