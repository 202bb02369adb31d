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


@dataclasses.dataclass(frozen=True)
class Load:
    """`requests` at once, each `prompt` tokens in and at most `output` out."""

    name: str
    requests: int
    prompt: int
    output: int
    # Shortest real output; equal to `output` when every request runs to its limit.
    shortest: int

    def title(self):
        if self.shortest == self.output:
            return f"{self.name}: {self.requests} × ({self.prompt:,} + {self.output:,})"
        return f"{self.name}: {self.requests} × ({self.prompt:,} + at most {self.output:,}, really {self.shortest}–{self.output:,})"


LOADS = {
    load.name: load
    for load in (
        Load("A", 16, 1500, 1500, 1500),
        Load("B", 32, 200, 1500, 1500),
        Load("C", 32, 1500, 1500, 150),
    )
}


def length_arguments(load, output):
    """Makes the engine stop after exactly `output` tokens while `max_tokens` stays the limit."""
    if load.shortest == load.output:
        return {"extra_body": {"ignore_eos": True}}
    # The end token is out of reach until `min_tokens` and certain from then on. The
    # gateway books by max_tokens; only the engine knows where the answer ends.
    return {"logit_bias": {str(TURN_END_ID): 100}, "extra_body": {"min_tokens": output - 1}}


def lengths(load):
    """Real output of each request: the same in every run of this load."""
    draw = random.Random(f"lengths of {load.name}")
    return [draw.randint(load.shortest, load.output) for _ in range(load.requests)]


async def one(client, load, output, start):
    """One streamed request; times are seconds from `start`."""
    prompt = [random.randrange(3, 4000) for _ in range(load.prompt)]
    arrivals, tokens, error = [], None, None
    try:
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=load.output, temperature=1.0, stream=True,
            stream_options={"include_usage": True}, **length_arguments(load, output),
        )  # fmt: skip
        async for event in stream:
            if event.choices:
                arrivals.append(time.monotonic() - start)
            if event.usage:
                tokens = event.usage.completion_tokens
    except Exception as failure:  # counted and reported; the other requests go on
        error = f"{type(failure).__name__}: {str(failure)[:200]}"
    gaps = [later - earlier for earlier, later in zip(arrivals, arrivals[1:])]
    return {
        "expected": output, "tokens": tokens, "error": error,
        "first": arrivals[0] if arrivals else None, "end": time.monotonic() - start,
        "silence": max(gaps, default=0.0),
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


async def run(client, engine, load, label):
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


def summary(load, label, answers, grown, samples, wall):
    done = [a for a in answers if a["error"] is None]
    firsts = sorted(a["first"] for a in done if a["first"] is not None)
    silences = sorted(a["silence"] for a in done)
    return {
        "load": load.name, "title": load.title(), "policy": label,
        "completed": len(done), "failed": [a["error"] for a in answers if a["error"]],
        "short": sum(a["tokens"] is None or abs(a["tokens"] - a["expected"]) > 1 for a in done),
        "preemptions": int(grown["vllm:num_preemptions_total"]),
        "steps": int(grown["vllm:iteration_tokens_total_count"]),
        "wall_seconds": wall,
        "tokens_per_second": sum(a["tokens"] or 0 for a in done) / wall,
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
