#!/usr/bin/env python3
"""Writes corpus.json: the prompts of the golden tests, the same on every run.

    make_corpus.py         (run anywhere; needs Python 3.9 or later, nothing else)

Each entry is {"class", "text"} or, for a long run, {"class", "text", "times"}. The
text is generated or our own (words.py), so it carries no licence but this
repository's.
"""

import base64
import json
import os
import random
import unicodedata

import words

HERE = os.path.dirname(os.path.abspath(__file__))
RANDOM = random.Random(20261129)
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
ALL = [sentence for sentences in words.SENTENCES.values() for sentence in sentences]

pick = RANDOM.choice
some = lambda pool, low, high: [pick(pool) for _ in range(RANDOM.randint(low, high))]


def language(name):
    return "".join(sentence + pick([" ", "\n", "\n\n", ""]) for sentence in some(words.SENTENCES[name], 1, 4))


def code(name):
    a, b, c = RANDOM.sample(words.NAMES, 3)
    text = words.CODE[name].format(a=a, b=b, c=c, A=a.title(), n=RANDOM.randint(2, 99999))
    return text.replace("\n", "\r\n") if RANDOM.random() < 0.15 else text


def value(depth):
    kind = RANDOM.randint(0, 6 if depth else 3)
    return [lambda: RANDOM.randint(-10 ** 9, 10 ** 9), lambda: round(RANDOM.uniform(-1e3, 1e3), 4), lambda: pick([True, False, None, "", 1e-7]),
            lambda: pick(ALL)[:RANDOM.randint(1, 40)], lambda: [value(depth - 1) for _ in range(RANDOM.randint(0, 4))],
            lambda: {pick(words.NAMES): value(depth - 1) for _ in range(RANDOM.randint(0, 4))}, lambda: pick(words.NAMES)][kind]()


def a_json():
    layout = pick([{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": "\t"}])
    return json.dumps([value(3) for _ in range(RANDOM.randint(1, 3))], **layout)


def encoded():
    data = RANDOM.randbytes(RANDOM.randint(3, 240))
    return pick([lambda: base64.b64encode(data).decode(), lambda: data.hex(), lambda: base64.urlsafe_b64encode(data).decode().rstrip("="),
                 lambda: "data:image/png;base64," + base64.b64encode(data).decode(), lambda: base64.encodebytes(data).decode(),
                 lambda: "https://example.org/a/" + data[:12].hex() + "?k=" + base64.b32encode(data[:20]).decode(),
                 lambda: base64.b85encode(data).decode(), lambda: "%" + "%".join(f"{byte:02X}" for byte in data[:60])])()


def digits():
    pool = pick(words.DIGITS)
    number = lambda: "".join(some(pool, 1, 12))
    return pick([" ", "", ",", ".", "-", "/", ":", "\n"]).join(number() for _ in range(RANDOM.randint(1, 8)))


def emoji():
    return "".join(pick([*words.EMOJI, *words.EMOJI, " ", "ok", "!", "\n"]) for _ in range(RANDOM.randint(1, 14)))


def right_to_left():
    text = language(pick(words.RIGHT_TO_LEFT))
    return pick(["\u202b", "\u200f", "", "\u2067"]) + text + pick(["\u202c", "\u200e", "", "\u2069"]) + pick([" (v2.0)", " http://a.b/c", "", "\u0640" * 9])


def normal_forms():
    text = "".join(pick([*words.MARKS, *words.MARKS, pick(ALL)[:20], " "]) for _ in range(RANDOM.randint(2, 10)))
    return unicodedata.normalize(pick(FORMS), text) if RANDOM.random() < 0.7 else text


def spaces():
    parts = [pick([*words.SPACES, *words.SPACES, "a", "word", "7", "!", "é", "字", "x=1"]) for _ in range(RANDOM.randint(1, 16))]
    return "".join(parts)


def lines():
    end = pick(["\r\n", "\r\n", "\n", "\r", "\n\r"])
    return "".join(pick(["  ", "\t", "", " "]) + pick(ALL)[:RANDOM.randint(0, 40)] + pick(["", " ", "\t"]) + end * RANDOM.randint(1, 4) for _ in range(RANDOM.randint(1, 5)))


def special():
    filler = ["", " ", "\n", "hi", "user\n", pick(ALL)[:25], "  ", "é", "7", "."]
    pool = words.SPECIAL if RANDOM.random() < 0.8 else words.BROKEN + words.SPECIAL
    return "".join(pick(filler) + pick(pool) + pick(filler) for _ in range(RANDOM.randint(1, 6)))


def contractions():
    return pick([" ", "", "\n", "  "]).join(some(words.CONTRACTIONS, 1, 7))


def characters():
    """Anything that is not a surrogate, most of it from a few blocks at a time."""
    start = pick([0, 0, 0x80, 0x250, 0x300, 0x590, 0x900, 0xe00, 0x1100, 0x2000, 0x2e80, 0x3000, 0x4e00, 0xac00, 0xe000, 0xf900, 0xfe00, 0x10000, 0x1d400, 0x1f000, 0x20000, 0xe0000, 0x10ff00])
    one = lambda: chr(start + RANDOM.randrange(0x100)) if RANDOM.random() < 0.8 else chr(pick([RANDOM.randrange(0xd800), RANDOM.randrange(0xe000, 0x110000)]))
    return "".join(one() for _ in range(RANDOM.randint(1, 40)))


def mixed():
    makers = [lambda: language(pick(list(words.SENTENCES))), lambda: code(pick(list(words.CODE))), a_json, encoded, digits, emoji, normal_forms, spaces, special, contractions]
    return "".join(pick(makers)()[:RANDOM.randint(5, 120)] for _ in range(RANDOM.randint(2, 6)))


def pieces():
    """Long stretches without a split point, short enough for the ordinary path or just beyond it."""
    pool = pick(["abcdefghij", "aA", "字漢語文", "!?-_=/", "\u0300\u0301", "0123456789", "กขคงจ", "ㄱㄴㄷ", " \t", "\n\r", "😀👍", "ابجد", "xyzXYZ09+/"])
    return "".join(pick(pool) for _ in range(pick([30, 100, 300, 700])))


RUNS = ["a", "A", "ab", "aA", " ", "\t", "\n", "\r\n", " \n", "\u00a0", "\u200b", "\x00", "-", "=", "/", "'", "'s", "!?", "^", "7", "😀", "👨‍👩‍👧‍👦", "字", "人工", "ᄀ", "\u0301",
        "ก", "ﷺ", "<|", "<|im_start|>", "<|im_start", "１", "\ufffd", "▁", "<s>", "\u3000", "e\u0301", "word ", "Hello, world.\n", "  ", "_", "\u0e33"]


def entries():
    for name in words.SENTENCES:
        for _ in range(22):
            yield name, language(name)
    for name in words.CODE:
        for _ in range(16):
            yield "code", code(name)
    for name, maker, count in [("json", a_json, 110), ("base64", encoded, 120), ("digits", digits, 110), ("emoji", emoji, 110), ("right to left", right_to_left, 80),
                               ("normal forms", normal_forms, 180), ("spaces", spaces, 170), ("lines", lines, 90), ("special tokens", special, 260),
                               ("contractions", contractions, 60), ("characters", characters, 190), ("mixed", mixed, 220), ("pieces", pieces, 70)]:
        for _ in range(count):
            yield name, maker()
    for text in ["", " ", "a", "\n", "\ufeff", *words.SPECIAL, *words.BROKEN, *words.MARKS]:
        yield "alone", text


def main():
    corpus = [{"class": name, "text": text} for name, text in entries()]
    corpus += [{"class": "runs", "text": text, "times": times} for text in RUNS for times in (2, 37, 1000)]
    corpus += [{"class": "runs", "text": text, "times": 20_000} for text in RUNS[:6]]
    with open(os.path.join(HERE, "corpus.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry, ensure_ascii=True) for entry in corpus) + "\n]\n")
    print(len(corpus), "prompts")


if __name__ == "__main__":
    main()
