"""Random kernels in CUDA C++ whose results do not depend on the order of threads."""

from __future__ import annotations

import random

import numpy as np

from fuzz.expressions import TYPES
from fuzz.statements import Scope, Writer
from fuzz.trees import Kernel, Node

INPUTS, CELLS = 256, 16  # words of 64 bits and of 32 bits
SHAPES = (
    (32, 1, 1), (64, 1, 1), (64, 1, 1), (32, 2, 1), (16, 4, 1), (96, 1, 1), (48, 1, 1), (20, 2, 1), (33, 1, 1),
    (4, 4, 4), (5, 3, 6), (160, 1, 1),
)  # fmt: skip
GIVEN = np.dtype([("a", "u1"), ("b", "i2"), ("c", "f4"), ("d", "u8"), ("e", "i4", 3)], align=True)


def kernel(seed: int, name: str) -> Kernel:
    """The kernel of a seed."""
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    writer = Writer(draw, shape[0] * shape[1] * shape[2])
    counts = {"u32": 3, "i32": 2, "u64": 2, "i64": 1, "f32": 2, "f64": draw.randint(0, 1), "f16": draw.randint(0, 1)}
    variables = [
        Node("u32 table[8]; for (u32 i = 0; i < 8; ++i) table[i] = ((const u32*)in)[t + i];", "stmt"),
        Node("i8 small[16]; for (u32 i = 0; i < 16; ++i) small[i] = ((const i8*)in)[t * 5 + i];", "stmt"),
        Node("u64 seen = 0;", "stmt"),
        Node("Mixed pair[2] = {given, turned(given, t)};", "stmt"),
    ]
    start = {
        "u32": "((const u32*)in)[(t * 3 + {n}) & 511]", "i32": "((const i32*)in)[(t * 5 + {n}) & 511]",
        "u64": "in[(t + 7 * {n}) & 255]", "i64": "(i64)in[(t * 11 + {n}) & 255]",
        "f32": "((const f32*)in)[(t * 7 + {n}) & 511]", "f64": "((const f64*)in)[(t * 3 + {n}) & 255]",
        "f16": "__ushort_as_half((u16)in[(t + {n}) & 255])",
    }  # fmt: skip
    for kind, count in counts.items():
        writer.variables[kind] = [f"{kind}_{i}" for i in range(count)]
        for name_ in writer.variables[kind]:
            variables.append(Node(f"{kind} {name_} = {start[kind].format(n=draw.randint(0, 255))};", "stmt"))
    everywhere = Scope("everyone", True)
    inner = Writer(draw, writer.threads, {"u32": ["a", "b"], "f32": ["x"]}, in_kernel=False)
    functions = [_mix(inner)]
    body = list(writer.block(everywhere, draw.randint(3, 9)).parts)
    if draw.random() < 0.3:  # some threads leave early
        early = Node("if ($0) {\n$1\nreturn;\n}", "stmt", (writer.expression("bool", everywhere), _ending(writer)))
        body += [early, writer.block(everywhere.diverged(), draw.randint(1, 3))]
    return Kernel(
        name, tuple(functions), tuple(variables), Node("", "block", tuple(body)), _ending(writer),
        draw.choice(((1, 1), (2, 1), (3, 1), (2, 2))), shape, seed,
    )  # fmt: skip


def _mix(writer: Writer) -> Node:
    """A function that is called, and perhaps not inlined."""
    scope = Scope("", False, 1, in_function=True)
    noinline = writer.draw.choice(("__noinline__ ", ""))
    parts = writer.block(scope, writer.draw.randint(2, 4)), writer.expression("u32", scope, 2)
    head = f"__device__ {noinline}u32 NAME_mix(u32 a, f32 x) {{\nu32 b = a * 5u + 1u;\n"
    return Node(head + "$0\nreturn b ^ bits(x) ^ $1;\n}", "stmt", parts)


def _ending(writer: Writer) -> Node:
    names = ["seen", *(name for kind in TYPES for name in writer.variables.get(kind, ()))]
    return Node("", "block", tuple(Node(f"mine[{i}] = bits({name});", "stmt") for i, name in enumerate(names)))


def source(kernels: list[Kernel]) -> str:
    """One file with all of them."""
    return '#include "words.cuh"\n' + "\n".join(kernel.source() for kernel in kernels)


def inputs(seed: int) -> np.ndarray:
    """256 words of 64 bits: values of every type, special ones among them."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 64, INPUTS, dtype=np.uint64, endpoint=False)
    halves = words.view(np.uint32)
    halves[:128] = rng.normal(0, 100, 128).astype(np.float32).view(np.uint32)
    words[64:112] = rng.normal(0, 1e6, 48).view(np.uint64)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-310, 5e-324, 1.7e308, 2.0**31, 2.0**63], np.float64)
    words[112:124] = special.view(np.uint64)
    with np.errstate(over="ignore"):
        halves[248:260] = special.astype(np.float32).view(np.uint32)
    words[130:170] = rng.integers(-50, 50, 40).view(np.uint64)
    return words
