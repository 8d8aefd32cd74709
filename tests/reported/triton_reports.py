"""Triton programs after public reports and tests of public suites, rebuilt small.

Each takes a form, of which 0 is right, runs its kernels, and returns what they computed and what is right.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

Results = tuple[list, list]


def scaled_rows(y, x, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row * n + at, tl.load(x + row * n + at, mask=at < n) * 2, mask=at < n)


def trials_in_place(form: int) -> Results:
    """1: trials of the tuner scale the tensor that the kernel reads, and nothing restores it.

    https://github.com/triton-lang/triton/issues/6547, https://github.com/triton-lang/triton/issues/4544
    """
    restored = {} if form else {"restore_value": ["x"]}
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (64, 128)]
    kernel = triton.autotune(configs, key=["n"], **restored)(triton.jit(scaled_rows))
    x = torch.ones(1, 64)
    kernel[(1,)](x, x, 64)
    return x.unique().tolist(), [2]


def key_without_size(form: int) -> Results:
    """1: configurations that are right for some sizes only, and a key without the size.

    https://github.com/triton-lang/triton/issues/9230, https://github.com/pytorch/pytorch/pull/186886
    """
    large = {"early_config_prune": lambda configs, given, **_: [c for c in configs if c.kwargs["BLOCK"] >= given["n"]]}
    options = {"key": []} if form else {"key": ["n"], "prune_configs_by": large}
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (64, 256)]
    kernel = triton.autotune(configs, **options)(triton.jit(scaled_rows))
    results = [torch.zeros(2, n) for n in (64, 200)]
    for y in results:
        kernel[(2,)](y, torch.ones_like(y), y.shape[1])
    return [int((y == 2).sum()) for y in results], [128, 400]


@triton.jit
def largest(out, x, n, FILLED: tl.constexpr):
    at = tl.arange(0, 128)
    lowest = float("-inf")
    values = tl.load(x + at, mask=at < n, other=lowest) if FILLED else tl.load(x + at, mask=at < n)
    tl.store(out, tl.max(values, 0))


def masked_maximum(form: int) -> Results:
    """1: masked lanes hold 0, which wins over negative numbers, 2: which wins over none of these.

    https://github.com/triton-lang/triton/issues/9917, https://github.com/vllm-project/vllm/pull/9014,
    https://github.com/flagos-ai/FlagGems/issues/3716
    """
    x, out = torch.arange(100.0) - (150 if form < 2 else 50), torch.zeros(1)
    largest[(1,)](out, x, 100, FILLED=form == 0)
    return out.tolist(), [x.max().item()]


@triton.jit
def tanh_in_place(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, libdevice.tanh(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def normalise_in_place(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, values / tl.sum(values), mask=at < n)


def short_rows(form: int) -> Results:
    """Rows in place, shorter than the block has threads: with a branch inside, and with a reduction. Both right."""
    x, y = torch.ones(8), torch.ones(8)
    tanh_in_place[(1,)](x, 8, BLOCK=8)
    normalise_in_place[(1,)](y, 8, BLOCK=8)
    return [round(one, 6) for one in (*x.unique().tolist(), *y.unique().tolist())], [0.761594, 0.125]


@triton.jit
def clip(x):
    if tl.load(x) > 42:
        tl.store(x, 42)


def scalar_branch(form: int) -> Results:
    """All lanes read a scalar and compare; the first one writes in the branch. Right."""
    x = torch.tensor([100], dtype=torch.int32)
    clip[(1,)](x, num_warps=1)
    return x.tolist(), [42]


@triton.jit
def put_back(x, MORE: tl.constexpr):
    tl.store(x, tl.load(x) + MORE)  # same_value_of_blocks: store


def same_value_of_blocks(form: int) -> Results:
    """Programs load one place and store what was there, which leaves the bytes as they are; 1: and one more."""
    x = torch.zeros(1)
    put_back[(2,)](x, form)
    return x.tolist(), [2 * form]


@triton.jit
def count_programs(total, seen, PLAIN: tl.constexpr):
    tl.atomic_add(total, 1)  # count_of_programs: add
    now = tl.load(total) if PLAIN else tl.atomic_add(total, 0)  # count_of_programs: load
    tl.store(seen + tl.program_id(0), now > tl.program_id(0))


def count_of_programs(form: int) -> Results:
    """Programs count themselves and ask how many there are. 1: by a plain load, beside the others' atomics.

    https://github.com/flashinfer-ai/flashinfer/issues/4126, https://github.com/vllm-project/vllm/pull/41444
    """
    total, seen = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    count_programs[(4,)](total, seen, form)
    return total.tolist(), [4]


@triton.jit
def unpack(out, x):
    a, b, c, d = tl.inline_asm_elementwise(
        "{ .reg .b8 t<4>; mov.b32 {t0, t1, t2, t3}, $4; cvt.u32.u8 $0, t0; cvt.u32.u8 $1, t1;"
        " cvt.u32.u8 $2, t2; cvt.u32.u8 $3, t3; }",
        "=r,=r,=r,=r,r", [tl.load(x)], dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
    )  # fmt: skip
    tl.store(out, a + 256 * (b + 256 * (c + 256 * d)))
    tl.store(out + 1, a + b + c + d)


def bytes_by_inline_asm(form: int) -> Results:
    """Inline assembly takes a register apart into four of eight bits. Right."""
    out = torch.zeros(2, dtype=torch.int32)
    unpack[(1,)](out, torch.tensor([0x04030201], dtype=torch.int32))
    return out.tolist(), [0x04030201, 10]


@triton.jit
def reduce_bulk(largest, smallest, x):
    at = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    values = tl.load(x + at)
    tl.make_tensor_descriptor(largest, shape=[2, 4], strides=[4, 1], block_shape=[2, 4]).atomic_max([0, 0], values)
    tl.make_tensor_descriptor(smallest, shape=[2, 4], strides=[4, 1], block_shape=[2, 4]).atomic_min([0, 0], values)


def signed_reductions(form: int) -> Results:
    """Bulk reductions of signed numbers. Right."""
    x = torch.tensor([-1, -2, 7, 3, 5, 5, 5, 5], dtype=torch.int32)
    results = [torch.full((8,), 5, dtype=torch.int32) for _ in range(2)]
    reduce_bulk[(1,)](*results, x)
    five = torch.full_like(x, 5)
    return [one.tolist() for one in results], [torch.maximum(x, five).tolist(), torch.minimum(x, five).tolist()]


@triton.jit
def add_twice(x, M: tl.constexpr, N: tl.constexpr):
    described = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[M, N])
    described.store([0, 0], described.load([0, 0]) + 10)  # stored_then_loaded: store
    described.store([0, 0], described.load([0, 0]) + 5)  # stored_then_loaded: load


def stored_then_loaded(form: int) -> Results:
    """A descriptor's store, then a load of the same place, between which Triton waits for the source only."""
    x = torch.zeros(8, 32)
    add_twice[(1,)](x, M=8, N=32)
    return x.unique().tolist(), [15]


@triton.jit
def double(y, x, WAITS: tl.constexpr):
    at = tl.arange(0, 64)
    if WAITS:
        gdc_wait()
    tl.store(y + at, 2 * tl.load(x + at))  # dependent_launches: load
    gdc_launch_dependents()


def dependent_launches(form: int) -> Results:
    """A second launch may begin before the first has ended; 1: and does not wait for it.

    https://github.com/NVIDIA/cutlass/issues/2760
    """
    x, y, z = torch.ones(64), torch.zeros(64), torch.zeros(64)
    double[(1,)](y, x, WAITS=True)
    double[(1,)](z, y, WAITS=form == 0, launch_pdl=True)
    return z.unique().tolist(), [4]
