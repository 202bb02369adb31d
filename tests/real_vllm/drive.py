"""Puts tidegate in front of two real vLLM servers and drives it with the `openai` package.

    drive.py HOME TIDEGATE [--loads A,B,C,D] [--only PART,…] [--watermark] [--pairs N] [--disconnects N]

HOME holds what install.sh made. Writes HOME/results.json and HOME/results.md.
Counts are asserted (exit status 1 with a list of faults), times are reported.
"""

import argparse
import asyncio
import functools
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

import openai

import bodies
import counts
import failures
import pairs
import pictures
import pressure
import report
import routes
import routing
from gateway import Gateway
from processes import Engine

PARTS = ("counts", "routes", "pooling", "seeing", "routing", "pressure", "disconnects", "deaths")
POLICIES = ("strict", "forecast")
# The loads whose goals are measured in pairs, where pairs are asked for.
PAIRED = ("A", "C")
# The least the engine must preempt on load A without the gateway; otherwise the
# machine did not put the pool under pressure and zero with the gateway says nothing.
PRESSURE_A = 10


def client(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=900)


def with_client(url, use):
    """Runs `use(client)` to its end, then closes the client within the same event loop."""

    async def session():
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=900) as session:
            return await use(session)

    return asyncio.run(session())


class Proof:
    """The processes of one run and what was found; `close` stops every one of them."""

    def __init__(self, options):
        self.options, self.home = options, options.home
        self.running, self.faults = [], []
        self.results = {"faults": self.faults}

    def engine(self, name, blocks, max_model_len, flags=(), model="model"):
        engine = Engine(self.home, name, blocks, max_model_len, flags, model)
        self.running.append(engine)
        return engine

    def gateway(self, label, reservation, engines, model="model"):
        gateway = Gateway(self.options.tidegate, self.home, label, reservation, engines, model)
        self.running.append(gateway)
        return gateway

    def stop(self, process):
        self.running.remove(process)
        process.stop()

    def close(self):
        for process in reversed(self.running):
            process.stop()
        self.running.clear()

    def wants(self, part):
        return part in self.options.only

    def expect(self, holds, fault):
        if not holds:
            self.faults.append(fault)

    def save(self):
        (self.home / "results.json").write_text(json.dumps(self.results, indent=1, default=str) + "\n")
        (self.home / "results.md").write_text(report.markdown(self.results))


def heading(text):
    print(f"\n== {text}", flush=True)


# === the parts ===


def two_tiers(proof, small, large):
    """Counting, routing and departures, with both engines behind one gateway."""
    gateway = proof.gateway("two-tier", "strict", [(small, "standard"), (large, "large")])
    if proof.wants("counts"):
        heading("counted against the engine's usage")
        proof.results["counts"] = records = counts.check(client(gateway.url))
        for r in records:
            proof.expect(not r["wrong"], f"count of {r['route']} {r['case']}: {'; '.join(r['wrong'])}")
    if proof.wants("routes"):
        every_route(proof, gateway, bodies.generating())
    if proof.wants("routing"):
        heading("where a prompt lands")
        proof.results["routing"] = records = routing.check(client(gateway.url), small, large)
        for r in records:
            proof.expect(not r["wrong"], f"routing of {r['case']}: {'; '.join(r['wrong'])}")
    if proof.wants("disconnects"):
        heading("clients that leave mid-stream")
        departures(proof, gateway, small)
    proof.expect(gateway.idle(), f"the idle gateway holds {gateway.books()}")
    proof.stop(gateway)


def every_route(proof, gateway, cases):
    heading("every route, counted against the engine's own count")
    records = routes.check(gateway.url, cases)
    for route, row in routes.tally(records).items():
        print(f"  {route:12} {row}", flush=True)
    proof.results.setdefault("routes", []).extend(records)
    for r in records:
        proof.expect(not r["wrong"], f"count of {r['route']} {r['case']}: {r['wrong']}")
    proof.expect(gateway.idle(), f"the idle gateway holds {gateway.books()}")


def pooling(proof):
    """Servers that embed and classify, one after the other."""
    for convert, cases, flags in (
        ("embed", bodies.embedding(), []),
        ("classify", bodies.classifying(), ["--hf-overrides", '{"num_labels": 1}', "--load-format", "dummy"]),
    ):
        heading(f"a pooling server: {convert}")
        engine = proof.engine(convert, 257, 8192, ["--runner", "pooling", "--convert", convert, *flags])
        engine.wait()
        gateway = proof.gateway(f"pooling-{convert}", "strict", [(engine, "standard")])
        every_route(proof, gateway, cases)
        proof.stop(gateway)
        proof.stop(engine)


def seeing(proof):
    """Servers of models that take images, one family after the other."""
    for family in pictures.FAMILIES:
        heading(f"a server that sees: {family}")
        flags = ["--load-format", "dummy", "--trust-request-mm-kwargs"]
        engine = proof.engine(family, 257, 8192, flags, f"model-{family}")
        engine.wait()
        gateway = proof.gateway(f"seeing-{family}", "strict", [(engine, "standard")], f"model-{family}")
        every_route(proof, gateway, pictures.seeing(family))
        proof.stop(gateway)
        proof.stop(engine)


def departures(proof, gateway, small):
    runs = proof.options.disconnects
    paths = {"straight to the engine": (small.url, None), "through tidegate": (gateway.url, gateway)}
    proof.results["disconnects"] = records = {}
    for name, (url, through) in paths.items():
        leave = functools.partial(failures.disconnects, engine=small, gateway=through, runs=runs)
        records[name] = r = with_client(url, leave)
        proof.expect(r["freed"] == runs, f"{name}: {runs - r['freed']} of {runs} sequences ran on")
        print(f"  {name}: engine free after {[round(s, 3) if s is not None else None for s in r['seconds']]} s")


def oversubscription(proof, small):
    """Each load without the gateway, then under each policy."""
    proof.results["pressure"] = records = []
    for name in proof.options.loads:
        load = pressure.LOADS[name]
        heading(load.title())
        without = measure(proof, small.url, small, (load, "no gateway"))
        if name == "A":
            proof.expect(
                without["preemptions"] >= PRESSURE_A,
                f"load A without the gateway: {without['preemptions']} preemptions, no pressure to speak of",
            )
        for policy in POLICIES:
            gateway = proof.gateway(f"{policy}-{name}", policy, [(small, "standard")])
            record = measure(proof, gateway.url, small, (load, f"tidegate, {policy}"))
            if policy == "strict":
                proof.expect(record["preemptions"] == 0, f"load {name} under strict: {record['preemptions']} preemptions")
            proof.expect(gateway.idle(), f"load {name} under {policy}: {gateway.books()} after the last answer")
            proof.stop(gateway)
    return records


def watermark(proof):
    """The engine's own answer to the same problem, without a gateway."""
    flags = ["--watermark", "0.2"]
    # The watermark also bounds the size of one request, hence the shorter context.
    engine = proof.engine("watermark", 257, 6500, flags)
    engine.wait()
    for name in proof.options.loads:
        measure(proof, engine.url, engine, (pressure.LOADS[name], "no gateway, vLLM --watermark 0.2"))
    proof.stop(engine)
    proof.results["pressure"].sort(key=lambda r: r["load"])


def in_pairs(proof):
    """The goals of the loads: every path in each of several rounds, on engines of their own."""
    bare = proof.engine("paired", 257, 8192)
    rival = proof.engine("paired-watermark", 257, 6500, ["--watermark", "0.2"])
    for engine in (bare, rival):
        engine.wait()
        with_client(engine.url, pressure.warm_up)
    proof.results["pairs"] = records = []
    for name in [name for name in proof.options.loads if name in PAIRED]:
        load = pressure.LOADS[name]
        heading(f"in pairs: {load.title()}")
        for turn, order in enumerate(pairs.rounds(proof.options.pairs)):
            for path in order:
                record = paired(proof, path, (bare, rival), (load, records))
                record["round"] = turn
        proof.save()
    for row in pairs.summary(records):
        for goal in pairs.missed(row):
            print(f"  missed, {row['title']}: {goal}", flush=True)
    for engine in (bare, rival):
        proof.stop(engine)


def paired(proof, path, engines, what):
    """One run of one path. A gateway of its own each time: one that watches the engine being
    overloaded past it learns to plan less, which is right and no part of this question."""
    (bare, rival), (load, records) = engines, what
    if path != pairs.OURS:
        engine = bare if path == pairs.BARE else rival
        return measure(proof, engine.url, engine, (load, path), records)
    gateway = proof.gateway(f"paired-{load.name}", "forecast", [(bare, "standard")])
    record = measure(proof, gateway.url, bare, (load, path), records)
    proof.expect(gateway.idle(), f"load {load.name} in pairs: {gateway.books()} after the last answer")
    proof.stop(gateway)
    return record


def measure(proof, url, engine, what, records=None):
    load, label = what
    record = asyncio.run(pressure.measure(url, engine, load, label))
    print(pressure.line(record), flush=True)
    (proof.results["pressure"] if records is None else records).append(record)
    proof.expect(not record["failed"], f"load {load.name}, {label}: {len(record['failed'])} failed: {record['failed'][:2]}")
    proof.expect(record["wrong_size"] == 0, f"load {load.name}, {label}: {record['wrong_size']} of the wrong size")
    return record


def engine_deaths(proof, small, large):
    """The engine core of one server is killed, then the whole of the other."""
    heading("engines that die mid-stream")
    victims = (
        ("engine core", small, small.core_pid()),
        ("API server", large, large.child.pid),
    )
    proof.results["deaths"] = records = []
    for what, engine, victim in victims:
        gateway = proof.gateway(f"death-of-{engine.name}", "strict", [(engine, "standard")])
        death = functools.partial(failures.death, gateway=gateway, victim=victim, streams=4)
        record = {"what": what, **with_client(gateway.url, death)}
        records.append(record)
        print(f"  {what}: {record['told']} of {record['streams']} clients told, held before {record['held_before']}, "
              f"after {record['held_after']}; {record['ends'][0]['error']}: {record['ends'][0]['message']}",
              flush=True)  # fmt: skip
        proof.expect(record["held_before"]["kv_held_tokens"] > 0, f"{what}: nothing was held while streaming")
        proof.expect(record["told"] == record["streams"], f"{what}: {record['streams'] - record['told']} clients not told")
        proof.expect(not any(record["held_after"].values()), f"{what}: still held: {record['held_after']}")
        proof.stop(gateway)


def run(proof):
    if any(proof.wants(part) for part in PARTS if part not in ("pooling", "seeing")):
        generating(proof)
    if proof.wants("pooling"):
        pooling(proof)
    if proof.wants("seeing"):
        seeing(proof)
    if proof.options.pairs:
        in_pairs(proof)


def generating(proof):
    heading("two vLLM servers: 256 and 1,024 usable blocks of 32 tokens")
    small, large = proof.engine("small", 257, 8192), proof.engine("large", 1025, 32_768)
    for engine in (small, large):
        engine.wait()
        print(f"  {engine.name}: {engine.url}, pid {engine.child.pid}, {engine.usable_tokens:,} tokens", flush=True)
        with_client(engine.url, pressure.warm_up)
    if any(proof.wants(part) for part in ("counts", "routes", "routing", "disconnects")):
        two_tiers(proof, small, large)
    if proof.wants("pressure"):
        oversubscription(proof, small)
    if proof.wants("deaths"):
        engine_deaths(proof, small, large)
    for engine in (small, large):
        proof.stop(engine)
    if proof.wants("pressure") and proof.options.watermark:
        heading("the engine's own watermark")
        watermark(proof)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=pathlib.Path)
    parser.add_argument("tidegate", type=pathlib.Path)
    parser.add_argument("--loads", default="A,B,C,D", type=lambda text: text.split(","))
    parser.add_argument("--only", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--watermark", action="store_true")
    parser.add_argument("--pairs", default=0, type=int)
    parser.add_argument("--disconnects", default=7, type=int)
    return parser.parse_args()


def main():
    options = arguments()
    options.home = options.home.resolve()
    (options.home / "logs").mkdir(exist_ok=True)
    # Ends through `finally`, so that a stopped run leaves no engine behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    proof = Proof(options)
    proof.results["machine"] = {"cores": os.cpu_count(), "platform": platform.platform(), "date": time.strftime("%Y-%m-%d")}
    proof.results["gateway"] = subprocess.run([options.tidegate, "--version"], capture_output=True, text=True).stdout.strip()
    try:
        run(proof)
    finally:
        proof.close()
        proof.save()
    print("\n" + (options.home / "results.md").read_text())
    sys.exit(1 if proof.faults else 0)


if __name__ == "__main__":
    main()
