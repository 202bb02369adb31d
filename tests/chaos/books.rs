//! The gateway's own account of itself, held to what must be true.

use std::fs::File;
use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::fleet::Gateway;
use crate::settings::{Settings, TENANTS, key};

/// Engines that are up, by `/state`.
pub(crate) fn engines_up(state: &Value) -> u64 {
    let up = each(state, "backends").filter(|backend| backend["state"] == "up");
    crate::process::count(up.count())
}

/// Backends the gateway has by its configuration.
pub(crate) fn endpoints(state: &Value) -> u64 {
    crate::process::count(each(state, "endpoints").count())
}

/// Requests that hold KV.
pub(crate) fn leases(state: &Value) -> u64 {
    each(state, "backends")
        .filter_map(|backend| backend["leases"].as_u64())
        .sum()
}

/// Requests that wait.
pub(crate) fn waiting(state: &Value) -> u64 {
    pools(state)
        .filter_map(|pool| pool["queue"]["requests"].as_u64())
        .sum()
}

/// What is still held or waits, in words.
pub(crate) fn debts(state: &Value) -> Vec<String> {
    let mut debts = Vec::new();
    let mut zero = |what: &str, figure: &Value| {
        if figure.as_u64() != Some(0) {
            debts.push(format!("{what} is {figure}, not 0"));
        }
    };
    zero("body_bytes", &state["body_bytes"]);
    for pool in pools(state) {
        zero("queue.requests", &pool["queue"]["requests"]);
        zero("queue.tokens", &pool["queue"]["tokens"]);
    }
    for backend in each(state, "backends") {
        for figure in ["held_blocks", "leases", "sequences"] {
            zero(
                &format!("{} of {}", figure, backend["name"]),
                &backend[figure],
            );
        }
    }
    for tenant in each(state, "tenants") {
        for figure in ["leases", "in_flight_tokens", "waiting"] {
            zero(
                &format!("{} of {}", figure, tenant["name"]),
                &tenant[figure],
            );
        }
    }
    debts
}

/// Totals of idle pools that do not add up.
pub(crate) fn unbalanced(state: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for pool in pools(state) {
        let total = |name: &str| pool["totals"][name].as_u64().unwrap_or_default();
        let answered = total("admitted") + total("refused") + total("expired") + total("left");
        let ended = total("finished") + total("failed") + total("cancelled");
        if total("received") != answered || total("admitted") != ended || total("received") == 0 {
            wrong.push(format!("totals do not add up: {}", pool["totals"]));
        }
    }
    wrong
}

/// What the gateway wrote and should not have: panics, errors of its own, keys.
pub(crate) fn written(settings: &Settings, gateway: &Gateway) -> Vec<String> {
    let mut faults = Vec::new();
    let keys: Vec<String> = (0..TENANTS.len())
        .map(|tenant| key(settings.seed, tenant))
        .collect();
    let mut look = |place: &str, line: &str| {
        if keys.iter().any(|key| line.contains(key.as_str())) {
            faults.push(format!("a key stands in {place}"));
        }
        // That a broken file is refused has to be said: this tool writes some.
        let is_refusal = line.contains("the configuration is not reloaded");
        if line.contains("panicked at") || line.contains(" ERROR ") && !is_refusal {
            faults.push(format!("{place}: {line}"));
        }
    };
    for place in [
        settings.directory.join("gateway.log"),
        settings.access_log(),
    ] {
        let file = File::open(&place).expect("the gateway writes its logs");
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            look(&place.display().to_string(), &line);
        }
    }
    for page in ["/metrics", "/state"] {
        look(page, &gateway.get(page).unwrap_or_default());
    }
    faults.truncate(20);
    faults
}

fn pools(state: &Value) -> impl Iterator<Item = &Value> {
    state["pools"].as_array().into_iter().flatten()
}

fn each<'a>(state: &'a Value, list: &'static str) -> impl Iterator<Item = &'a Value> {
    pools(state).flat_map(move |pool| pool[list].as_array().into_iter().flatten())
}
