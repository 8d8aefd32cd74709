"""Micro kernels around a few PTX instructions, and exact arithmetic to judge them by."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from workbench import ptx
from workbench.analysis.exact.elements import MODULUS, elements
from workbench.toolchain import compile_cuda_module

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGISTERS = {
    "pred": "p", "b16": "h", "s16": "h", "u16": "h", "f16": "h", "bf16": "h", "s8": "h", "u8": "h", "b8": "h",
    "b32": "r", "s32": "r", "u32": "r", "f32": "r", "f16x2": "r", "bf16x2": "r", "tf32": "r",
    "b64": "d", "f32x2": "d", "s64": "d", "u64": "d", "f64": "d", "e4m3x2": "h", "e5m2x2": "h",
    "e2m3x2": "h", "e3m2x2": "h", "e2m1x2": "y", "ue8m0x2": "h", "s2f6x2": "h", "e4m3x4": "r", "e5m2x4": "r",
    "e2m3x4": "r", "e3m2x4": "r", "e2m1x4": "h",
}  # fmt: skip
BITS = {"p": 32, "y": 8, "h": 16, "r": 32, "d": 64}
_ARRAYS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def right_and_faulty(source: Path) -> dict[bool, str]:
    """The PTX of a CUDA file: with FAULT (True), and without."""

    def text(macros: dict[str, int]) -> str:
        return next(iter(compile_cuda_module(source, arch="sm_80", macros=macros).kernels.values())).ptx

    return {fault: text({"FAULT": 1} if fault else {}) for fault in (False, True)}


def module(name: str, parameters: str, body: str) -> str:
    """A PTX module with one kernel and registers of every width (%p, %y, %h, %r, %d; 64 each, %y of 8 bits)."""
    registers = ".reg .pred %p<64>; .reg .b8 %y<64>; .reg .b16 %h<64>; .reg .b32 %r<64>; .reg .b64 %d<64>;"
    return f"{HEADER}.visible .entry {name}({parameters})\n{{\n{registers}\n{body}\nret;\n}}\n"


def lane_kernel(instruction: str, destinations: Sequence[str], sources: Sequence[str]) -> str:
    """A kernel in which thread t runs ``instruction`` on element t of its operands.

    ``{d0}``, ``{s0}`` and so on stand for the operands. Predicates travel as 32-bit words, 0 or 1.
    """
    names = [f"p{i}" for i in range(len(destinations) + len(sources))]
    body = [
        "mov.u32 %r60, %tid.x;",
        "mov.u32 %r61, %ctaid.x;",
        "mov.u32 %r62, %ntid.x;",
        "mad.lo.u32 %r60, %r61, %r62, %r60;",
    ]
    operands, used = {}, dict.fromkeys("pyhrd", 0)

    def take(kind: str) -> str:
        prefix = REGISTERS[kind]
        used[prefix] += 1
        return f"%{prefix}{used[prefix]}"

    for i, kind in enumerate(sources):
        register, bits = take(kind), BITS[REGISTERS[kind]]
        body += [f"ld.param.u64 %d60, [p{len(destinations) + i}];", f"mad.wide.u32 %d61, %r60, {bits // 8}, %d60;"]
        if kind == "pred":
            body += ["ld.global.u32 %r59, [%d61];", f"setp.ne.u32 {register}, %r59, 0;"]
        else:
            body += [f"ld.global.b{bits} {register}, [%d61];"]
        operands[f"s{i}"] = register
    for i, kind in enumerate(destinations):
        operands[f"d{i}"] = take(kind)
    body += [instruction.format(**operands)]
    for i, kind in enumerate(destinations):
        register, bits = operands[f"d{i}"], BITS[REGISTERS[kind]]
        body += [f"ld.param.u64 %d60, [p{i}];", f"mad.wide.u32 %d61, %r60, {bits // 8}, %d60;"]
        if kind == "pred":
            body += [f"selp.u32 %r59, 1, 0, {register};", "st.global.u32 [%d61], %r59;"]
        else:
            body += [f"st.global.b{bits} [%d61], {register};"]
    return module("micro", ", ".join(f".param .u64 {name}" for name in names), "\n".join(body))


def run_lanes(
    instruction: str, destinations: Sequence[str], sources: Sequence[str], inputs: Sequence[np.ndarray],
    **options: object,
) -> list[np.ndarray]:  # fmt: skip
    """Results (unsigned bit patterns) of one instruction over arrays of bit patterns."""
    count = len(inputs[0])
    padded = (count + 31) // 32 * 32
    program = ptx.Program(lane_kernel(instruction, destinations, sources))
    arrays = []
    for kind, values in zip(sources, inputs, strict=True):
        array = np.zeros(padded, _ARRAYS[BITS[REGISTERS[kind]]])
        array[:count] = values
        arrays.append(array)
    results = [np.full(padded, 0x5A, _ARRAYS[BITS[REGISTERS[kind]]]) for kind in destinations]
    program["micro"].launch(padded // 32, 32, [*results, *arrays], threads=1, **options)
    return [result[:count] for result in results]


def opcodes_of(text: str) -> set[str]:
    """Names of the table that a module's kernels use."""
    program = ptx.Program(text)
    return {i.opcode.name for name in program for i in program[name].decoded.code}


# ---- exact floating point ----


def is_product_on_elements(found: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> bool:
    """Compare floats of a launch on elements of a ring with a b^T + c, of numbers that are whole times 2^-30."""

    def residues(numbers: np.ndarray) -> np.ndarray:
        whole = np.asarray(numbers * 2.0**30).astype(np.float64).astype(np.int64)
        return whole % MODULUS * pow(2**30, -1, MODULUS) % MODULUS

    expected = (residues(a) @ residues(b).T + residues(c)) % MODULUS
    return bool((elements(torch.from_numpy(found)).numpy() == expected).all())


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


@functools.lru_cache(maxsize=1 << 18)
def decode_float(bits: int, kind: str) -> Fraction | float:
    """The exact value of a bit pattern: a Fraction, or a float for infinities and NaN (signed zeros become 0)."""
    precision, lowest, highest = FORMATS[kind]
    width = WIDTHS[kind]
    mantissa_bits = precision - 1
    sign = -1 if bits >> (width - 1) & 1 else 1
    exponent = bits >> mantissa_bits & ((1 << (width - precision)) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if exponent == (1 << (width - precision)) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return _scaled(sign * mantissa, lowest - mantissa_bits)
    return _scaled(sign * (mantissa | 1 << mantissa_bits), exponent - highest - mantissa_bits)


def _scaled(whole: int, power: int) -> Fraction:
    return Fraction(whole << power) if power >= 0 else Fraction(whole, 1 << -power)


def round_float(value: Fraction, kind: str, mode: str = "rn", zero_sign: int = 0) -> int:
    """The bit pattern nearest to an exact value; ``mode`` rn (ties to even), rz, rm or rp."""
    precision, lowest, highest = FORMATS[kind]
    width, mantissa_bits = WIDTHS[kind], precision - 1
    if value == 0:
        return zero_sign << (width - 1)
    sign = int(value < 0)
    above, below = abs(value.numerator), value.denominator
    exponent = above.bit_length() - below.bit_length()
    if below << max(exponent, 0) > above << max(-exponent, 0):
        exponent -= 1
    exponent = max(exponent, lowest)
    step = exponent - mantissa_bits  # the power of two of the last bit
    below <<= max(step, 0)
    whole, rest = divmod(above << max(-step, 0), below)
    up = {
        "rn": 2 * rest > below or (2 * rest == below and whole & 1),
        "rz": False,
        "rm": sign and rest,
        "rp": not sign and rest,
    }[mode]
    whole += bool(up)
    if whole >> precision:
        whole, exponent = whole >> 1, exponent + 1
    if exponent > highest:
        towards_zero = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        infinity = ((1 << (width - precision)) - 1) << mantissa_bits
        return sign << (width - 1) | (infinity - 1 if towards_zero else infinity)
    biased = exponent + highest if whole >> mantissa_bits else 0
    return sign << (width - 1) | biased << mantissa_bits | (whole & ((1 << mantissa_bits) - 1))


EDGES = {
    "f32": [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x7F7FFFFF,
            0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x4B000001, 0x4F000000, 0xCF000000, 0x4EFFFFFF,
            0x5F000000, 0x3F000000, 0xBF000000, 0x3FC00000, 0xBFC00000, 0x40200000, 0xC0200000, 0x33800000, 0x387FC000],
    "f16": [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
            0xFE01, 0x3800, 0xB800, 0x3E00, 0xBE00, 0x4100, 0x6400, 0x6401, 0x13FF, 0x1400],
    "bf16": [0, 0x8000, 1, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x3F81, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0,
             0xFFC1,  0x3F00, 0xBF00, 0x3FC0, 0xBFC0, 0x4020, 0x4B00],
    "f64": [0, 1 << 63, 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
            0xFFF0000000000000, 0x7FF8000000000000, 0x000FFFFFFFFFFFFF, 0x3FE0000000000000, 0x3FF8000000000000,
            0x41DFFFFFFFC00000, 0x41E0000000000000, 0xC1E0000000000000, 0x43E0000000000000, 0x47EFFFFFF0000000,
            0x36A0000000000000, 0x3FF0000010000000, 0x3FF0000030000000],
}  # fmt: skip


@functools.cache
def patterns(kind: str, count: int, seed: int) -> list[int]:
    """Edge values of a type followed by random bit patterns, and for floats by values of moderate size."""
    rng = np.random.default_rng(seed)
    if kind in EDGES:
        width = WIDTHS[kind]
        edges = list(EDGES[kind])
        wild = [int(x) for x in rng.integers(0, 1 << min(width, 63), count // 2, dtype=np.uint64)]
        mild = [round_float(Fraction(float(x)), kind) for x in rng.normal(0, 4, count - count // 2)]
        return edges + wild + mild
    if kind in ("f16x2", "bf16x2", "f32x2"):
        low, high = patterns(kind[:-2], count, seed), patterns(kind[:-2], count, seed + 1)
        high = [high[i] for i in rng.permutation(len(high))]
        return [h << WIDTHS[kind[:-2]] | x for x, h in zip(low, high, strict=True)]
    if kind == "pred":
        return [int(x) for x in rng.integers(0, 2, count)]
    if kind in ("e2m3x2", "e3m2x2"):  # every code once
        return [code << 8 | 63 - code for code in range(64)]
    if kind in ("e4m3x2", "e5m2x2", "ue8m0x2", "s2f6x2"):
        return [code << 8 | 255 - code for code in range(256)]
    if kind == "e2m1x2":
        return list(range(256))
    width = int(kind[1:])
    top = 1 << (width - 1)
    edges = [0, 1, 2, 3, 7, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 31, 32, 33, 63, 64, 65, 255, 256]
    edges = [value % (2 * top) for value in edges]
    wild = [int(x) & (2 * top - 1) for x in rng.integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(3)]
    small = [int(x) & (2 * top - 1) for x in rng.integers(-40, 40, count)]
    return edges + wild + small


@functools.cache
def operand_sets(kinds: tuple[str, ...], count: int = 60, cap: int = 600) -> list[list[int]]:
    """Values for each operand: every pair of edges meets, up to ``cap`` tuples, then random tuples."""
    rng = np.random.default_rng(len(kinds))
    pools = [patterns(kind, count, 10 + i) for i, kind in enumerate(kinds)]
    if len(kinds) == 1:
        return pools
    rows = [(a, b) for a in pools[0][:22] for b in pools[1][:22]]
    full = [list(column) for column in zip(*rows, strict=True)]
    for pool in pools[2:]:
        full.append([pool[i] for i in rng.integers(0, len(pool), len(rows))])
    extra = max(cap - len(rows), 0)
    return [
        column + [pool[i] for i in rng.integers(0, len(pool), extra)] for column, pool in zip(full, pools, strict=True)
    ]


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def as_array(values: Sequence[int], kind: str) -> np.ndarray:
    return np.array(values, np.uint64).astype(_ARRAYS[BITS[REGISTERS[kind]]])
