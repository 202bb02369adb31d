"""The oversubscription loads: how often the engine preempts, and what clients feel of it.

Prompts are random, drawn afresh for each run so that no prefix is cached from
the run before. No load is larger than 32 requests at once. Streams are read as
bytes, not through the `openai` package: parsing thousands of events a second in
Python takes longer than the silences that are measured here.
"""

import asyncio
import dataclasses
import json
import os
import random
import statistics
import time

import aiohttp

from processes import MODEL

TURN_END_ID = 2
# Tokens that the chat template puts around a user's message; each digit is one token.
CHAT_FRAME = 12


@dataclasses.dataclass(frozen=True)
class Load:
    """`requests` at once, each `prompt` tokens in and `shortest` to `longest` really out."""

    name: str
    requests: int
    prompt: int
    shortest: int
    longest: int
    # What the client says about its output: `max_tokens`, or nothing at all.
    max_tokens: int | None

    def title(self):
        size = f"{self.name}: {self.requests} × ({self.prompt:,} + "
        if self.shortest == self.longest:
            return f"{size}{self.longest:,})"
        asked = "no max_tokens" if self.max_tokens is None else f"at most {self.max_tokens:,}"
        return f"{size}{asked}, really {self.shortest}–{self.longest:,})"


LOADS = {
    load.name: load
    for load in (
        Load("A", 16, 1500, 1500, 1500, 1500),
        Load("B", 32, 200, 1500, 1500, 1500),
        Load("C", 32, 1500, 150, 1500, 1500),
        Load("D", 32, 1500, 150, 1500, None),
    )
}


def body(load, output):
    """Route and body of one request; the engine stops after `output` tokens, whatever is asked."""
    request = {"model": MODEL, "temperature": 1.0, "stream": True, "stream_options": {"include_usage": True}}
    if load.shortest == load.longest:
        request["ignore_eos"] = True
    else:
        # The end token is out of reach until `min_tokens` and certain from then on: only
        # the engine knows where the answer ends.
        request |= {"logit_bias": {TURN_END_ID: 100}, "min_tokens": output - 1}
    if load.max_tokens is not None:
        prompt = [random.randrange(3, 4000) for _ in range(load.prompt)]
        return "/v1/completions", request | {"prompt": prompt, "max_tokens": load.max_tokens}
    # /v1/completions reads a missing max_tokens as 16, chat as the rest of the context.
    digits = "".join(random.choice("0123456789") for _ in range(load.prompt - CHAT_FRAME))
    return "/v1/chat/completions", request | {"messages": [{"role": "user", "content": digits}]}


def lengths(load):
    """Real output of each request: the same in every run of this load."""
    draw = random.Random(f"lengths of {load.name}")
    return [draw.randint(load.shortest, load.longest) for _ in range(load.requests)]


async def one(session, load, output):
    """One streamed request; times are seconds from its start."""
    route, request = body(load, output)
    start, arrivals, tail = time.monotonic(), [], b""
    try:
        async with session.post(route, json=request) as answer:
            async for chunk in answer.content.iter_any():
                arrivals.append(time.monotonic() - start)
                tail = (tail + chunk)[-4096:]
            error = None if answer.status == 200 and b'data: {"error"' not in tail else tail[-300:].decode()
    except aiohttp.ClientError as failure:  # counted and reported; the other requests go on
        error = f"{type(failure).__name__}: {failure}"
    gaps = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    return {
        "expected": (load.prompt, output), "usage": usage(tail), "error": error,
        "first": arrivals[0] if arrivals else None, "silence": max(gaps, default=0.0),
    }  # fmt: skip


def usage(tail):
    """Prompt and output tokens from the last events of a stream."""
    for line in reversed(tail.split(b"\n")):
        if line.startswith(b"data: {") and (told := json.loads(line[6:]).get("usage")):
            return told["prompt_tokens"], told["completion_tokens"]
    return None


async def sample_cache(engine, samples, stop):
    """Notes KV use twice a second: often enough for a mean, seldom enough not to disturb."""
    while not stop.is_set():
        metrics = await asyncio.to_thread(engine.metrics)
        samples.append(metrics["vllm:kv_cache_usage_perc"])
        try:
            await asyncio.wait_for(stop.wait(), 0.5)
        except TimeoutError:
            pass


async def watch_own_lag(worst, stop):
    """Notes how late this process itself gets its turn: that much of a silence is nobody else's."""
    while not stop.is_set():
        asleep = time.monotonic()
        await asyncio.sleep(0.01)
        worst[0] = max(worst[0], time.monotonic() - asleep - 0.01)


async def measure(url, engine, load, label):
    """Sends `load` at once and returns what the engine and the clients saw."""
    before, samples, stop = engine.metrics(), [], asyncio.Event()
    lag = [0.0]
    watchers = [asyncio.create_task(w) for w in (sample_cache(engine, samples, stop), watch_own_lag(lag, stop))]
    connections, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(url, connector=connections, timeout=limit) as session:
        start = time.monotonic()
        answers = await asyncio.gather(*(one(session, load, output) for output in lengths(load)))
        wall = time.monotonic() - start
    stop.set()
    await asyncio.gather(*watchers)
    after = engine.metrics()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    return {**summary(load, label, answers, grown, wall), **surroundings(samples, lag[0])}


def right_size(answer):
    """Whether prompt and output had the length this load is about; the end token may count."""
    if answer["usage"] is None:
        return False
    (prompt, output), (used, generated) = answer["expected"], answer["usage"]
    return used == prompt and abs(generated - output) <= 1


def surroundings(samples, lag):
    return {
        "kv_use_mean": statistics.fmean(samples) if samples else 0.0,
        "client_lag_max_seconds": lag,
        "machine_load": os.getloadavg()[0],
    }


def summary(load, label, answers, grown, wall):
    done = [a for a in answers if a["error"] is None]
    firsts = sorted(a["first"] for a in done if a["first"] is not None)
    silences = sorted(a["silence"] for a in done)
    return {
        "load": load.name, "title": load.title(), "policy": label,
        "completed": len(done), "failed": [a["error"] for a in answers if a["error"]],
        "wrong_size": sum(not right_size(a) for a in done),
        "preemptions": int(grown["vllm:num_preemptions_total"]),
        "steps": int(grown["vllm:iteration_tokens_total_count"]),
        "wall_seconds": wall,
        "tokens_per_second": sum(a["usage"][1] for a in done if a["usage"]) / wall,
        "first_token_p50_seconds": statistics.median(firsts) if firsts else None,
        "first_token_max_seconds": firsts[-1] if firsts else None,
        "silence_p50_seconds": statistics.median(silences) if silences else None,
        "silence_max_seconds": silences[-1] if silences else None,
    }  # fmt: skip


def line(record):
    return (
        f"  {record['title']}, {record['policy']}: {record['preemptions']} preemptions, "
        f"{record['wall_seconds']:.1f} s, {record['tokens_per_second']:.0f} tokens/s, "
        f"worst silence {record['silence_max_seconds'] or 0:.2f} s, {record['completed']} completed, "
        f"{len(record['failed'])} failed"
    )


async def warm_up(client):
    """The first requests after a start are slow; they are nobody's measurement."""
    for prompt_tokens in (100, 3000):
        prompt = [random.randrange(3, 4000) for _ in range(prompt_tokens)]
        await client.completions.create(model=MODEL, prompt=prompt, max_tokens=16)
