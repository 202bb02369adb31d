"""The results as Markdown."""

import pairs
from routes import tally


def seconds(value):
    return "–" if value is None else f"{value:.2f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def counts(records):
    exact = sum(not r["wrong"] for r in records)
    ways = sum(len(r["gateway"]) for r in records)
    lines = [f"{exact} of {len(records)} prompt forms counted as the engine counts, {ways} requests in all."]
    lines += [f"- {r['route']}, {r['case']}: {'; '.join(r['wrong'])}" for r in records if r["wrong"]]
    return "\n".join(lines)


def routes(records):
    kinds = ("requests", "equal", "estimated", "wrong")
    rows = [[f"`{route}`", *(row[kind] for kind in kinds)] for route, row in tally(records).items()]
    rows.append(["all", *(sum(row[at] for row in rows) for at in range(1, 1 + len(kinds)))])
    return table(["route", "requests", "exact and equal", "estimated, not below", "wrong"], rows)


def pressure(records):
    head = ["load", "policy", "preemptions", "wall s", "tokens/s", "engine steps", "KV use, mean",
            "first token s, median / worst", "mid-stream silence s, median request / worst", "of that the client's own, at most s"]  # fmt: skip
    rows, last = [], None
    for r in records:
        title = r["title"] if r["title"] != last else ""
        last = r["title"]
        rows.append([
            title, r["policy"], r["preemptions"], f"{r['wall_seconds']:.1f}", f"{r['tokens_per_second']:.0f}",
            r["steps"], f"{r['kv_use_mean']:.2f}",
            f"{seconds(r['first_token_p50_seconds'])} / {seconds(r['first_token_max_seconds'])}",
            f"{seconds(r['silence_p50_seconds'])} / {seconds(r['silence_max_seconds'])}",
            seconds(r["client_lag_max_seconds"]),
        ])  # fmt: skip
    return table(head, rows)


def paired(records):
    head = ["load", "path", "runs", "preemptions", "wall s", "of the wall without the gateway", "worst silence of a run s",
            "of that the client's own, at most s", "first token s, median", "KV use, mean", "machine load"]  # fmt: skip
    rows, last, missed = [], None, []
    for r in pairs.summary(records):
        title = r["title"] if r["title"] != last else ""
        last = r["title"]
        ratio = pairs.spread(r["ratio"], 2) if r["ratio"] and r["policy"] != pairs.BARE else "–"
        rows.append([
            title, r["policy"], r["runs"], pairs.spread(r["preemptions"], 0), pairs.spread(r["wall"], 1), ratio,
            pairs.spread(r["silence"], 2), seconds(max(r["lag"])), pairs.spread(r["first"], 1), pairs.spread(r["use"], 2),
            pairs.spread(r["machine"], 1),
        ])  # fmt: skip
        missed += [f"- {r['title']}: {goal}" for goal in pairs.missed(r)]
    goals = f"no preemption, no silence above {pairs.SILENCE} s, a wall of at most {pairs.WALL} × in the median"
    told = [f"Medians, with the least and the most of the runs. Goals through the gateway: {goals}.", *missed]
    return "\n".join(told) + "\n\n" + table(head, rows)


def routing(records):
    rows = []
    for r in records:
        told = r["headers"]
        rows.append([r["case"], f"{r['prompt']:,}", r["status"], r["code"] or "",
                     told.get("x-tidegate-backend", ""), told.get("x-tidegate-tier", "")])  # fmt: skip
    return table(["prompt", "tokens", "status", "code", "backend", "tier"], rows)


def disconnects(records):
    rows = [[name, r["runs"], r["freed"], seconds(r["min"]), seconds(r["median"]), seconds(r["max"])]
            for name, r in records.items()]  # fmt: skip
    return table(["path", "runs", "engine freed", "min s", "median s", "max s"], rows)


def deaths(records):
    rows = []
    for r in records:
        errors = sorted({end["error"] or "none" for end in r["ends"]})
        rows.append([r["what"], r["streams"], r["told"], ", ".join(errors), seconds(r["last_told_seconds"]),
                     r["held_before"]["kv_held_tokens"], r["held_after"]["kv_held_tokens"], seconds(r["settled_seconds"])])  # fmt: skip
    return table(["killed with SIGKILL", "streams", "told", "error in the client", "last told s",
                  "KV tokens held before", "after", "books at zero s"], rows)  # fmt: skip


def markdown(results):
    sections = (
        ("Counting", "counts", counts),
        ("Routes", "routes", routes),
        ("Oversubscription", "pressure", pressure),
        ("Goals, in pairs", "pairs", paired),
        ("Routing", "routing", routing),
        ("Disconnects", "disconnects", disconnects),
        ("Engine deaths", "deaths", deaths),
    )
    parts = [f"## {title}\n\n{write(results[key])}" for title, key, write in sections if results.get(key)]
    faults = results["faults"]
    parts.append("## Faults\n\n" + ("\n".join(f"- {f}" for f in faults) if faults else "None."))
    return "\n\n".join(parts) + "\n"
