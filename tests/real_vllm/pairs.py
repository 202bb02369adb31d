"""The goals of the oversubscription loads, in pairs: without the gateway, through it, and beside them
the engine's own watermark.

One run says little on a machine whose speed wanders. So each round runs both paths one after the
other, in turned order, and every other round the rival too; walls are compared within their round.
"""

import statistics

# What a stream may be silent in its middle, and how much longer all of it may take.
SILENCE = 0.2
WALL = 1.05

BARE = "no gateway"
OURS = "tidegate"
RIVAL = "no gateway, `--watermark 0.2`"


def rounds(count):
    """`count` rounds, begun by either path in turn; the rival runs in every other one."""
    pairs = [[BARE, OURS] if turn % 2 == 0 else [OURS, BARE] for turn in range(count)]
    return [pair + [RIVAL] * (turn % 2 == 0) for turn, pair in enumerate(pairs)]


def spread(values, digits):
    """Median, least and most."""
    median, least, most = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"


def ratios(records, path):
    """Wall of `path` over that without the gateway, round by round."""
    walls = {(r["round"], r["policy"]): r["wall_seconds"] for r in records}
    return [walls[turn, path] / wall for (turn, policy), wall in walls.items() if policy == BARE and (turn, path) in walls]


def summary(records):
    """One row for each load and path that ran."""
    rows = []
    for load, path in dict.fromkeys((r["load"], r["policy"]) for r in records):
        of_load = [r for r in records if r["load"] == load]
        runs = [r for r in of_load if r["policy"] == path]
        rows.append({
            "title": runs[0]["title"], "load": load, "policy": path, "runs": len(runs),
            "preemptions": [r["preemptions"] for r in runs],
            "wall": [r["wall_seconds"] for r in runs],
            "ratio": ratios(of_load, path),
            "silence": [r["silence_max_seconds"] or 0.0 for r in runs],
            "lag": [r["client_lag_max_seconds"] for r in runs],
            "first": [r["first_token_p50_seconds"] or 0.0 for r in runs],
            "use": [r["kv_use_mean"] for r in runs],
            "machine": [r["machine_load"] for r in runs],
        })  # fmt: skip
    return rows


def missed(row):
    """The goals that a row through the gateway does not reach, each with its figure."""
    if row["policy"] != OURS:
        return []
    found = []
    if sum(row["preemptions"]):
        found.append(f"{sum(row['preemptions'])} preemptions in {row['runs']} runs")
    if max(row["silence"]) > SILENCE:
        found.append(f"a silence of {max(row['silence']):.2f} s (the client itself was late by {max(row['lag']):.2f} s at most)")
    if row["ratio"] and statistics.median(row["ratio"]) > WALL:
        found.append(f"a wall time of {statistics.median(row['ratio']):.2f} × in the median")
    return found
