"""Where requests land when a small and a large engine serve one model."""

import openai

from processes import MODEL


def completion(client, prompt_tokens, output):
    """Sends a prompt of exactly `prompt_tokens`; what came back, refusals included."""
    prompt = [3 + i % 3000 for i in range(prompt_tokens)]
    try:
        raw = client.completions.with_raw_response.create(model=MODEL, prompt=prompt, max_tokens=output)
    except openai.APIStatusError as error:
        return {"status": error.status_code, "code": error.code, "message": error.message, "headers": error.response.headers}
    return {"status": raw.status_code, "code": None, "usage": raw.parse().usage.prompt_tokens, "headers": raw.headers}


def check(client, small, large):
    """Three sizes, three ends: the small engine, the large one, a refusal that says what would fit."""
    sizes = (
        ("short", 300, small.name),
        ("too long for the small one", small.max_model_len + 1000, large.name),
        ("too long for both", large.max_model_len + 1000, None),
    )
    records = []
    for name, prompt, expected in sizes:
        before = {e.name: e.metrics()["vllm:prompt_tokens_total"] for e in (small, large)}
        answer = completion(client, prompt, 8)
        took = {e.name: int(e.metrics()["vllm:prompt_tokens_total"] - before[e.name]) for e in (small, large)}
        headers = answer.pop("headers")
        told = {key: value for key, value in headers.items() if key.startswith("x-tidegate-")}
        record = {"case": name, "prompt": prompt, **answer, "headers": told, "prompt_tokens_taken": took, "wrong": []}
        record["wrong"] = faults(record, expected)
        records.append(record)
        print(f"  {name}: {prompt:,} tokens → {answer['status']} {told.get('x-tidegate-backend', '-')} "
              f"({told.get('x-tidegate-tier', '-')}) {'; '.join(record['wrong']) or 'ok'}", flush=True)  # fmt: skip
    return records


def faults(record, expected):
    wrong = []
    taken = {name: n for name, n in record["prompt_tokens_taken"].items() if n}
    if expected is None:
        if (record["status"], record["code"]) != (400, "context_length_exceeded"):
            wrong.append(f"expected 400 context_length_exceeded, got {record['status']} {record['code']}")
        if taken:
            wrong.append(f"an engine was given the prompt: {taken}")
        return wrong
    if record["status"] != 200:
        return [f"expected 200, got {record['status']} {record['code']}: {record.get('message')}"]
    if taken != {expected: record["prompt"]}:
        wrong.append(f"expected {expected} to take {record['prompt']} tokens, {taken} did")
    if record["headers"].get("x-tidegate-backend") != expected:
        wrong.append(f"x-tidegate-backend is {record['headers'].get('x-tidegate-backend')}")
    return wrong
