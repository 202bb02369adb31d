//! `POST /explain`: a request that nobody sends, and what would become of it.
//!
//! Decides whose the request is and which path it is meant for, by the query; its
//! headers and its body are those of the question, less what only the operator
//! shows. Everything else is the request path's own. Never sends anything to a
//! client or, but for a count by an engine where that is how a model is counted,
//! to a backend.

mod limits;
mod words;

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName};
use http::request::Parts;
use http::{Method, Request, Uri};
use serde_json::{Value, json};

use crate::config::AdmissionMode;
use crate::core::admission::{Decision, Explanation, Odds, Predicted, Room, View};
use crate::core::demand::{Demand, OutputLimit};
use crate::core::units::Tokens;
use crate::layers::explain::{Question, RefusedAs, Told};
use crate::layers::pool::Pool;
use crate::protocol::Route;
use crate::tenants::{TenantRef, Tenants};

use super::arriving::Arriving;
use super::gateway::Gateway;
use super::orders::decoded;

/// Where it is asked.
pub(super) const PATH: &str = "/explain";

/// The path of a request that names none.
const USUAL: &str = "/v1/chat/completions";

/// What an operator or a proxy before the admin address says, and no client.
const NOT_THE_CLIENTS: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    COOKIE,
    HOST,
];

/// Tenants that are named to one who must choose.
const NAMED: usize = 20;

/// What the query says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    tenant: Option<String>,
    path: Option<String>,
}

/// Looks at the request, and tells what would become of it.
///
/// # Errors
/// The question says nothing that can be answered; what to do is in the text.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: Request<Arriving>,
) -> Result<Value, String> {
    let (mut head, body) = request.into_parts();
    let asked = Asked::read(head.uri.query().unwrap_or_default())?;
    let snapshot = gateway.snapshot();
    let tenant = tenant_of(&snapshot.tenants, asked.tenant.as_deref())?;
    let path = asked.path.as_deref().unwrap_or(USUAL);
    readdress(&mut head, path)?;
    let question = Question {
        tenant: tenant.clone(),
        head,
        body,
    };
    let told = gateway.look(question).await;
    Ok(told_json(&tenant, path, &told))
}

/// Whose the request is to be: the one named, or the only one it can be.
fn tenant_of(tenants: &Tenants, named: Option<&str>) -> Result<TenantRef, String> {
    let all = tenants.all_refs();
    let found = match (named, all) {
        (Some(name), _) => tenants.named(name),
        (None, [only]) => Some(only.clone()),
        (None, _) => tenants.anonymous(),
    };
    found.ok_or_else(|| {
        let names = all.iter().take(NAMED);
        let names: Vec<_> = names.map(|one| &*one.tenant.name).collect();
        let more = if all.len() > NAMED { ", …" } else { "" };
        let list = names.join(", ");
        match named {
            Some(_) => format!("no tenant of that name; there are: {list}{more}\n"),
            None => format!("say whose it is by ?tenant=NAME; there are: {list}{more}\n"),
        }
    })
}

/// Makes the head of a question one that a client would send to `path`.
fn readdress(head: &mut Parts, path: &str) -> Result<(), String> {
    let uri = Uri::builder().path_and_query(path).build();
    head.uri = uri.map_err(|_| format!("route={path} is no path like {USUAL}\n"))?;
    head.method = Method::POST;
    for name in NOT_THE_CLIENTS {
        head.headers.remove(name);
    }
    Ok(())
}

// === impl Asked ===

impl Asked {
    fn read(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(&value.replace('+', " ")).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("{key}= takes a percent-encoded text\n"))?;
            let before = match key {
                "tenant" => asked.tenant.replace(value),
                "route" => asked.path.replace(path_of(value)),
                _ => return Err("known are ?tenant=NAME and &route=PATH\n".to_owned()),
            };
            if before.is_some() {
                return Err(format!(
                    "{key}= is there twice, and only one can be meant\n"
                ));
            }
        }
        Ok(asked)
    }
}

/// The path of a route by its name; a path as it stands. Whatever is neither is a path
/// that nothing is served on, and gets what a client would get there.
fn path_of(written: String) -> String {
    if written.starts_with('/') {
        return written;
    }
    let named = Route::served().find(|(_, route)| route.label() == written);
    named.map_or_else(|| format!("/{written}"), |(path, _)| path.to_owned())
}

fn told_json(tenant: &TenantRef, path: &str, told: &Told) -> Value {
    let explanation = told.explanation.as_ref();
    json!({
        "verdict": verdict(told),
        "mode": match told.mode {
            Some(AdmissionMode::Shadow) => "shadow",
            Some(AdmissionMode::Enforce) | None => "enforce",
        },
        "tenant": tenant.tenant.name,
        "path": path,
        "model": told.pool.as_ref().map(|pool| pool.name().to_string()),
        "class": told.class.iter().map(|class| class.name()).collect::<Vec<_>>(),
        "prompt": told.prompt_tokens.map(|tokens| json!({
            "tokens": tokens,
            "precision": told.precision,
            "parts": told.parts.iter().map(|part| json!({
                "name": part.name,
                "tokens": part.tokens,
            })).collect::<Vec<_>>(),
        })),
        "output": told.demand.as_ref().zip(explanation).map(|(demand, explanation)| {
            output_json(told, demand, explanation)
        }),
        "tokens": explanation.map(|explanation| explanation.tokens.get()),
        "home": explanation.and_then(|explanation| explanation.home).map(|tier| tier.name()),
        "leaves_free": explanation.map(|explanation| explanation.leaves_free),
        "chosen": told.pool.as_ref().zip(explanation).and_then(|(pool, told)| chosen(pool, told)),
        "held_by": explanation.and_then(|told| told.hold).map(|hold| hold.name()),
        "held_because": explanation.and_then(|told| told.hold).map(words::hold),
        "wait_seconds": explanation.and_then(wait),
        "queue": explanation.map(|explanation| json!({
            "requests": explanation.queue.requests,
            "tokens": explanation.queue.tokens.get(),
            "oldest_seconds": explanation.queue.oldest.as_secs_f64(),
        })),
        "refusal": told.refusal.as_ref().map(refusal),
        "limits": limits::of(tenant, told),
        "backends": told.pool.as_ref().zip(explanation).map_or_else(Vec::new, |(pool, told)| {
            told.views.iter().map(|view| backend(pool, view)).collect()
        }),
    })
}

fn verdict(told: &Told) -> &'static str {
    match (&told.refusal, &told.explanation) {
        (Some(_), _) | (None, None) => "refuse",
        (None, Some(explanation)) => match explanation.decision {
            Decision::Admit(_) => "admit",
            Decision::Wait { .. } => "queue",
            Decision::Reject(_) => "refuse",
        },
    }
}

fn output_json(told: &Told, demand: &Demand, explanation: &Explanation) -> Value {
    let bound = match explanation.output {
        OutputLimit::Asked(bound) => Some(bound),
        OutputLimit::Open { at_most } => at_most,
    };
    let Odds { mean, q50, q90 } = explanation.odds;
    json!({
        "sequences": demand.sequences(),
        "asked_tokens": told.asked,
        "bound_tokens": bound.map(Tokens::get),
        "written_max_tokens": told.max_tokens.map(Tokens::get),
        "expected_tokens": {"mean": mean.get(), "q50": q50.get(), "q90": q90.get()},
    })
}

fn chosen(pool: &Pool, told: &Explanation) -> Option<Value> {
    let Decision::Admit(place) = told.decision else {
        return None;
    };
    Some(json!({
        "backend": pool.seat_of(place.backend).map(|seat| seat.name().to_string()),
        "tier": place.tier.name(),
        "blocks": place.blocks.get(),
        "choice": place.choice.name(),
        "because": words::choice(place.choice),
    }))
}

/// How long it would stand in line; nothing where it need not.
fn wait(told: &Explanation) -> Option<Value> {
    if let Decision::Admit(_) = told.decision {
        return None;
    }
    let Predicted { q20, q50, q80 } = told.wait;
    Some(json!({
        "q20": q20.as_secs_f64(),
        "q50": q50.as_secs_f64(),
        "q80": q80.as_secs_f64(),
    }))
}

fn refusal(refused: &RefusedAs) -> Value {
    json!({
        "status": refused.status,
        "code": refused.code,
        "reason": refused.reason,
        "message": refused.message,
        "param": refused.param,
        "retry_after_seconds": refused.retry_after.map(|(least, most)| json!({
            "least": least,
            "most": most,
        })),
    })
}

fn backend(pool: &Pool, view: &View) -> Value {
    let (fits, barrier, because) = match view.room {
        Room::Now(_) => ("now", None, None),
        Room::Later { barrier, .. } => ("later", Some(barrier), Some(words::barrier(barrier))),
        Room::Never(barrier) => ("never", Some(barrier), Some(words::for_good(barrier))),
    };
    let (missing, after) = match view.room {
        Room::Later { missing, after, .. } => (missing, after),
        Room::Now(_) | Room::Never(_) => (None, None),
    };
    let taken = match view.room {
        Room::Now(blocks) => Some(blocks.get()),
        Room::Later { .. } | Room::Never(_) => None,
    };
    json!({
        "name": pool.seat_of(view.id).map(|seat| seat.name().to_string()),
        "tier": view.tier.name(),
        "fits": fits,
        "barrier": barrier.map(|barrier| barrier.name()),
        "because": because,
        "missing_blocks": missing.map(|blocks| blocks.get()),
        "after_seconds": after.map(|after| after.as_secs_f64()),
        "taken_blocks": taken,
        "prompt_blocks": view.prompt.get(),
        "footprint_blocks": view.whole.get(),
        "free_blocks": view.free.get(),
        "blocks": view.all.get(),
        "block_size": view.block_size.map(|size| size.get()),
        "first_token_seconds": view.first_token.as_secs_f64(),
        "cached_tokens": view.cached.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_tenant_and_a_route_or_says_what_it_takes() {
        let read = |query| Asked::read(query).map(|asked| (asked.tenant, asked.path));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(""), Ok((None, None)));
        let both = Ok((some("a b"), some("/v1/completions")));
        assert_eq!(read("tenant=a%20b&route=/v1/completions"), both);
        assert_eq!(read("route=completions&tenant=a+b"), both);
        assert_eq!(read("route=%2Fnot%2Fthere"), Ok((None, some("/not/there"))));
        assert_eq!(read("route=chat"), Ok((None, some("/chat"))));
        for wrong in [
            "tenant=",
            "tenant",
            "tenant=%zz",
            "tenants=a",
            "tenant=a&tenant=b",
            "tenant=a&tenant=a",
            "route=completions&tenant=a&route=/v1/embeddings",
        ] {
            let problem = read(wrong).unwrap_err();
            assert!(problem.contains('=') || problem.contains('/'), "{problem}");
        }
    }
}
