"""Five kernels in Triton. `total` without atomics has a race, and `scale` without a mask writes past the end."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def _softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def _matmul(a, b, out, m, n, k, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * k + inner, mask=(rows[:, None] < m) & (inner < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + columns, mask=(inner[:, None] < k) & (columns < n), other=0.0)
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * n + columns, total, mask=(rows[:, None] < m) & (columns < n))


@triton.jit
def _total(x, out, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0)
    if ATOMIC:
        tl.atomic_add(out, part)
    else:
        tl.store(out, tl.load(out) + part)  # RACE


@triton.jit
def _scale(x, out, n, factor, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
    else:
        tl.store(out + at, tl.load(x + at, mask=at < n) * factor)  # OUT OF BOUNDS


def add(x, y):
    out = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


def softmax(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, device=a.device)
    _matmul[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, out, m, n, k, BLOCK=32)
    return out


def total(x, atomic=True):
    out = torch.zeros(1, device=x.device)
    _total[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128, ATOMIC=atomic)
    return out


def scale(x, factor, masked=True):
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), factor, BLOCK=128, MASKED=masked)
    return out
