//! `/state`: the pools as JSON, for people, `top` and tests.
//!
//! Keys carry their unit. Amounts of KV are in blocks, with the block size and
//! the pool in tokens beside the capacity.

use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::{ReservationKind, TlsIdentity};
use crate::core::backend::Capacity;
use crate::core::demand::TenantId;
use crate::core::stats::{BackendState, Plan, PoolState, TenantState};
use crate::core::time::Time;
use crate::core::units::Blocks;
use crate::layers::pool::{CountingPlace, Pool};
use crate::tokenize::Demotion;
use crate::upstream::probe::{Handle, Problem};

use super::drain::Phase;
use super::gateway::Gateway;

use heads::{MOST_HEADS, head_json};

mod heads;
mod tenants;

/// Everything there is to see at this moment; each pool is consistent in itself.
pub(super) fn snapshot(gateway: &Gateway, phase: Phase) -> Value {
    let snapshot = gateway.snapshot();
    let names = snapshot.tenants.names();
    let pools = snapshot.pools.all().iter();
    let reservation = match snapshot.config.admission.reservation {
        ReservationKind::Strict => "strict",
        ReservationKind::Forecast => "forecast",
    };
    let pools: Vec<_> = pools
        .map(|pool| {
            let mut told = pool_json(pool, names);
            told["reservation"] = reservation.into();
            told
        })
        .collect();
    let history = gateway.telemetry().history();
    let ended = history.tenants();
    let tenants = snapshot.tenants.all_refs().iter();
    let tenants: Vec<_> = tenants
        .map(|tenant| {
            let ended = ended.get(tenant.tenant.name.as_str());
            tenants::tenant_json(tenant, &ended.cloned().unwrap_or_default())
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": gateway.instance(),
        "uptime_seconds": gateway.clock().now().since(Time::ZERO).as_secs_f64(),
        "phase": phase.name(),
        "ready": gateway.is_ready(),
        "body_bytes": gateway.body_bytes(),
        "tasks": tasks(),
        "certificates": snapshot.config.identities().iter().map(certificate_json).collect::<Vec<_>>(),
        "tenants": tenants,
        "refusals": history.refusals(),
        "config": config(gateway),
        "discovery": gateway.discovery().view(),
        "pools": pools,
    })
}

/// Tasks that live in the runtime, idle ones included; `None` outside of one.
fn tasks() -> Option<usize> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(runtime.metrics().num_alive_tasks())
}

/// A certificate that the gateway shows, by the setting that names it.
fn certificate_json((setting, identity): &(String, &TlsIdentity)) -> Value {
    json!({
        "setting": setting,
        "file": identity.file.display().to_string(),
        "subject": identity.facts.subject,
        "names": identity.facts.names,
        "not_after": timestamp(identity.facts.not_after),
    })
}

/// The configuration in force, and what came of the last try to replace it.
pub(super) fn config(gateway: &Gateway) -> Value {
    let status = gateway.reload_status();
    json!({
        "age_seconds": (gateway.clock().now() - status.since).as_secs_f64(),
        "last_reload": status.last.label(),
        "problems": status.problems,
        "needs_restart": status.pending,
        "watched": gateway.reloads().is_followed(),
    })
}

fn pool_json(pool: &Pool, names: &[Arc<str>]) -> Value {
    let (state, heads) = pool.gate().overview(MOST_HEADS);
    let backends: Vec<_> = state
        .backends
        .iter()
        .filter_map(|backend| backend_json(pool, backend))
        .collect();
    let tenants: Vec<_> = state
        .tenants
        .iter()
        .map(|tenant| tenant_json(tenant, names))
        .collect();
    let served: Vec<&str> = pool.served().map(|(_, id)| &**id).collect();
    json!({
        "model": &**pool.name(),
        "served": served,
        "ready": pool.is_ready(),
        "counting": counting(pool),
        "tokenizer": tokenizer_json(pool),
        "demoted": pool.counter().demotions().iter().map(demotion_json).collect::<Vec<_>>(),
        "backends": backends,
        "endpoints": pool.endpoints().iter().map(endpoint_json).collect::<Vec<_>>(),
        "queue": {
            "requests": state.queue.requests,
            "tokens": state.queue.tokens.get(),
            "oldest_seconds": state.queue.oldest.as_secs_f64(),
        },
        "heads": heads.iter().map(|head| head_json(head, names)).collect::<Vec<_>>(),
        "tenants": tenants,
        "totals": totals_json(&state),
        "drain_tokens_per_second": state.drain_tokens_per_second,
    })
}

/// A route whose counts are no longer called exact, and what they bear.
fn demotion_json(demotion: &Demotion) -> Value {
    json!({
        "route": demotion.kind,
        "margin_tokens": demotion.margin.tokens,
        "margin_thousandths": demotion.margin.thousandths,
    })
}

/// How prompts of a pool are counted at the moment: exactly on every route, or
/// with a margin on some at the least; `engine` where an engine is asked, each
/// count being as exact as its answer.
pub(super) fn counting(pool: &Pool) -> &'static str {
    let counter = pool.counter();
    let as_counted = counter.demotions().is_empty();
    match pool.counting().place {
        CountingPlace::Engine if as_counted => "engine",
        CountingPlace::Here if as_counted && counter.is_exact() => "exact",
        _ => "estimated",
    }
}

fn tokenizer_json(pool: &Pool) -> Value {
    let provenance = pool.provenance();
    let failure = provenance
        .failure
        .as_ref()
        .map(|failure| json!({"at": timestamp(failure.at), "error": failure.error}));
    json!({
        "source": provenance.source,
        "loaded_at": provenance.loaded_at.and_then(timestamp),
        "problem": provenance.problem,
        "last_error": failure,
    })
}

/// RFC 3339, in UTC; `None` for a time no calendar has.
fn timestamp(at: SystemTime) -> Option<String> {
    Timestamp::try_from(at).ok().map(|at| at.to_string())
}

fn backend_json(pool: &Pool, backend: &BackendState) -> Option<Value> {
    let seat = pool.seat_of(backend.id)?;
    let observed = backend.observed.map(|seen| {
        json!({
            "used_blocks": seen.used.get(),
            "running": seen.running,
            "waiting": seen.waiting,
            "preemptions": seen.preemptions,
        })
    });
    let room = Room::of(backend);
    Some(json!({
        "name": &**seat.name(),
        "address": seat.endpoint().authority().as_str(),
        "slot": backend.id.slot,
        "generation": backend.id.generation,
        "tier": backend.tier.name(),
        "state": backend.health.name(),
        "capacity": backend.capacity.map(|capacity| capacity_json(&capacity)),
        "held_blocks": backend.held.get(),
        "growing_blocks": room.growing.get(),
        "foreign_blocks": backend.foreign.get(),
        "reserve_blocks": room.reserve.get(),
        "free_blocks": room.free.get(),
        "leases": backend.leases,
        "sequences": backend.sequences,
        "set_aside": backend.set_aside,
        "observed": observed,
        "plan": backend.plan.map(|plan| plan_json(&plan)),
        "prefill_ahead_seconds": backend.prefill_ahead.as_secs_f64(),
        "prefill_seconds_per_1000_tokens": backend.prefill_of_1000.as_secs_f64(),
    }))
}

/// What is left of a backend beside what is held and foreign, divided up: with
/// those the capacity, unless they are more.
struct Room {
    growing: Blocks,
    reserve: Blocks,
    free: Blocks,
}

// === impl Room ===

impl Room {
    fn of(backend: &BackendState) -> Self {
        let whole = backend
            .capacity
            .map_or(Blocks::ZERO, |capacity| capacity.blocks);
        let left = whole.saturating_sub(backend.held + backend.foreign);
        let growing = backend.growing.min(left);
        let left = left.saturating_sub(growing);
        let reserve = backend.reserve.min(left);
        Self {
            growing,
            reserve,
            free: left.saturating_sub(reserve),
        }
    }
}

/// How the forecast plans a backend.
fn plan_json(plan: &Plan) -> Value {
    json!({
        "confidence": plan.confidence,
        "share": plan.share,
    })
}

/// What each backend of `pool` is, in a word or two: why a model is not ready.
pub(super) fn standing(pool: &Pool) -> Vec<Value> {
    let endpoints = pool.endpoints();
    let standing = endpoints.iter().map(|endpoint| {
        let view = endpoint.view();
        json!({
            "name": &*view.name,
            "state": view.health.name(),
            "problem": view.problem.map(Problem::name),
        })
    });
    standing.collect()
}

fn endpoint_json(endpoint: &Handle) -> Value {
    let view = endpoint.view();
    json!({
        "name": &*view.name,
        "address": view.authority,
        "tier": view.tier.name(),
        "state": view.health.name(),
        "trust": view.trust.name(),
        "duty": view.duty.name(),
        "problem": view.problem.map(Problem::name),
        "version": view.version,
        "ranks": view.ranks.len(),
        "models_age_seconds": view.models_age.map(|age| age.as_secs_f64()),
        "metrics_age_seconds": view.scrape_age.map(|age| age.as_secs_f64()),
        "scrapes_failed": view.scrapes_failed,
        "restarts": view.restarts,
    })
}

fn capacity_json(capacity: &Capacity) -> Value {
    json!({
        "blocks": capacity.blocks.get(),
        "block_size": capacity.block_size.get(),
        "tokens": capacity.pool().get(),
        "max_model_len": capacity.max_model_len.get(),
        "max_num_seqs": capacity.max_num_seqs,
        "source": capacity.source.name(),
    })
}

fn tenant_json(tenant: &TenantState, names: &[Arc<str>]) -> Value {
    json!({
        "name": name_of(tenant.tenant, names),
        "leases": tenant.leases,
        "in_flight_tokens": tenant.in_flight.get(),
        "waiting": tenant.waiting,
        "served_tokens": tenant.served.get(),
    })
}

/// The name of a tenant there is or was.
fn name_of(tenant: TenantId, names: &[Arc<str>]) -> Option<&str> {
    let index = usize::try_from(tenant.0).ok()?;
    names.get(index).map(|name| &**name)
}

fn totals_json(state: &PoolState) -> Value {
    let totals = &state.totals;
    json!({
        "received": totals.received,
        "admitted": totals.admitted,
        "refused": totals.refused,
        "expired": totals.expired,
        "left": totals.left,
        "finished": totals.finished,
        "failed": totals.failed,
        "cancelled": totals.cancelled,
        "overdrawn": totals.overdrawn,
        "measured": totals.measured,
        "measured_output_tokens": totals.measured_output.get(),
        "foreseen_output_tokens": totals.foreseen_output.get(),
        "output_error_tokens": totals.output_error.get(),
        "promised": totals.promised,
        "kept": totals.kept,
        "waited_seconds": totals.waited.as_secs_f64(),
        "foreseen_wait_seconds": totals.foreseen_wait.as_secs_f64(),
        "prompt_tokens": totals.prompt.get(),
        "generated_tokens": totals.generated.get(),
        "wait_error_seconds": totals.wait_error.as_secs_f64(),
    })
}
