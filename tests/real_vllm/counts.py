"""What the gateway counted against what the engine counted, for every prompt form."""

from processes import MODEL
from prompts import CHAT, cases

OUTPUT = 4
HEADER = "x-tidegate-prompt-tokens"
WAYS = ("whole", "streamed", "streamed with usage")


def counted(headers):
    """The number and the precision of the gateway's count, e.g. (14, "exact")."""
    number, _, precision = headers.get(HEADER, "").partition(";")
    return (int(number), precision.strip()) if number.strip().isdigit() else (None, "missing")


def ask(client, route, arguments, way):
    """One request; the gateway's count, its precision, the engine's count, and what was wrong."""
    endpoint = client.chat.completions if route == CHAT else client.completions
    extra = {}
    if way != "whole":
        extra["stream"] = True
    if way == "streamed with usage":
        extra["stream_options"] = {"include_usage": True}
    raw = endpoint.with_raw_response.create(model=MODEL, max_tokens=OUTPUT, **arguments, **extra)
    number, precision = counted(raw.headers)
    answer = raw.parse()
    if way == "whole":
        return number, precision, answer.usage.prompt_tokens, None
    events = list(answer)
    usages = [event.usage for event in events if event.usage is not None]
    empty = [event for event in events if not event.choices]
    if way == "streamed":
        # The gateway asks the engine for usage on its own account; the client must not see it.
        leaked = "usage the client did not ask for" if usages or empty else None
        return number, precision, None, leaked
    wrong = None if len(usages) == 1 and len(empty) == 1 else f"{len(usages)} usages in the stream"
    return number, precision, usages[0].prompt_tokens if usages else None, wrong


def check(client):
    """Runs every case in every way; returns one record per case."""
    records = []
    for route, name, arguments in cases():
        record = {"route": route, "case": name, "engine": None, "gateway": {}, "precision": {}, "wrong": []}
        for way in WAYS:
            try:
                number, precision, engine, wrong = ask(client, route, arguments, way)
            except Exception as error:  # a refusal is a finding about this case, not the end of the run
                record["wrong"].append(f"{way}: {type(error).__name__}: {str(error)[:200]}")
                continue
            record["gateway"][way], record["precision"][way] = number, precision
            if engine is not None and record["engine"] not in (None, engine):
                record["wrong"].append(f"{way}: the engine counted {record['engine']}, then {engine}")
            record["engine"] = record["engine"] if engine is None else engine
            if wrong:
                record["wrong"].append(f"{way}: {wrong}")
        off = {way: n for way, n in record["gateway"].items() if n != record["engine"]}
        estimated = [way for way, precision in record["precision"].items() if precision != "exact"]
        if estimated:
            record["wrong"].append(f"not exact: {estimated}")
        if off:
            record["wrong"].append(f"counted {off}, the engine {record['engine']}")
        records.append(record)
        state = "ok" if not record["wrong"] else "WRONG " + "; ".join(record["wrong"])
        print(f"  {route:11} {name:34} {record['engine'] or '-':>6}  {state}", flush=True)
    return records
