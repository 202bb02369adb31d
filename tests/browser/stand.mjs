// Simulated engines and a gateway as child processes on loopback, and load for
// them. Decides nothing about the page. Everything it starts ends with `end`.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const bins = process.env.TIDEGATE_BINS ?? join(here, "../../target/debug");
const PATIENCE = 30_000;

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what, holds) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await pause(50);
  }
}

// A port that was free a moment ago.
function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export class Stand {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "tidegate-browser-"));
    this.children = new Set();
    this.stopped = false;
  }

  start(command, args) {
    const child = spawn(join(bins, command), args, { stdio: ["ignore", "pipe", "pipe"] });
    this.children.add(child);
    child.said = "";
    const keep = (bytes) => (child.said = (child.said + bytes).slice(-20_000));
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("error", (problem) => (child.said += `cannot start ${command}: ${problem.message}`));
    child.on("exit", () => this.children.delete(child));
    return child;
  }

  // A simulated engine; its address.
  async engine(...args) {
    const child = this.start("vllm-sim", ["--port", "0", ...args]);
    const said = await until(`an engine (${child.said})`, () => child.said.match(/http:\/\/\S+/));
    return said[0];
  }

  // A gateway on fixed ports, with these engines and tenants.
  async gateway({ backends, tenants, token, admission = "" }) {
    this.ports ??= { clients: await freePort(), admin: await freePort() };
    const { clients, admin } = this.ports;
    const asked = token === undefined ? "" : `token_file = ${JSON.stringify(this.file("token", `${token}\n`))}`;
    const lines = [
      `[server]\nlisten = "127.0.0.1:${clients}"\ndrain_timeout = "1s"`,
      `[admin]\nlisten = "127.0.0.1:${admin}"\n${asked}`,
      `[probe]\ninterval = "200ms"`,
      `[admission]\n${admission}`,
      `[queue]\nmax_wait = "60s"`,
      `[log]\naccess_log = "off"`,
      `[[models]]\nname = "tiny"`,
      ...backends.map((one) => `[[models.backends]]\nname = ${JSON.stringify(one.name)}\nurl = "${one.url}"\ntier = "${one.tier}"`),
      ...tenants.map((one) => `[[tenants]]\nname = ${JSON.stringify(one.name)}\nkey_sha256 = ["${sha256(one.key)}"]\n${one.lines ?? ""}`),
    ];
    this.config = this.file("tidegate.toml", lines.join("\n\n"));
    await this.up(token);
    return this;
  }

  async up(token) {
    this.running = this.start("tidegate", ["serve", "--config", this.config]);
    const ready = () => this.get("/readyz", token).then((answer) => answer.status === 200, () => false);
    await until("a ready gateway", async () => {
      if (this.running.exitCode !== null) throw new Error(this.running.said);
      return ready();
    });
  }

  // Cuts the gateway off, as a crash would.
  async kill() {
    this.running.kill("SIGKILL");
    await until("the gateway's end", () => this.running.exitCode !== null || this.running.signalCode !== null);
  }

  get page() {
    return `http://127.0.0.1:${this.ports.admin}/`;
  }

  async get(path, token) {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    return fetch(`http://127.0.0.1:${this.ports.admin}${path}`, { headers });
  }

  async state() {
    return (await this.get("/state")).json();
  }

  // Sends one completion of `prompt` tokens that ends after `real` of them, and
  // reads its answer; resolves with the status, 0 where none came.
  send({ key, prompt, output, real = output }) {
    const ids = Array.from({ length: prompt }, () => 100 + Math.floor(Math.random() * 30_000));
    const length = { vllm_xargs: { sim_output_tokens: real } };
    const body = JSON.stringify({ model: "tiny", prompt: ids, max_tokens: output, stream: true, ...length });
    return new Promise((resolve) => {
      const request = http.request({
        host: "127.0.0.1",
        port: this.ports.clients,
        path: "/v1/completions",
        method: "POST",
        agent: false,
        headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      });
      request.on("response", (answer) => {
        answer.resume();
        answer.on("end", () => resolve(answer.statusCode));
        answer.on("error", () => resolve(0));
      });
      request.on("error", () => resolve(0));
      request.end(body);
    });
  }

  file(name, text) {
    const path = join(this.folder, name);
    writeFileSync(path, text);
    return path;
  }

  async end() {
    const ends = [...this.children].map((child) => new Promise((resolve) => child.once("exit", resolve)));
    for (const child of this.children) child.kill("SIGKILL");
    await Promise.all(ends);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function sha256(text) {
  return createHash("sha256").update(text).digest("hex");
}
