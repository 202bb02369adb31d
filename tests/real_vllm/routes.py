"""Every route through the gateway, with the clients people use: its count against the engine's."""

import collections
import inspect
import json
import urllib.error
import urllib.request

import anthropic
import openai

import bodies
from counts import counted
from processes import MODEL

PATHS = {
    "count_tokens": "/v1/messages/count_tokens",
    "tokenize": "/tokenize",
    "detokenize": "/detokenize",
    "pooling": "/pooling",
    "classify": "/classify",
    "score": ("/score", "/v1/score"),
    "rerank": ("/rerank", "/v1/rerank", "/v2/rerank"),
}
# What bounds the answer, so that a run takes minutes.
BOUNDS = {"chat": "max_tokens", "completions": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


class Clients:
    """The packages, all speaking to one address."""

    def __init__(self, url):
        self.url = url
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=300)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=300)
        self.sent = collections.Counter()

    def ask(self, case):
        """Headers of the answer and the engine's count in it, or None where it has none."""
        bound = {BOUNDS[case.route]: bodies.FEW} if case.route in BOUNDS else {}
        body = {"model": MODEL, **bound, **case.body}
        if case.stream:
            body["stream"] = True
        match case.route:
            case "chat":
                return usage(self.openai.chat.completions, body, case.stream)
            case "completions":
                return usage(self.openai.completions, body, case.stream)
            case "embeddings" if "input" in body:
                return usage(self.openai.embeddings, body, False)
            case "responses":
                return response(self.openai.responses, body)
            case "messages":
                return message(self.anthropic.messages, body)
            case "count_tokens":
                raw = call(self.anthropic.messages.with_raw_response.count_tokens, body)
                return raw.headers, raw.parse().input_tokens
            case _:
                return self.post(case.route, body)

    def post(self, route, body):
        paths = PATHS.get(route, "/v1/embeddings")
        paths = (paths,) if isinstance(paths, str) else paths
        path = paths[self.sent[route] % len(paths)]
        self.sent[route] += 1
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                headers, answer = answer.headers, json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{error.code} {error.read()[:300]}") from None
        if route == "tokenize":
            return headers, answer["count"]
        if route == "detokenize":
            return headers, len(body["tokens"])
        return headers, answer["usage"]["prompt_tokens"]


def call(method, body):
    """Calls a client's method with the fields it knows; the others go into the body as they are."""
    known = inspect.signature(method).parameters
    mine = {key: value for key, value in body.items() if key in known}
    more = {key: value for key, value in body.items() if key not in known}
    return method(**mine, extra_body=more or None)


def usage(resource, body, stream):
    if stream:
        body["stream_options"] = {"include_usage": True}
    raw = call(resource.with_raw_response.create, body)
    answer = raw.parse()
    if not stream:
        return raw.headers, answer.usage.prompt_tokens
    found = [event.usage for event in answer if event.usage is not None]
    return raw.headers, found[-1].prompt_tokens if len(found) == 1 else None


def response(resource, body):
    raw = call(resource.with_raw_response.create, body)
    answer = raw.parse()
    if not body.get("stream"):
        return raw.headers, answer.usage.input_tokens
    ends = [event.response.usage for event in answer if event.type in ("response.completed", "response.incomplete")]
    return raw.headers, ends[0].input_tokens if len(ends) == 1 else None


def message(resource, body):
    raw = call(resource.with_raw_response.create, body)
    answer = raw.parse()
    if not body.get("stream"):
        return raw.headers, answer.usage.input_tokens
    starts, ends = [], []
    for event in answer:
        if event.type == "message_start":
            starts.append(event.message.usage.input_tokens)
        if event.type == "message_stop":
            ends.append(event)
    return raw.headers, starts[0] if len(starts) == len(ends) == 1 else None


def check(url, cases):
    """Sends every case; one record each."""
    clients = Clients(url)
    records = []
    for case in cases:
        record = {"route": case.route, "case": case.name, "stream": case.stream, "gateway": None,
                  "precision": None, "engine": None, "wrong": None}  # fmt: skip
        records.append(record)
        try:
            headers, record["engine"] = clients.ask(case)
        except Exception as error:  # a refusal is a finding about this case, not the end of the run
            record["wrong"] = f"{type(error).__name__}: {str(error)[:300]}"
        else:
            record["gateway"], record["precision"] = counted(headers)
            record["wrong"] = judged(record, case)
        if record["wrong"]:
            print(f"  {case.route:12} {case.name:28} WRONG {record['wrong']}", flush=True)
    return records


def judged(record, case):
    """What is wrong with a count: an exact one must be equal, an estimate allowed and not below."""
    gateway, engine = record["gateway"], record["engine"]
    if engine is None or gateway is None:
        return f"gateway {gateway} ({record['precision']}), engine {engine}"
    if record["precision"] == "exact":
        return None if gateway == engine else f"counted {gateway}, the engine {engine}: {json.dumps(case.body)[:400]}"
    if not case.estimated:
        return f"{record['precision']} {gateway}, the engine {engine}"
    return None if gateway >= engine else f"estimated {gateway}, the engine {engine}"


def tally(records):
    """Per route: requests, exact and equal, estimated and not below, wrong."""
    table = {}
    for r in records:
        row = table.setdefault(r["route"], {"requests": 0, "equal": 0, "estimated": 0, "wrong": 0})
        row["requests"] += 1
        kind = "wrong" if r["wrong"] else "equal" if r["precision"] == "exact" else "estimated"
        row[kind] += 1
    return table
