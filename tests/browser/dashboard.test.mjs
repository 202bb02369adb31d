// The operator's page in a real browser, before a real gateway and simulated
// engines: what it shows is what /state says, it comes back by itself, and it
// can be read on any screen. Screenshots go to SCREENSHOTS, or nowhere to keep.
//
// LOAD_SECONDS is how long the first test's load lasts; more makes better pictures.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Browser, contrast } from "./browser.mjs";
import { writeSmall } from "./png.mjs";
import { Stand, pause, until } from "./stand.mjs";

const LOAD_SECONDS = Number(process.env.LOAD_SECONDS ?? 22);
const SHOTS = process.env.SCREENSHOTS ?? mkdtempSync(join(tmpdir(), "tidegate-shots-"));
const SIM = ["--max-num-seqs", "64"];
const MOST_SHIFT = 0.01;

const stands = [];
let browser;
// Where pictures are decoded: a page without a policy.
let blank;

before(async () => {
  mkdirSync(SHOTS, { recursive: true });
  browser = await Browser.open();
  blank = await browser.context.newPage();
});

after(async () => {
  await browser?.close();
  for (const stand of stands) await stand.end();
});

function stand() {
  const one = new Stand();
  stands.push(one);
  return one;
}

// One engine, one tenant.
async function small(token) {
  const gateway = stand();
  const engine = await gateway.engine(...SIM);
  await gateway.gateway({
    backends: [{ name: "gpu-0", url: engine, tier: "standard" }],
    tenants: [{ name: "all", key: "k" }],
    token,
  });
  return gateway;
}

async function live(page) {
  await page.waitForFunction(() => document.getElementById("status").dataset.state === "live");
}

async function clean(page) {
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(page.foreign, []);
  assert.deepEqual(await page.evaluate(() => window.violations), []);
}

async function still(page) {
  const shifted = await page.evaluate(() => window.shifted);
  assert.ok(shifted < MOST_SHIFT, `things moved by ${shifted}`);
}

async function shoot(page, name) {
  const bytes = await page.screenshot({ fullPage: true });
  const size = await writeSmall(blank, bytes, join(SHOTS, `${name}.png`));
  assert.ok(size < 150_000, `${name} has ${size} bytes`);
}

// Everything the page says of the first pool, as figures.
function onPage(page) {
  return page.evaluate(() => {
    const value = (node) => Number(node.dataset.value);
    const field = (node, name) => node.querySelector(`[data-field="${name}"]`);
    const rows = (id) => [...document.getElementById(id).children];
    const parts = ["held", "growing", "foreign", "reserve", "free"];
    return {
      tiles: ["running", "waiting", "kv", "refused"].map((name) => value(document.getElementById(`tile-${name}`))),
      backends: rows("backends").map((row) => ({
        name: field(row, "name").textContent,
        state: field(row, "state").textContent,
        tier: field(row, "tier").textContent.replace(" tier", ""),
        parts: parts.map((part) => value(field(row, part))),
        widths: parts.map((part) => Number(row.querySelector(`rect.${part}`).getAttribute("width"))),
        facts: ["leases", "running", "queued", "preemptions"].map((name) => field(row, name).textContent),
      })),
      heads: rows("queue").map((row) => [
        field(row, "tenant").textContent,
        value(field(row, "tokens")),
        field(row, "waits_for").dataset.value,
      ]),
      tenants: rows("tenants").map((row) => {
        const first = (name) => field(row, name).firstElementChild;
        return [first("name").textContent, ...["share", "served", "waiting", "refused"].map((name) => value(first(name)))];
      }),
    };
  });
}

// The same out of /state.
function inState(state) {
  const pool = state.pools[0];
  const sum = (of) => pool.backends.reduce((all, backend) => all + of(backend), 0);
  const own = new Map(pool.tenants.map((tenant) => [tenant.name, tenant]));
  return {
    tiles: [
      sum((backend) => backend.leases),
      pool.queue.requests,
      sum((backend) => backend.held_blocks * backend.capacity.block_size),
      Object.values(state.refusals).reduce((all, one) => all + one, 0),
    ],
    backends: pool.backends.map((backend) => {
      const parts = ["held", "growing", "foreign", "reserve", "free"].map((part) => backend[`${part}_blocks`]);
      const seen = backend.observed;
      return {
        name: backend.name,
        state: backend.state,
        tier: backend.tier,
        parts,
        widths: parts.map((part) => Number(((1000 * part) / backend.capacity.blocks).toFixed(1))),
        facts: [backend.leases, seen.running, seen.waiting, seen.preemptions].map(String),
      };
    }),
    heads: pool.heads.map((head) => [head.tenant, head.tokens, head.waits_for]),
    tenants: state.tenants.map((tenant) => {
      const here = own.get(tenant.name);
      return [tenant.name, here?.in_flight_tokens ?? 0, here?.served_tokens ?? 0, here?.waiting ?? 0, tenant.ended.refused + tenant.ended.failed];
    }),
  };
}

// Where the page, a second old at most, says what the gateway says.
async function agrees(page, gateway) {
  let shown;
  let told;
  const same = async () => {
    [shown, told] = [await onPage(page), inState(await gateway.state())];
    for (const one of [...shown.backends, ...told.backends]) one.widths = one.widths.map(Math.round);
    return JSON.stringify(shown) === JSON.stringify(told);
  };
  await until("a page that agrees with /state", same).catch(() => assert.deepEqual(shown, told));
  return told;
}

test("under load it is live and still, asks nobody else, and is readable on any screen", { timeout: 600_000 }, async () => {
  const gateway = stand();
  const engines = await Promise.all([
    gateway.engine(...SIM, "--max-model-len", "8192", "--num-gpu-blocks-override", "1025"),
    gateway.engine(...SIM, "--max-model-len", "8192", "--num-gpu-blocks-override", "1025"),
    gateway.engine(...SIM, "--max-model-len", "32768", "--num-gpu-blocks-override", "4097"),
  ]);
  const [first, second, large] = engines;
  const tenants = [
    { name: "chat", key: "k-chat", lines: "weight = 4" },
    { name: "search", key: "k-search", lines: 'length = "long"\nweight = 2' },
    { name: "batch", key: "k-batch", lines: "max_in_flight_tokens = 12000\nmax_waiting = 12" },
    { name: "trial", key: "k-trial", lines: "requests_per_minute = 30\nmax_context_tokens = 2000" },
  ];
  await gateway.gateway({
    backends: [
      { name: "gpu-0", url: first, tier: "standard" },
      { name: "gpu-1", url: second, tier: "standard" },
      { name: "long-0", url: large, tier: "large" },
    ],
    tenants,
  });
  const page = await browser.page(gateway.page);
  await live(page);
  const load = run(gateway, LOAD_SECONDS);
  await pause(1000 * LOAD_SECONDS * 0.9);
  const state = await gateway.state();
  assert.ok(state.pools[0].totals.admitted > 20, "there is load");
  assert.ok(Object.keys(state.refusals).length >= 2, JSON.stringify(state.refusals));
  await page.waitForFunction(() => document.querySelectorAll("#chart-refusals path").length > 0);
  await page.waitForFunction(() => document.querySelectorAll("#chart-ttft path").length > 0);
  await still(page);
  if (LOAD_SECONDS < 400) await page.getByText("5 min", { exact: true }).click();
  await page.evaluate(() => document.activeElement.blur());
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    await page.setViewportSize({ width: 1280, height: 900 });
    await shoot(page, `wide-${theme}`);
    const worst = await contrast(page);
    assert.ok(worst.ratio >= 4.5, `${theme}: ${worst.ratio.toFixed(2)} for "${worst.text}"`);
    await page.setViewportSize({ width: 360, height: 780 });
    await pause(100);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `${wide} pixels wide on a phone`);
    await shoot(page, `phone-${theme}`);
  }
  await clean(page);
  await load;
  await page.close();
});

// Steady load with a burst now and then, until the time is over. Answers end
// where they end, and nobody says where.
async function run(gateway, seconds) {
  const end = Date.now() + seconds * 1000;
  const answers = [];
  const range = (least, most) => least + Math.floor(Math.random() * (most - least));
  const send = (key, prompt, real) => answers.push(gateway.send({ key, prompt, output: 1000, real }));
  for (let beat = 0; Date.now() < end; beat += 1) {
    const burst = beat % 120 < 40 ? 2 : 1;
    for (let count = 0; count < burst; count += 1) send("k-chat", range(100, 1500), range(40, 500));
    if (beat % 6 === 0) send("k-search", range(6000, 20000), range(100, 400));
    if (beat % 8 === 0 || beat % 120 < 18) send("k-batch", range(1500, 4000), range(200, 700));
    if (beat % 4 === 0) send("k-trial", range(500, 2500), range(50, 300));
    await pause(250);
  }
  return answers;
}

test("its figures are those of /state, whatever names are, and it comes back after a crash", { timeout: 120_000 }, async () => {
  const gateway = stand();
  // So slow that nothing moves while it is compared.
  const slow = await gateway.engine(...SIM, "--max-model-len", "4096", "--num-gpu-blocks-override", "257", "--time-scale", "2000");
  const spare = await gateway.engine(...SIM, "--max-model-len", "8192", "--num-gpu-blocks-override", "1025", "--time-scale", "2000");
  const nasty = '<img/src=x/onerror=document.title=1>';
  await gateway.gateway({
    backends: [
      { name: nasty, url: slow, tier: "standard" },
      { name: "large", url: spare, tier: "large" },
    ],
    tenants: [
      { name: "<script>document.title=2</script>", key: "k-a", lines: "weight = 3" },
      { name: "capped", key: "k-b", lines: "max_in_flight_tokens = 1000\nmax_waiting = 2" },
      { name: "idle", key: "k-c", lines: "tokens_per_minute = 90000" },
    ],
    admission: 'reservation = "strict"\nlate = "off"',
  });
  const page = await browser.page(gateway.page);
  await live(page);
  const fill = async () => {
    gateway.send({ key: "k-b", prompt: 700, output: 100 });
    await until("one in flight", async () => inState(await gateway.state()).tiles[0] === 1);
    for (let one = 0; one < 2; one += 1) gateway.send({ key: "k-b", prompt: 500 + one, output: 100 });
    await until("two that wait", async () => inState(await gateway.state()).tiles[1] === 2);
    assert.equal(await gateway.send({ key: "k-b", prompt: 400, output: 100 }), 429);
    assert.equal(await gateway.send({ key: "k-a", prompt: 9000, output: 100 }), 400);
    for (let one = 0; one < 9; one += 1) gateway.send({ key: "k-a", prompt: 1900 + one, output: 100 });
    await until("a line for memory", async () => (await gateway.state()).pools[0].heads.some((head) => head.waits_for === "memory"));
  };
  await fill();
  const told = await agrees(page, gateway);
  assert.equal(told.tenants.find(([name]) => name === "capped")[4], 1, JSON.stringify(told.tenants));
  assert.ok(told.heads.some(([, , why]) => why === "tenant_limit"), JSON.stringify(told.heads));
  assert.equal(await page.title(), "tidegate");
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.ok((await page.locator("#backends").textContent()).includes(nasty));
  await still(page);
  await clean(page);

  const before = await page.evaluate(() => document.body.dataset.instance);
  await gateway.kill();
  await page.waitForFunction(() => document.getElementById("status").dataset.state === "reconnecting");
  assert.equal(await page.locator("#status-text").textContent(), "reconnecting");
  await gateway.up();
  await live(page);
  await page.waitForFunction((old) => document.body.dataset.instance !== old, before);
  const anew = await agrees(page, gateway);
  assert.deepEqual(anew.tiles.slice(0, 2), [0, 0]);
  await still(page);
  // What the browser itself says of a refused connection is all there may be.
  const own = page.complaints.filter((text) => !text.startsWith("Failed to load resource: net::ERR"));
  assert.deepEqual(own, []);
  await page.close();
});

test("it can be used by keys alone", { timeout: 60_000 }, async () => {
  const gateway = stands[0] ?? (await small());
  const page = await browser.page(gateway.page);
  await live(page);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className.baseVal || document.activeElement.className || document.activeElement.name);
  const stops = [];
  for (let press = 0; press < 8; press += 1) {
    await page.keyboard.press("Tab");
    stops.push(await focused());
  }
  assert.deepEqual(stops.slice(0, 6), ["skip", "theme", "queue-scroll", "tenants-scroll", "range", "plot"]);
  await page.focus("#theme");
  for (const theme of ["light", "dark", "auto"]) {
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
  }
  await page.focus("#range input:checked");
  await page.keyboard.press("ArrowLeft");
  assert.equal(await page.evaluate(() => document.querySelector("#range input:checked").value), "180");
  // The first step of the hour has ended.
  await until("a figure in a chart", () => page.evaluate(() => document.querySelectorAll("#chart-load path").length > 0));
  await page.focus("#chart-tokens svg");
  assert.equal(await page.locator("#chart-tokens .cursor").count(), 0);
  await page.keyboard.press("ArrowLeft");
  assert.equal(await page.locator("#chart-tokens .cursor").count(), 1);
  assert.match(await page.locator("#chart-tokens .when").textContent(), /^\d\d:\d\d:\d\d$/);
  const words = await page.locator("#chart-tokens svg").getAttribute("aria-label");
  assert.match(words, /^Tokens per second: output .+, at most .+; prompts let in /);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#chart-tokens .cursor").count(), 0);
  const unnamed = await page.evaluate(() => {
    const all = [...document.querySelectorAll("button, select, input, [role=img], [role=region]")];
    const named = (node) => node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.labels?.length || node.textContent.trim();
    return all.filter((node) => node.checkVisibility() && !named(node)).map((node) => node.outerHTML.slice(0, 80));
  });
  assert.deepEqual(unnamed, []);
  await clean(page);
  await page.close();
});

test("where a token is asked for it asks for it, and keeps it in its tab alone", { timeout: 60_000 }, async () => {
  const gateway = await small("operators-only");
  const page = await browser.page(gateway.page);
  await page.waitForSelector("#token-form:not([hidden])");
  assert.equal(await page.locator("#main").isVisible(), false);
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("That is not the token.").waitFor();
  await page.keyboard.type("operators-only");
  await page.keyboard.press("Enter");
  await live(page);
  assert.equal(await page.locator("#main").isVisible(), true);
  const stored = await page.evaluate(() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie, location.href]);
  assert.deepEqual(stored.slice(0, 1), [["operators-only"]]);
  assert.ok(!JSON.stringify(stored.slice(1)).includes("operators-only"));
  await page.reload();
  await live(page);
  const own = page.complaints.filter((text) => !text.includes("401"));
  assert.deepEqual(own, []);
  await page.close();
});
