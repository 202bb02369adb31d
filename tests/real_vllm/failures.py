"""Clients that leave and engines that die: who is told, and whether the books end at zero."""

import asyncio
import os
import signal
import statistics
import time

from processes import MODEL

RUNNING = "vllm:num_requests_running"
PATIENCE = 20.0
OUTPUT = 1500


async def stream(client, seed, output=OUTPUT):
    """A long stream on a prompt of its own."""
    prompt = [3 + (seed * 97 + i * 31) % 4000 for i in range(200)]
    return await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=output, stream=True, extra_body={"ignore_eos": True}
    )


async def first_tokens(events, number):
    seen = 0
    async for event in events:
        seen += bool(event.choices)
        if seen == number:
            return seen
    return seen


async def seconds_until(condition, start):
    """Seconds from `start` until `condition()` holds, asked every 20 ms; None after 20 s."""
    while time.monotonic() - start < PATIENCE:
        if await asyncio.to_thread(condition):
            return time.monotonic() - start
        await asyncio.sleep(0.02)
    return None


# === clients that leave ===


async def disconnects(client, engine, gateway, runs):
    """Closes a stream after 20 tokens, `runs` times; how long the engine kept the sequence running."""
    idle = lambda: engine.metrics()[RUNNING] == 0  # noqa: E731
    freed, settled = [], []
    for run in range(runs):
        events = await stream(client, run)
        await first_tokens(events, 20)
        if engine.metrics()[RUNNING] != 1:
            raise RuntimeError("the stream ended before it could be left")
        left = time.monotonic()
        await events.close()
        freed.append(await seconds_until(idle, left))
        settled.append(await seconds_until(gateway.idle, left) if gateway else None)
    return distribution(freed, settled)


def distribution(freed, settled):
    known = sorted(s for s in freed if s is not None)
    return {
        "runs": len(freed), "freed": len(known), "seconds": freed, "settled_seconds": settled,
        "min": known[0] if known else None, "median": statistics.median(known) if known else None,
        "max": known[-1] if known else None,
    }  # fmt: skip


# === engines that die ===


async def until_it_breaks(client, seed, started):
    """Reads a stream to its end; how it ended, as the client sees it."""
    tokens = 0
    try:
        events = await stream(client, seed)
        async for event in events:
            tokens += bool(event.choices)
            if tokens == 20:
                started.release()
    except Exception as error:
        return {"tokens": tokens, "error": type(error).__name__, "message": str(error)[:200]}
    finally:
        if tokens < 20:
            started.release()
    return {"tokens": tokens, "error": None, "message": "the stream ended as if it were complete"}


async def death(client, gateway, victim, streams):
    """Kills process `victim` of an engine while `streams` are being written.

    Returns what each client saw, how long the last one waited for it, and how
    long the gateway's books took to come to zero.
    """
    started = asyncio.Semaphore(0)
    readers = [asyncio.create_task(until_it_breaks(client, 100 + i, started)) for i in range(streams)]
    for _ in readers:
        await asyncio.wait_for(started.acquire(), 60)
    held = gateway.books()
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    ends = await asyncio.wait_for(asyncio.gather(*readers), 180)
    told = time.monotonic() - killed
    settled = await seconds_until(gateway.idle, killed)
    return {
        "streams": streams, "held_before": held, "ends": ends,
        "told": sum(end["error"] is not None for end in ends),
        "last_told_seconds": told, "settled_seconds": settled, "held_after": gateway.books(), "state": gateway.state(),
    }  # fmt: skip
