// Puts the page together: who may see it, what is live, what is drawn when.

import { $, attr, count, el, put, seconds, short } from "./dom.js";
import { Unauthorized, dropToken, follow, hasToken, setToken } from "./feed.js";
import { Hour, latest } from "./hour.js";
import { Chart } from "./chart.js";
import * as view from "./view.js";

const HOUR_EVERY = 5000;
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "tidegate-theme";

const hour = new Hour();
let state = null;
let model = null;
let steps = 720;
let refreshing = false;

const whole = (value) => (value === null ? "–" : short(Math.round(value)));
const rate = (value) => (value === null ? "–" : short(value < 10 ? Math.round(value * 10) / 10 : Math.round(value)));
const percent = (value) => (value === null ? "–" : `${Math.round(value * 100)} %`);

const charts = {
  ttft: new Chart($("chart-ttft"), { title: "Time to first token", kind: "lines", format: seconds, least: 0.1 }),
  queue: new Chart($("chart-queue"), { title: "Wait in the queue", kind: "lines", format: seconds, least: 0.1 }),
  tokens: new Chart($("chart-tokens"), { title: "Tokens per second", kind: "lines", format: rate, least: 10 }),
  refusals: new Chart($("chart-refusals"), { title: "Refusals by reason", kind: "bars", format: whole, least: 4 }),
  kv: new Chart($("chart-kv"), { title: "KV reserved", kind: "lines", format: percent, most: 1 }),
  load: new Chart($("chart-load"), { title: "Requests", kind: "lines", format: whole, least: 4 }),
  output: new Chart($("chart-output"), { title: "Forecast of outputs, tokens", kind: "lines", format: whole, least: 10 }),
  wait: new Chart($("chart-wait"), { title: "Forecast of waits", kind: "lines", format: seconds, least: 0.1 }),
};

// === what is drawn ===

function draw() {
  if (state === null) return;
  const pool = view.poolOf(state, model);
  const told = hour.model(pool?.model);
  view.tiles(state, pool, {
    output: latest(told?.output_tokens_per_second),
    prompt: latest(told?.prompt_tokens_per_second),
    ttft50: latest(told?.ttft_p50_seconds),
    ttft99: latest(told?.ttft_p99_seconds),
  });
  view.backends(pool);
  view.queue(pool);
  view.tenants(state, pool);
  view.foot(state);
  put($("forecast"), forecast(pool?.totals));
  $("main").hidden = false;
}

function drawHour() {
  const told = hour.model(view.poolOf(state, model)?.model);
  const end = hour.told?.end_unix_seconds ?? null;
  const show = (chart, series) => chart.show({ series, steps, end, step: hour.told?.step_seconds ?? 5 });
  const line = (name, values, style) => ({ name, values: values ?? [], style });
  show(charts.ttft, [line("median", told?.ttft_p50_seconds, 0), line("p99", told?.ttft_p99_seconds, 1)]);
  show(charts.queue, [line("median", told?.queue_p50_seconds, 0), line("p99", told?.queue_p99_seconds, 1)]);
  show(charts.tokens, [line("output", told?.output_tokens_per_second, 0), line("prompts let in", told?.prompt_tokens_per_second, 1)]);
  show(charts.load, [line("in flight", told?.running, 0), line("waiting", told?.waiting, 1)]);
  show(charts.output, [line("real", told?.output_real_tokens, 0), line("predicted", told?.output_foreseen_tokens, 1)]);
  show(charts.wait, [line("real", told?.wait_real_seconds, 0), line("predicted", told?.wait_foreseen_seconds, 1)]);
  show(charts.kv, (told?.backends ?? []).slice(0, 6).map((one, index) => line(one.name, one.held_share, index)));
  show(charts.refusals, reasons().map(([reason, values], index) => line(view.reason(reason), values, index)));
}

// The five most frequent reasons, and the others together.
function reasons() {
  const all = Object.entries(hour.told?.refusals ?? {});
  const total = ([, values]) => values.slice(-steps).reduce((sum, value) => sum + (value ?? 0), 0);
  const seen = all.filter((one) => total(one) > 0).sort((one, other) => total(other) - total(one));
  const rest = seen.slice(5).map(([, values]) => values);
  if (rest.length === 0) return seen;
  const others = rest[0].map((_, at) => rest.reduce((sum, values) => sum + (values[at] ?? 0), 0));
  return [...seen.slice(0, 5), ["others", others]];
}

function forecast(totals) {
  if (totals === undefined || totals.measured === 0) return "No answer has been measured against its forecast yet.";
  const off = Math.round((100 * totals.output_error_tokens) / Math.max(1, totals.measured_output_tokens));
  const outputs = `Since the start, outputs came to ${off} % more or less than foreseen in ${count(totals.measured)} answers`;
  if (totals.promised === 0) return `${outputs}; nobody has waited.`;
  const kept = Math.round((100 * totals.kept) / totals.promised);
  const missed = seconds(totals.wait_error_seconds / totals.promised);
  return `${outputs}; ${count(totals.promised)} waits were off by ${missed} on average, and ${kept} % ended within what four in five should.`;
}

// === what is live ===

const SAID = { live: "live", draining: "draining", connecting: "connecting", reconnecting: "reconnecting" };

function say(status) {
  const node = $("status");
  if (node.dataset.state !== status) {
    attr(node, "data-state", status);
    put($("status-text"), SAID[status]);
  }
  document.body.classList.toggle("stale", status === "reconnecting");
}

async function onState(news) {
  const another = state !== null && state.instance !== news.instance;
  state = news;
  if (another || hour.told === null) {
    hour.clear();
    await refreshHour();
  }
  pickModels();
  $("token-form").hidden = true;
  draw();
  attr(document.body, "data-instance", news.instance);
  say(news.phase === "running" ? "live" : "draining");
}

async function refreshHour() {
  if (refreshing) return;
  refreshing = true;
  try {
    if (await hour.refresh()) drawHour();
  } catch (problem) {
    // The stream finds out by itself that the gateway is gone.
    if (problem instanceof Unauthorized) dropToken();
  } finally {
    refreshing = false;
  }
}

function pickModels() {
  const names = state.pools.map((pool) => pool.model);
  const select = $("model");
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    select.replaceChildren(...names.map((name) => el("option", { attrs: { value: name } }, name)));
  }
  if (!names.includes(model)) model = names[0] ?? null;
  select.value = model;
  $("model-pick").hidden = names.length < 2;
}

function start() {
  follow({
    state: onState,
    lost: () => say(state === null ? "connecting" : "reconnecting"),
    unauthorized: askToken,
  });
}

function askToken() {
  put($("token-problem"), hasToken() ? "That is not the token." : "");
  dropToken();
  $("main").hidden = true;
  $("token-form").hidden = false;
  $("token").focus();
}

// === what the reader sets ===

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value);
  $("token").value = "";
  start();
});

$("model").addEventListener("change", (event) => {
  model = event.target.value;
  draw();
  drawHour();
});

$("range").addEventListener("change", (event) => {
  steps = Number(event.target.value);
  drawHour();
});

function setTheme(theme) {
  attr(document.documentElement, "data-theme", theme);
  put($("theme-name"), theme);
  attr($("theme"), "aria-label", `Theme: ${theme}`);
}

$("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme;
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem(THEME_KEY, next);
  setTheme(next);
});

const kept = localStorage.getItem(THEME_KEY);
setTheme(THEMES.includes(kept) ? kept : "auto");
setInterval(() => state !== null && !document.hidden && refreshHour(), HOUR_EVERY);
start();
