"""The proxies: how each is installed into its own folder, configured and started.

Each is set up as its own documentation says for one engine behind it, with one
worker, and with what keeps it from holding back streams. Nothing is installed
outside the cache folder, nothing runs as root, everything listens on loopback.
"""

import hashlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODEL = "peer-model"
CLIENTS = 4
KEY = "peers-key-"
READY_SECONDS = 90
REST_SECONDS = 15


class NotRun(Exception):
    """Why a proxy cannot take part."""


def call(*command, **more):
    """Runs a command; its output, or NotRun with the end of what it said."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotRun(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise NotRun(f"{' '.join(map(str, command[:4]))} …: {' / '.join(said)}")
    return (done.stdout + done.stderr).strip()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Proxy:
    """One proxy. `home` is its folder, `port` where it listens, `engine` the engine."""

    name = ""
    offset = 0
    headers = ()
    counts = False
    # Streams with a chunk each 10 ms, and as fast as they go: what it can carry.
    streams = (100, 16)
    environment = {}

    def __init__(self, cache, options):
        self.home = cache / self.name
        self.options = options
        self.port = options.ports + self.offset
        self.engine = f"127.0.0.1:{options.ports}"
        self.process = None

    def install(self):
        """Makes it ready to start; does nothing when it was done before."""

    def version(self):
        raise NotImplementedError

    def command(self, run):
        """The command that starts it, with its files in the folder `run`."""
        raise NotImplementedError

    def start(self, run, core, body):
        """Starts it on one core; returns once it answers `body`."""
        if listens(self.port):
            raise NotRun(f"port {self.port} is taken: end what listens there")
        run.mkdir(parents=True, exist_ok=True)
        command = ["taskset", "-c", str(core), *map(str, self.command(run))]
        with open(run / "output.log", "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=run, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.environment}, start_new_session=True)
        limit = time.monotonic() + READY_SECONDS
        while not self.answers(body):
            if self.process.poll() is not None:
                raise NotRun(f"ended with {self.process.returncode}, see {run / 'output.log'}")
            if time.monotonic() > limit:
                raise NotRun(f"no answer in {READY_SECONDS} s, see {run / 'output.log'}")
            time.sleep(0.2)

    def answers(self, body):
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}0"}
        headers.update(line.split(": ", 1) for line in self.headers)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def rest(self):
        """Waits until it does nothing by itself: loading what the first requests asked for, say."""
        limit = time.monotonic() + REST_SECONDS
        before = self.ticks()
        while time.monotonic() < limit:
            time.sleep(0.5)
            now = self.ticks()
            if now - before <= 2:
                return
            before = now

    def ticks(self):
        """Processor time of its process group, in hundredths of a second."""
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self.process.pid:
                total += int(fields[11]) + int(fields[12])
        return total

    def faults(self, run):
        """What its own log of this run says against the figures."""
        return []

    def stop(self):
        """Ends what `start` started, which is a process group of its own."""
        if self.process is None:
            return
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signal_number)
                self.process.wait(10)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None


class Debian(Proxy):
    """From packages of the distribution, unpacked beside each other."""

    packages = ()
    program = ""

    def binary(self):
        installed = shutil.which(self.program, path=f"{os.environ['PATH']}:/usr/sbin")
        return Path(installed) if installed else self.home / "usr/sbin" / self.program

    def install(self):
        if not self.binary().is_file():
            self.home.mkdir(parents=True, exist_ok=True)
            call("apt-get", "download", *self.packages, cwd=self.home)
            for package in self.home.glob("*.deb"):
                call("dpkg", "-x", package, self.home)
        missing = [line.split()[0] for line in call("ldd", self.binary(), env=self.libraries()).splitlines()
                   if "not found" in line]
        if missing:
            raise NotRun(f"libraries are missing: {', '.join(missing)}")
        self.environment = self.libraries()

    def libraries(self):
        return {**os.environ, "LD_LIBRARY_PATH": str(self.home / "usr/lib/x86_64-linux-gnu")}


class Nginx(Debian):
    name, program, offset = "nginx", "nginx", 101
    packages = ("nginx",)

    def version(self):
        return call(self.binary(), "-v", env=self.environment).removeprefix("nginx version: ")

    def command(self, run):
        (run / "nginx.conf").write_text(f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {run}/nginx.pid;
error_log {run}/error.log;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {run}/body;
  proxy_temp_path {run}/proxy;
  fastcgi_temp_path {run}/fastcgi;
  uwsgi_temp_path {run}/uwsgi;
  scgi_temp_path {run}/scgi;
  client_max_body_size 64m;
  keepalive_requests 100000000;
  keepalive_timeout 600s;
  tcp_nodelay on;
  upstream engine {{
    server {self.engine};
    keepalive 256;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{self.port} backlog=8192;
    location / {{
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
""")
        return [self.binary(), "-p", run, "-e", run / "error.log", "-c", run / "nginx.conf"]


class Haproxy(Debian):
    name, program, offset = "haproxy", "haproxy", 102
    packages = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")

    def version(self):
        return " ".join(call(self.binary(), "-v", env=self.environment).split()[:3])

    def command(self, run):
        (run / "haproxy.cfg").write_text(f"""\
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  option http-keep-alive
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
frontend clients
  bind 127.0.0.1:{self.port} backlog 8192
  default_backend engine
backend engine
  server engine {self.engine}
""")
        return [self.binary(), "-db", "-f", run / "haproxy.cfg"]


class Python(Proxy):
    """From wheels, in a virtual environment of its own; no build step runs."""

    requirement = ""
    package = ""
    # What virtual environments and setuptools bring. Any other such file is code
    # that runs whenever Python starts.
    usual_pth = {"_virtualenv.pth", "distutils-precedence.pth"}

    def install(self):
        done = self.home / "installed"
        if not done.is_file() or done.read_text() != self.requirement:
            uv = self.uv()
            shutil.rmtree(self.home, ignore_errors=True)
            call(uv, "venv", "--python", "3.11", self.home)
            call(uv, "pip", "install", "--only-binary", ":all:", "--python", self.home / "bin/python",
                 self.requirement)
        odd = {path.name for path in self.home.rglob("site-packages/*.pth")} - self.usual_pth
        if odd:
            raise NotRun(f"code that runs at every start came with it: {', '.join(sorted(odd))}")
        done.write_text(self.requirement)

    def uv(self):
        if found := shutil.which("uv"):
            return found
        tools = self.home.parent / "uv"
        if not (tools / "bin/uv").is_file():
            call(sys.executable, "-m", "venv", tools)
            call(tools / "bin/pip", "install", "uv")
        return tools / "bin/uv"

    def version(self):
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        return f"{self.package} {call(self.home / 'bin/python', '-c', code)}"


class VllmRouter(Python):
    name, package, requirement, offset = "vllm-router", "vllm-router", "vllm-router==0.1.17", 103

    def command(self, run):
        return [self.home / "bin/vllm-router", "--host", "127.0.0.1", "--port", self.port,
                "--worker-urls", f"http://{self.engine}", "--policy", "round_robin",
                "--prometheus-host", "127.0.0.1", "--prometheus-port", self.port + 100, "--log-level", "warning"]


class SglangRouter(Python):
    name, package, requirement, offset = "sglang-router", "sglang-router", "sglang-router==0.3.2", 104

    def command(self, run):
        return [self.home / "bin/sglang-router", "launch", "--host", "127.0.0.1", "--port", self.port,
                "--worker-urls", f"http://{self.engine}", "--policy", "round_robin",
                "--prometheus-host", "127.0.0.1", "--prometheus-port", self.port + 100, "--log-level", "warn"]


class Litellm(Python):
    name, package, requirement, offset = "litellm", "litellm", "litellm[proxy]==1.101.0", 105
    streams = (8, 4)
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False",
                   "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}

    def command(self, run):
        (run / "litellm.yaml").write_text(f"""\
model_list:
  - model_name: {MODEL}
    litellm_params:
      model: hosted_vllm/{MODEL}
      api_base: http://{self.engine}/v1
      api_key: none
litellm_settings:
  num_retries: 0
general_settings:
  disable_spend_logs: true
""")
        return [self.home / "bin/litellm", "--config", run / "litellm.yaml", "--host", "127.0.0.1",
                "--port", self.port, "--num_workers", "1", "--telemetry", "False"]


class Portkey(Proxy):
    name, offset = "portkey", 106
    streams = (32, 16)
    pinned = "1.15.2"

    @property
    def headers(self):
        return ("x-portkey-provider: openai", f"x-portkey-custom-host: http://{self.engine}/v1")

    def install(self):
        package = {"private": True, "dependencies": {"@portkey-ai/gateway": self.pinned},
                   # With newer ones its streams break.
                   "overrides": {"@hono/node-server": "1.13.8", "hono": "4.9.7"}}
        done = self.home / "installed"
        if not done.is_file() or done.read_text() != self.pinned:
            self.home.mkdir(parents=True, exist_ok=True)
            (self.home / "package.json").write_text(json.dumps(package))
            call("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", cwd=self.home)
            done.write_text(self.pinned)
        # It binds every interface by itself.
        (self.home / "loopback.cjs").write_text("""\
const net = require('net');
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (first, ...rest) {
  if (typeof first === 'object' && first !== null && first.port !== undefined) {
    return listen.call(this, { ...first, host: '127.0.0.1' }, ...rest);
  }
  if (typeof first === 'number' || typeof first === 'string') {
    return listen.call(this, { port: Number(first), host: '127.0.0.1' }, ...rest.filter((more) => typeof more === 'function'));
  }
  return listen.call(this, first, ...rest);
};
""")

    def version(self):
        package = self.home / "node_modules/@portkey-ai/gateway/package.json"
        return f"@portkey-ai/gateway {json.loads(package.read_text())['version']}, node {call('node', '--version')}"

    def command(self, run):
        return ["node", "--require", self.home / "loopback.cjs",
                self.home / "node_modules/@portkey-ai/gateway/build/start-server.js",
                f"--port={self.port}", "--headless"]


class Tidegate(Proxy):
    """Everything on: exact counts by the model's own vocabulary and template, the
    ledger, four tenants with keys, metrics, an access log in a file."""

    name, offset = "tidegate", 107
    counts = True

    def version(self):
        said = call(self.options.binary, "--version")
        try:
            commit = call("git", "describe", "--always", "--dirty", cwd=ROOT)
        except NotRun:
            return said
        return f"{said}, sources at {commit}"

    def command(self, run):
        tenants = "".join(f"""
[[tenants]]
name = "client-{number}"
key_sha256 = ["{hashlib.sha256(f'{KEY}{number}'.encode()).hexdigest()}"]
max_waiting = 1024
weight = {number + 1}
""" for number in range(CLIENTS))
        (run / "tidegate.toml").write_text(f"""\
[server]
listen = "127.0.0.1:{self.port}"
[admin]
listen = "127.0.0.1:{self.port + 100}"
[log]
format = "json"
access_log = "{run}/access.jsonl"
[[models]]
name = "{MODEL}"
tokenizer = "{self.options.vocabulary}"
[[models.backends]]
name = "engine"
url = "http://{self.engine}"
{tenants}""")
        return [self.options.binary, "serve", run / "tidegate.toml"]

    def faults(self, run):
        lines = [json.loads(line) for line in (run / "output.log").read_text().splitlines() if line[:1] == "{"]
        return [line["message"] for line in lines if line.get("level") in ("WARN", "ERROR")]

    def count(self, body):
        """Tokens of a chat's body, as the gateway will count them."""
        said = call(self.options.binary, "count", "--tokenizer", self.options.vocabulary, "--json", input=body)
        counted = json.loads(said.splitlines()[0])
        if not counted["exact"]:
            raise NotRun(f"the prompt is not counted exactly: {said}")
        return counted["tokens"]


ALL = (Nginx, Haproxy, VllmRouter, SglangRouter, Litellm, Portkey, Tidegate)
