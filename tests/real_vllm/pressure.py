"""The oversubscription loads: how often the engine preempts, and what clients feel of it.

Prompts are random token ids, drawn afresh for each run so that no prefix is
cached from the run before. No load is larger than 32 requests at once.
"""

import asyncio
import dataclasses
import os
import random
import statistics
import time

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


def length_arguments(load, output):
    """Makes the engine stop after exactly `output` tokens, whatever the client said it wants."""
    if load.shortest == load.longest:
        return {"max_tokens": load.max_tokens, "extra_body": {"ignore_eos": True}}
    # The end token is out of reach until `min_tokens` and certain from then on: only
    # the engine knows where the answer ends.
    stop = {"logit_bias": {str(TURN_END_ID): 100}, "extra_body": {"min_tokens": output - 1}}
    return stop if load.max_tokens is None else {**stop, "max_tokens": load.max_tokens}


def lengths(load):
    """Real output of each request: the same in every run of this load."""
    draw = random.Random(f"lengths of {load.name}")
    return [draw.randint(load.shortest, load.longest) for _ in range(load.requests)]


def send(client, load, output):
    """Starts a stream with a prompt of exactly `load.prompt` tokens."""
    common = {"model": MODEL, "temperature": 1.0, "stream": True, "stream_options": {"include_usage": True}}
    common.update(length_arguments(load, output))
    if load.max_tokens is not None:
        prompt = [random.randrange(3, 4000) for _ in range(load.prompt)]
        return client.completions.create(prompt=prompt, **common)
    # /v1/completions reads a missing max_tokens as 16, chat as the rest of the context.
    digits = "".join(random.choice("0123456789") for _ in range(load.prompt - CHAT_FRAME))
    return client.chat.completions.create(messages=[{"role": "user", "content": digits}], **common)


async def one(client, load, output, start):
    """One streamed request; times are seconds from `start`."""
    arrivals, usage, error = [], None, None
    try:
        async for event in await send(client, load, output):
            if event.choices:
                arrivals.append(time.monotonic() - start)
            usage = event.usage or usage
    except Exception as failure:  # counted and reported; the other requests go on
        error = f"{type(failure).__name__}: {str(failure)[:200]}"
    gaps = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    return {
        "expected": (load.prompt, output), "usage": usage and (usage.prompt_tokens, usage.completion_tokens),
        "error": error, "first": arrivals[0] if arrivals else None, "silence": max(gaps, default=0.0),
    }  # fmt: skip


async def sample_cache(engine, samples, stop):
    """Notes KV use twice a second: often enough for a mean, seldom enough not to disturb."""
    while not stop.is_set():
        metrics = await asyncio.to_thread(engine.metrics)
        samples.append(metrics["vllm:kv_cache_usage_perc"])
        try:
            await asyncio.wait_for(stop.wait(), 0.5)
        except TimeoutError:
            pass


async def measure(client, engine, load, label):
    """Sends `load` at once and returns what the engine and the clients saw."""
    before, samples, stop = engine.metrics(), [], asyncio.Event()
    sampler = asyncio.create_task(sample_cache(engine, samples, stop))
    start = time.monotonic()
    answers = await asyncio.gather(*(one(client, load, output, start) for output in lengths(load)))
    wall = time.monotonic() - start
    stop.set()
    await sampler
    after = engine.metrics()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    return summary(load, label, answers, grown, samples, wall)


def right_size(answer):
    """Whether prompt and output had the length this load is about; the end token may count."""
    if answer["usage"] is None:
        return False
    (prompt, output), (used, generated) = answer["expected"], answer["usage"]
    return used == prompt and abs(generated - output) <= 1


def summary(load, label, answers, grown, samples, wall):
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
        "kv_use_mean": statistics.fmean(samples) if samples else 0.0,
        "first_token_p50_seconds": statistics.median(firsts) if firsts else None,
        "first_token_max_seconds": firsts[-1] if firsts else None,
        "silence_p50_seconds": statistics.median(silences) if silences else None,
        "silence_max_seconds": silences[-1] if silences else None,
        "machine_load": os.getloadavg()[0],
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
