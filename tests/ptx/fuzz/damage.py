"""Changes of texts, bytes and JSON: tokens exchanged, bytes flipped, values replaced by odd ones, ends cut off."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Sequence
from typing import Any

Step = tuple[str, int, int, str]
"""A kind of `STEPS`, two numbers that say where, and a word."""

STEPS = ["operand"] * 6 + ["replace", "replace", "delete", "double", "swap", "insert", "bytes", "cut"]
# Words that change what a statement is.
WORDS = [
    "{", "}", "(", ")", "[", "]", ";", ",", ":", "@", "!", "|", "-", "_", ".v2", ".v4", ".pred", ".f64", ".b8", ".b128",
    ".shared", ".param", ".reg", ".local", ".func", ".entry", ".loc", ".section", ".branchtargets", ".align", "%tid.x",
    "%p1", "%r1", "%rd1", "%f1", "%nope", "0x", "0f", "0fzz", "1e400", "-1", "99999999999999999999", "4294967295",
    "bra", "brx.idx", "call", "ret", "exit", "trap", "bar.sync", "mma", "wmma", "cp.async", "ld", "st", "atom", "cvt",
    "set", "mov.b64", "setp", "shfl.sync", "elect.sync", "mbarrier.arrive", "//", "/*", "*/", '"', "\x00", "é", "\n",
]  # fmt: skip
_TOKEN = re.compile(r"[%.\w$]+|[^\w\s]|\s+")
_ODD: list[Any] = [
    None, True, "", "x", "\x00", "é" * 300, -1, 0, 1 << 31, 1 << 64, 10**400, 1e308, -0.5, math.nan, math.inf, [], {},
    [[]], {"": None}, ["x"] * 3,
]  # fmt: skip
_EDGES = (0, 1, 2, 7, 8, 16, 127, 128, 255, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1)


def one_kernel(whole: str, which: int) -> str:
    """The head of a module and one of its kernels, so that a change hits something that is decoded."""
    places = [match.start() for match in re.finditer(r"(?m)^(\.visible )?(\.entry|\.func)", whole)]
    if len(places) < 2:
        return whole
    ends = [*places[1:], len(whole)]
    i = which % len(places)
    return whole[: places[0]] + whole[places[i] : ends[i]]


def changed_text(source: str, steps: Sequence[Step]) -> str:
    """Apply the steps to the tokens of a text."""
    tokens = _TOKEN.findall(source)
    for kind, first, second, word in steps:
        if not tokens:
            break
        i, j = first % len(tokens), second % len(tokens)
        if kind == "operand":  # another register or number of the text: mostly still a program
            like = "%" if tokens[i][:1] == "%" else "0123456789"
            names = [k for k, token in enumerate(tokens) if token and token[0] in like]
            if names:
                tokens[names[first % len(names)]] = tokens[names[second % len(names)]]
        elif kind == "replace":
            tokens[i] = word if second % 2 else tokens[j]
        elif kind == "delete":
            del tokens[i : i + 1 + second % 3]
        elif kind == "double":
            tokens[i:i] = tokens[i : i + 1 + second % 8]
        elif kind == "swap":
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif kind == "insert":
            tokens.insert(i, word)
        elif kind == "bytes":
            raw = bytearray(tokens[i].encode() or b";")
            raw[second % len(raw)] ^= 1 + first % 255
            tokens[i] = raw.decode("latin-1")
        elif first % 4 == 0:
            del tokens[j:]
    return "".join(tokens)


def draw_steps(draw: random.Random) -> list[Step]:
    """One to four random steps."""
    number = draw.getrandbits
    return [(draw.choice(STEPS), number(20), number(20), draw.choice(WORDS)) for _ in range(draw.randint(1, 4))]


def changed_bytes(data: bytes, draw: random.Random) -> bytes:
    """One to eight changes anywhere: bits, bytes, numbers at the edges of their ranges, stretches, the end."""
    raw = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(raw) + 1)
        size = draw.choice((1, 2, 4, 8))
        kind = draw.randrange(6)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            raw[at : at + 1] = draw.randbytes(1)
        elif kind == 2:
            at = at // size * size
            raw[at : at + size] = (draw.choice(_EDGES) & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind == 3:
            other = draw.randrange(len(raw) + 1)
            raw[at : at + size] = raw[other : other + draw.randrange(64)]
        elif kind == 4:
            del raw[at : at + draw.randrange(64)]
        elif draw.randrange(4) == 0:
            del raw[at:]
    return bytes(raw)


def changed_json(text: str, draw: random.Random) -> str:
    """Replace one to three values of a JSON document by odd ones or delete them; at times change the text itself."""
    if draw.randrange(5) == 0:
        return changed_bytes(text.encode(), draw).decode("latin-1")
    record = json.loads(text)
    for _ in range(draw.randint(1, 3)):
        holder: Any = record
        key: Any = None
        while isinstance(holder, dict | list) and holder:
            key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
            if not isinstance(holder[key], dict | list) or not holder[key] or draw.randrange(4) == 0:
                break
            holder = holder[key]
        if key is None:
            return json.dumps(draw.choice(_ODD))
        if draw.randrange(3) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw.choice([*_ODD, record]))
    return json.dumps(record)
