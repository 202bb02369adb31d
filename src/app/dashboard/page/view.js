// A state as people read it: figures now, backends, the line, the tenants.

import { $, attr, count, el, list, put, seconds, share, short, svg } from "./dom.js";

const WAITS_FOR = {
  turn: ["its turn", "What comes free is kept for one that has waited longer."],
  memory: ["KV memory", "No backend it may go to has room for it."],
  prefill: ["prefill ahead", "Every backend it may go to has enough prefill on its way."],
  cached: ["its beginning", "A backend that has its beginning cached is about to be the soonest."],
  tenant_limit: ["its own limit", "Its tenant holds as much KV as it may."],
  others_share: ["another's share", "What is free is wanted back by a tenant that holds less than its share."],
  no_backend: ["a backend", "No usable backend could serve it."],
  set_aside: ["KV kept for it", "What comes free on one backend is kept for it."],
};

const SOURCES = {
  configured: "configured",
  advertised_tokens: "told by the engine",
  advertised_blocks: "told by the engine, in blocks",
  assumed: "assumed",
};

const PARTS = ["held", "growing", "foreign", "reserve", "free"];

export function poolOf(state, model) {
  return state.pools.find((pool) => pool.model === model) ?? state.pools[0] ?? null;
}

// === backends ===

export function backends(pool) {
  const problems = new Map((pool?.endpoints ?? []).map((endpoint) => [endpoint.name, endpoint.problem]));
  const live = pool?.backends ?? [];
  list($("backends"), live, newBackend, (node, backend) => fillBackend(node, backend, problems.get(backend.name) ?? null));
  const up = live.filter((backend) => backend.state === "up").length;
  put($("backends-sub"), `${count(up)} of ${count(live.length)} up`);
}

function newBackend() {
  const field = (name, className = "") => el("span", { className, attrs: { "data-field": name } });
  const fact = (label, name) => el("div", {}, el("dt", {}, label), el("dd", { attrs: { "data-field": name } }));
  const bar = svg("svg", { class: "kv", role: "img", viewBox: "0 0 1000 10", preserveAspectRatio: "none" });
  for (const part of PARTS) bar.append(svg("rect", { class: part, y: 0, height: 10 }));
  const parts = el("dl", { className: "parts" }, ...PARTS.map((part) => {
    const label = part === "held" ? "reserved" : part;
    return el("div", {}, el("dt", {}, el("i", { className: `swatch ${part}` }), label), el("dd", { attrs: { "data-field": part } }));
  }));
  const facts = el(
    "dl",
    { className: "facts" },
    fact("requests", "leases"),
    fact("running", "running"),
    fact("waiting there", "queued"),
    fact("preemptions", "preemptions"),
    fact("capacity", "source"),
  );
  return el(
    "li",
    {},
    el("div", { className: "who" }, el("h3", {}, field("name")), el("p", {}, field("state", "badge"), field("tier", "muted"))),
    el("div", { className: "memory" }, el("p", { className: "level" }, field("level"), field("capacity", "muted")), bar, parts),
    facts,
  );
}

function fillBackend(node, backend, problem) {
  const at = (name) => node.querySelector(`[data-field="${name}"]`);
  const size = backend.capacity?.block_size ?? 0;
  const blocks = {
    held: backend.held_blocks,
    growing: backend.growing_blocks,
    foreign: backend.foreign_blocks,
    reserve: backend.reserve_blocks,
    free: backend.free_blocks,
  };
  const whole = backend.capacity?.blocks ?? 0;
  put(at("name"), backend.name);
  attr(at("name"), "title", backend.address);
  put(at("state"), backend.state);
  attr(at("state"), "data-state", backend.state);
  put(at("tier"), `${backend.tier} tier${problem === null ? "" : `, ${reason(problem)}`}`);
  put(at("level"), whole > 0 ? `${share(blocks.held, whole)} reserved` : "size not known");
  const kept = backend.set_aside ? ", keeping room" : "";
  attr(at("capacity"), "title", backend.set_aside ? "What comes free is kept for a request that has waited its bound." : "");
  put(at("capacity"), whole > 0 ? `of ${short(whole * size)} tokens${kept}` : "");
  let from = 0;
  const words = [];
  for (const part of PARTS) {
    const rect = node.querySelector(`rect.${part}`);
    const wide = whole > 0 ? Math.min(1000 - from, (1000 * blocks[part]) / whole) : 0;
    attr(rect, "x", from.toFixed(1));
    attr(rect, "width", Math.max(0, wide).toFixed(1));
    from += wide;
    put(at(part), short(blocks[part] * size), blocks[part]);
    words.push(`${part === "held" ? "reserved" : part} ${share(blocks[part], whole)}`);
  }
  attr(node.querySelector("svg"), "aria-label", `KV of ${backend.name}: ${words.join(", ")}`);
  put(at("leases"), count(backend.leases), backend.leases);
  put(at("running"), count(backend.observed?.running));
  put(at("queued"), count(backend.observed?.waiting));
  put(at("preemptions"), count(backend.observed?.preemptions));
  const source = backend.capacity?.source;
  put(at("source"), source === undefined ? "unknown" : (SOURCES[source] ?? source));
}

// === the line ===

export function queue(pool) {
  const heads = pool?.heads ?? [];
  const waiting = pool?.queue.requests ?? 0;
  list($("queue"), heads, newHead, fillHead);
  $("queue-empty").hidden = heads.length > 0;
  const more = waiting > heads.length ? `first ${heads.length} of ${count(waiting)}` : `${count(waiting)} waiting`;
  put($("queue-sub"), waiting === 0 ? "" : `${more}, longest for ${seconds(pool.queue.oldest_seconds)}`);
}

function newHead() {
  const cell = (name, className = "") => el("td", { className, attrs: { "data-field": name } });
  return el("tr", {}, cell("tenant", "name"), cell("tokens", "num wide"), cell("waits_for"), cell("waited", "num"), cell("starts", "num"), cell("leaves", "num wide"));
}

function fillHead(row, head) {
  const [tenant, tokens, waitsFor, waited, starts, leaves] = row.children;
  put(tenant, head.tenant ?? "–");
  put(tokens, short(head.tokens), head.tokens);
  attr(tokens, "title", `${count(head.prompt_tokens)} of prompt, the rest expected`);
  const [words, why] = WAITS_FOR[head.waits_for] ?? [head.waits_for, ""];
  put(waitsFor, words, head.waits_for);
  attr(waitsFor, "title", why);
  put(waited, seconds(head.waited_seconds));
  const soon = head.expected_seconds;
  put(starts, soon.q50 === null ? "–" : `≈ ${seconds(soon.q50)}`);
  attr(starts, "title", soon.q50 === null ? "when enough of its tenant's own requests have ended" : `four in five within ${seconds(soon.q80)}`);
  put(leaves, head.leaves_in_seconds === null ? "never" : seconds(head.leaves_in_seconds));
}

// === tenants ===

export function tenants(state, pool) {
  const inPool = new Map((pool?.tenants ?? []).map((tenant) => [tenant.name, tenant]));
  const rows = state.tenants.map((tenant) => ({ ...tenant, here: inPool.get(tenant.name) ?? null }));
  const all = rows.reduce((sum, row) => sum + (row.here?.in_flight_tokens ?? 0), 0);
  list($("tenants"), rows, newTenant, (node, row) => fillTenant(node, row, all));
  put($("tenants-sub"), `${count(rows.length)} in all`);
}

function newTenant() {
  const two = (name, className) => el("td", { className, attrs: { "data-field": name } }, el("span"), el("small", { className: "muted" }));
  const meter = svg("svg", { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" });
  meter.append(svg("rect", { class: "free", width: 100, height: 4 }), svg("rect", { class: "held", height: 4 }));
  const share = two("share", "");
  share.insertBefore(meter, share.lastElementChild);
  return el("tr", {}, two("name", "name"), share, two("served", "num wide"), two("waiting", "num"), two("rates", "num wide"), two("refused", "num"));
}

function fillTenant(row, tenant, all) {
  const here = tenant.here;
  const held = here?.in_flight_tokens ?? 0;
  const [name, part, served, waiting, rates, refused] = row.children;
  const pair = (cell, first, second, value) => {
    put(cell.firstElementChild, first, value);
    put(cell.lastElementChild, second);
  };
  const rank = tenant.priority === null || tenant.priority === 0 ? "" : `, priority ${tenant.priority}`;
  const own = tenant.in_flight_share > 0 ? `, ${Math.round(100 * tenant.in_flight_share)} % its own` : "";
  pair(name, tenant.name, `weight ${tenant.weight}`);
  attr(name, "title", `${tenant.name}: weight ${tenant.weight}${rank}${own}`);
  const cap = tenant.limits.max_in_flight_tokens;
  pair(part, cap === null ? short(held) : `${short(held)} of ${short(cap)}`, `${share(held, all)} of all`, held);
  const wide = cap === null ? held / Math.max(1, all) : held / cap;
  attr(part.querySelector("rect.held"), "width", Math.min(100, 100 * wide).toFixed(1));
  pair(served, short(here?.served_tokens ?? 0), "tokens", here?.served_tokens ?? 0);
  const most = tenant.limits.max_waiting;
  pair(waiting, count(here?.waiting ?? 0), most === null ? "" : `of ${count(most)}`, here?.waiting ?? 0);
  const left = [];
  if (tenant.requests !== null) left.push(`${short(tenant.requests.remaining)} req`);
  if (tenant.tokens !== null) left.push(`${short(tenant.tokens.remaining)} tok`);
  pair(rates, left[0] ?? "no limit", left[1] ?? "");
  const worst = Object.entries(tenant.refusals).sort((one, other) => other[1] - one[1])[0];
  const turned = tenant.ended.refused + tenant.ended.failed;
  pair(refused, count(turned), worst === undefined ? "" : reason(worst[0]), turned);
  const why = Object.entries(tenant.refusals).map(([label, times]) => `${reason(label)}: ${count(times)}`);
  attr(refused, "title", why.join(", "));
}

// === now ===

export function tiles(state, pool, figures) {
  const live = pool?.backends ?? [];
  const sum = (of) => live.reduce((all, backend) => all + of(backend), 0);
  const size = (backend) => backend.capacity?.block_size ?? 0;
  const held = sum((backend) => backend.held_blocks * size(backend));
  const whole = sum((backend) => (backend.capacity?.blocks ?? 0) * size(backend));
  const leases = sum((backend) => backend.leases);
  put($("tile-running"), count(leases), leases);
  put($("tile-running-sub"), `${count(sum((backend) => backend.sequences))} sequences`);
  put($("tile-waiting"), count(pool?.queue.requests ?? 0), pool?.queue.requests ?? 0);
  put($("tile-waiting-sub"), `${short(pool?.queue.tokens ?? 0)} tokens`);
  put($("tile-kv"), share(held, whole), held);
  put($("tile-kv-sub"), `${short(held)} of ${short(whole)}`);
  put($("tile-output"), figures.output === null ? "–" : `${short(Math.round(figures.output))}/s`);
  put($("tile-output-sub"), `prompts ${figures.prompt === null ? "–" : short(Math.round(figures.prompt))}/s`);
  put($("tile-ttft"), seconds(figures.ttft50));
  put($("tile-ttft-sub"), `median; p99 ${seconds(figures.ttft99)}`);
  const refusals = Object.values(state.refusals).reduce((all, one) => all + one, 0);
  put($("tile-refused"), count(refusals), refusals);
  put($("tile-refused-sub"), "since the start");
}

export function reason(label) {
  return label.replaceAll("_", " ");
}

export function foot(state) {
  const config = state.config;
  const reload = config.problems.length > 0 ? ` · reload refused: ${config.problems[0]}` : "";
  put($("version"), state.version);
  put($("foot"), `up for ${seconds(state.uptime_seconds)} · configuration in force for ${seconds(config.age_seconds)}${reload}`);
}
