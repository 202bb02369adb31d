"""Starts and stops what the proof needs: real engines and the gateway.

Every process gets a session of its own and is stopped by the id it was started
under. Nothing else on the machine is touched. Loopback only.
"""

import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

MODEL = "tiny"
BLOCK_SIZE = 32


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url, timeout=5.0):
    """Status and text of a GET, or (0, reason) when nothing answers."""
    # Closed after each answer: the engine drops idle connections after five seconds,
    # and a scrape that races with that would look like a dead engine.
    request = urllib.request.Request(url, headers={"Connection": "close"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


class Process:
    """A child process with its log; `stop` waits until its whole session is gone."""

    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.log = pathlib.Path(log)
        with self.log.open("w") as sink:
            self.child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def alive(self):
        return self.child.poll() is None

    def wait_until_ready(self, url, limit):
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if not self.alive():
                raise SystemExit(f"{self.name} ended while starting; the end of {self.log}:\n{self.tail()}")
            if get(url, timeout=2.0)[0] == 200:
                return
            time.sleep(0.25)
        raise SystemExit(f"{self.name} did not answer {url} within {limit} s; the end of {self.log}:\n{self.tail()}")

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self):
        for number, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
            try:
                os.killpg(self.child.pid, number)
            except ProcessLookupError:
                break
            try:
                self.child.wait(patience)
            except subprocess.TimeoutExpired:
                continue
        self.child.poll()


class Engine(Process):
    """One vLLM server of the model directory `model` with a pool of `blocks` − 1 usable KV blocks of 32 tokens."""

    def __init__(self, home, name, blocks, max_model_len, flags=(), model="model"):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.usable_tokens = (blocks - 1) * BLOCK_SIZE
        self.max_model_len = max_model_len
        command = [
            home / "venv/bin/vllm", "serve", home / model,
            "--host", "127.0.0.1", "--port", self.port,
            "--served-model-name", MODEL,
            "--dtype", "bfloat16", "--enforce-eager",
            "--block-size", BLOCK_SIZE, "--num-gpu-blocks-override", blocks,
            "--max-model-len", max_model_len,
            "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
            *flags,
        ]  # fmt: skip
        environment = {
            "PATH": f"{home / 'venv/bin'}:{os.environ['PATH']}",
            # One thread and one process less per server: two servers, the gateway and
            # the client share two cores here.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        super().__init__(name, command, home / f"logs/{name}.log", environment)

    def wait(self):
        self.wait_until_ready(f"{self.url}/health", 300)

    def metrics(self):
        """Sum of each `vllm:` metric over its labels."""
        status, text = get(f"{self.url}/metrics")
        if status != 200:
            raise RuntimeError(f"{self.name} /metrics: {status} {text}")
        return sums(text, "vllm:")

    def core_pid(self):
        """Process id of the engine core, the child that holds the KV cache."""
        for task in pathlib.Path(f"/proc/{self.child.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if "EngineCor" in pathlib.Path(f"/proc/{child}/comm").read_text():
                    return int(child)
        raise RuntimeError(f"{self.name} has no engine core process")


def sums(text, prefix):
    total = {}
    for line in text.splitlines():
        if line.startswith(prefix):
            name, _, value = line.rpartition(" ")
            name = name.split("{", 1)[0]
            total[name] = total.get(name, 0.0) + float(value)
    return total
