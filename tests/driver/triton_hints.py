"""Kernels with a mistake that no access shows, and their corrected twins."""

import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=1) for block in (64, 256)]


def double_in_place(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def add_to(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(x + at, 1.0, mask=at < n)


def doubled_rows(y, x, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row * n + at, tl.load(x + row * n + at, mask=at < n, other=0.0) * 2, mask=at < n)


def through_scratch(y, scratch, x, n, BLOCK: tl.constexpr):
    """Each configuration leaves another scratch, and the same result."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch + at, BLOCK * tl.load(x + at, mask=at < n), mask=at < n)
    tl.store(y + at, tl.load(scratch + at, mask=at < n) / BLOCK, mask=at < n)


def tuned(function, key, **options):
    """An autotuner of two configurations over one of these."""
    return triton.autotune(CONFIGS, key=key, **options)(triton.jit(function))


def plain(y, x):
    at = tl.arange(0, 64)
    tl.store(y + at, tl.load(x + at))


def strided(y, x, step):
    at = tl.arange(0, 64)
    tl.store(y + at, tl.load(x + at * step))


def row_max(out, x, n, FILL: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, 128)
    if FILL:
        values = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    else:
        values = tl.load(x + row * n + at, mask=at < n)
    tl.store(out + row, tl.max(values, 0))


def masked_copy(out, x, n, FILL: tl.constexpr):
    """Masked lanes hold anything, and are stored nowhere."""
    at = tl.arange(0, 128)
    bias = tl.load(x + at, mask=at < n, other=0.0) if FILL else tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2 + bias, mask=at < n)


def gathered(out, x, n, FILL: tl.constexpr):
    """The masked lanes' numbers are places."""
    at = tl.arange(0, 128)
    place = tl.load(x + at, mask=at < n, other=0) if FILL else tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.load(x + place.to(tl.int32)), mask=at < n)
