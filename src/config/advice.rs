//! What is allowed but seldom meant. Told at start-up and by `check`, never refused.

use std::time::{Duration, SystemTime};

use super::cross::usable;
use super::problem::Problem;
use super::resolved::{AdmissionMode, Config, Model, ModelAccess, Tenant};
use super::tls::TlsIdentity;
use super::units::time_text;
use crate::core::backend::Tier;
use crate::core::placement::LongOnStandard;

/// How long vLLM keeps an idle connection open.
const ENGINE_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// From when on an operator should have renewed a certificate.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);

impl Config {
    /// Settings that are allowed but seldom meant, each with its consequence.
    pub fn advice(&self) -> Vec<Problem> {
        let mut advice = self.seen.clone();
        self.advise_on_sections(&mut advice);
        self.advise_on_certificates(SystemTime::now(), &mut advice);
        for (index, model) in self.models.iter().enumerate() {
            advise_on_model(model, &format!("models[{index}]"), &mut advice);
        }
        for (index, tenant) in self.tenants.iter().enumerate() {
            self.advise_on_tenant(tenant, &format!("tenants[{index}]"), &mut advice);
        }
        advice
    }

    fn advise_on_sections(&self, advice: &mut Vec<Problem>) {
        let idle = self.upstream.pool_idle_timeout;
        if idle >= ENGINE_KEEP_ALIVE {
            let problem =
                "vLLM closes idle connections after 5s: some requests will meet a closed one";
            advice.push(told(
                "upstream.pool_idle_timeout",
                quoted(&time_text(idle)),
                problem,
            ));
        }
        if self.admission.mode == AdmissionMode::Shadow {
            let problem = "admission only watches: nothing waits, and engines may be sent more than they hold";
            advice.push(told("admission.mode", quoted("shadow"), problem));
        }
        let known = |tenant: &Tenant| !tenant.keys.is_empty() || !tenant.certificates.is_empty();
        let open = !self.tenants.iter().any(known);
        let listen = self.server.listen;
        if open && !listen.ip().to_canonical().is_loopback() {
            let problem =
                "no tenant has a key: everybody who reaches this address may use the fleet";
            advice.push(told("server.listen", quoted(&listen.to_string()), problem));
        }
    }

    /// `now` decides what has expired or soon will.
    fn advise_on_certificates(&self, now: SystemTime, advice: &mut Vec<Problem>) {
        for (path, identity) in self.identities() {
            let left = identity.facts.not_after.duration_since(now);
            let problem = match left {
                Ok(left) if left > EXPIRES_SOON => continue,
                Ok(_) => "expires within two weeks",
                Err(_) => "has expired: whoever verifies it will not connect",
            };
            let file = identity.file.display().to_string();
            advice.push(told(&path, quoted(&file), problem));
        }
    }

    /// Every certificate the gateway shows, with the key that names it.
    pub fn identities(&self) -> Vec<(String, &TlsIdentity)> {
        let listeners = [
            ("server.tls", &self.server.tls),
            ("admin.tls", &self.admin.tls),
        ];
        let mut all = Vec::new();
        for (path, tls) in listeners {
            for (index, identity) in tls.iter().flat_map(|tls| &tls.identities).enumerate() {
                let key = match index.checked_sub(1) {
                    None => format!("{path}.cert_file"),
                    Some(place) => format!("{path}.more_cert_files[{place}]"),
                };
                all.push((key, identity));
            }
        }
        for (index, model) in self.models.iter().enumerate() {
            for (place, backend) in model.backends.iter().enumerate() {
                let shown = backend.tls.as_ref().and_then(|tls| tls.identity.as_ref());
                let key = format!("models[{index}].backends[{place}].tls_client_cert_file");
                all.extend(shown.map(|identity| (key, identity)));
            }
        }
        all
    }

    fn advise_on_tenant(&self, tenant: &Tenant, path: &str, advice: &mut Vec<Problem>) {
        let limits = &tenant.limits;
        if let (Some(held), Some(context)) = (limits.max_in_flight, limits.max_context)
            && held < context
        {
            let problem =
                format!("requests between this and max_context_tokens, {context}, are refused");
            let key = format!("{path}.max_in_flight_tokens");
            advice.push(told(&key, held.to_string(), &problem));
        }
        let shut = |model: &&Model| tenant.models == ModelAccess::All && !usable(tenant, model);
        for model in self.models.iter().filter(shut) {
            let problem = format!(
                "no backend of model {:?} is in a tier this tenant may use",
                model.name
            );
            advice.push(Problem {
                key: format!("{path}.tiers"),
                value: None,
                problem,
            });
        }
    }
}

fn advise_on_model(model: &Model, path: &str, advice: &mut Vec<Problem>) {
    let larger = model
        .backends
        .iter()
        .any(|backend| backend.tier > Tier::Standard);
    if !larger && model.long_on_standard == LongOnStandard::Never {
        let problem = "no backend is larger than standard: every long document is refused";
        advice.push(told(
            &format!("{path}.long_on_standard"),
            quoted("never"),
            problem,
        ));
    }
}

fn told(key: &str, value: String, problem: &str) -> Problem {
    Problem {
        key: key.to_owned(),
        value: Some(value),
        problem: problem.to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
