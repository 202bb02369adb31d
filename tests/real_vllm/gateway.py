"""Runs tidegate in front of given engines and reads its books."""

import json
import os

from processes import MODEL, Process, free_port, get, sums

CONFIG = """\
[server]
listen = "127.0.0.1:{port}"

[admin]
listen = "127.0.0.1:{admin_port}"

[queue]
# Longer than any load here takes, so that waiting is measured and not cut short.
max_wait = "600s"

[admission]
reservation = "{reservation}"

[[models]]
name = "{model}"
tokenizer = "{tokenizer}"
"""

BACKEND = """
[[models.backends]]
name = "{name}"
url = "{url}"
tier = "{tier}"
"""


BOOKS = ("kv_held_tokens", "in_flight_requests", "waiting_requests")


class Gateway(Process):
    """`engines` is a list of (engine, tier)."""

    def __init__(self, binary, home, label, reservation, engines, model="model"):
        self.port, self.admin_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        text = CONFIG.format(
            port=self.port, admin_port=self.admin_port, reservation=reservation,
            model=MODEL, tokenizer=home / model,
        )  # fmt: skip
        for engine, tier in engines:
            text += BACKEND.format(name=engine.name, url=engine.url, tier=tier)
        self.config = home / f"logs/{label}.toml"
        self.config.write_text(text)
        super().__init__(label, [binary, "serve", "--config", self.config], home / f"logs/{label}.log", os.environ)
        self.wait_until_ready(f"{self.admin}/readyz", 60)

    def state(self):
        """The books as the admin address shows them."""
        status, text = get(f"{self.admin}/state")
        if status != 200:
            raise RuntimeError(f"/state: {status} {text}")
        return json.loads(text)

    def books(self):
        """KV tokens held, requests in flight and requests waiting, over all backends."""
        status, text = get(f"{self.admin}/metrics")
        if status != 200:
            raise RuntimeError(f"/metrics: {status} {text}")
        metrics = sums(text, "tidegate_")
        return {name: int(metrics.get(f"tidegate_{name}", 0)) for name in BOOKS}

    def idle(self):
        return not any(self.books().values())
