"""Ten tests of Triton kernels as suites have them, on the device that the environment names (figures.py runs them)."""

import os

import pytest
import torch
import triton
import triton.language as tl

DEVICE = os.environ.get("TYPICAL_DEVICE", "cuda")


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    tl.store(out + at, tl.load(x + at, mask=keep) + tl.load(y + at, mask=keep), mask=keep)


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, 0.5 * value * (1 + tl.erf(value * 0.7071067811865476)), mask=at < n)


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    numerator = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * cols + at, numerator / tl.sum(numerator, 0), mask=at < cols)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, cols, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    keep = at < cols
    values = tl.load(x + row * cols + at, mask=keep, other=0.0)
    mean = tl.sum(values, 0) / cols
    centred = tl.where(keep, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
    made = centred * scale * tl.load(weight + at, mask=keep) + tl.load(bias + at, mask=keep)
    tl.store(out + row * cols + at, made, mask=keep)


@triton.jit
def rms_norm_kernel(x, weight, out, cols, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(values * values, 0) / cols + eps)
    tl.store(out + row * cols + at, values * scale * tl.load(weight + at, mask=at < cols), mask=at < cols)


@triton.jit
def cross_entropy_kernel(x, target, out, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    most = tl.max(values, 0)
    total = tl.log(tl.sum(tl.exp(values - most), 0)) + most
    tl.store(out + row, total - tl.load(x + row * cols + tl.load(target + row)))


@triton.jit
def sum_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


@triton.jit
def scan_kernel(x, out, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=0.0)
    tl.store(out + row * cols + at, tl.cumsum(values, 0), mask=at < cols)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (first + inner)[None, :])
        right = tl.load(b + (first + inner)[:, None] * N + cols[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + cols[None, :], total.to(tl.float16))


@triton.jit
def attention_kernel(q, k, v, out, length, scale, BLOCK: tl.constexpr, DIM: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base = tl.program_id(1) * length * DIM
    inner, dim = tl.arange(0, BLOCK), tl.arange(0, DIM)
    query = tl.load(q + base + rows[:, None] * DIM + dim[None, :])
    most = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    made = tl.zeros((BLOCK, DIM), dtype=tl.float32)
    for first in range(0, length, BLOCK):
        at = base + (first + inner)[:, None] * DIM + dim[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + at))) * scale
        new = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrunk = tl.exp(most - new)
        total = total * shrunk + tl.sum(weights, 1)
        made = tl.dot(weights.to(tl.float16), tl.load(v + at), made * shrunk[:, None])
        most = new
    tl.store(out + base + rows[:, None] * DIM + dim[None, :], (made / total[:, None]).to(tl.float16))


def randn(*size, dtype=torch.float32):
    return torch.randn(*size, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)


def test_add():
    x, y = randn(98432), randn(98432)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(98432, 1024),)](x, y, out, 98432, BLOCK=1024)
    torch.testing.assert_close(out, x + y)


def test_gelu():
    x = randn(65536)
    out = torch.empty_like(x)
    gelu_kernel[(64,)](x, out, 65536, BLOCK=1024)
    torch.testing.assert_close(out, torch.nn.functional.gelu(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "scan"])
def test_rows(name):
    x = randn(256, 781)
    out = torch.empty_like(x)
    kernel, expected = {
        "softmax": (softmax_kernel, torch.softmax(x, 1)),
        "scan": (scan_kernel, torch.cumsum(x, 1)),
    }[name]
    kernel[(256,)](x, out, 781, BLOCK=1024)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_layer_norm():
    x, weight, bias = randn(256, 512), randn(512), randn(512)
    out = torch.empty_like(x)
    layer_norm_kernel[(256,)](x, weight, bias, out, 512, 1e-5, BLOCK=512)
    torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, (512,), weight, bias), rtol=1e-4, atol=1e-4)


def test_rms_norm():
    x, weight = randn(256, 512), randn(512)
    out = torch.empty_like(x)
    rms_norm_kernel[(256,)](x, weight, out, 512, 1e-5, BLOCK=512)
    torch.testing.assert_close(out, torch.nn.functional.rms_norm(x, (512,), weight, 1e-5), rtol=1e-4, atol=1e-4)


def test_cross_entropy():
    x = randn(128, 1000)
    target = torch.arange(128, device=DEVICE) * 7
    out = torch.empty(128, device=DEVICE)
    cross_entropy_kernel[(128,)](x, target, out, 1000, BLOCK=1024)
    expected = torch.nn.functional.cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_sum():
    x = randn(100_000)
    out = torch.zeros(1, device=DEVICE)
    sum_kernel[(98,)](x, out, 100_000, BLOCK=1024)
    torch.testing.assert_close(out[0], x.sum(), rtol=1e-3, atol=1e-2)


def test_matmul():
    a, b = (randn(256, 256, dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(a)
    matmul_kernel[(4, 4)](a, b, out, 256, 256, 256, BM=64, BN=64, BK=32)
    torch.testing.assert_close(out, (a.float() @ b.float()).half(), rtol=1e-2, atol=5e-2)


def test_attention():
    q, k, v = (randn(4, 128, 64, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    attention_kernel[(2, 4)](q, k, v, out, 128, 0.125, BLOCK=64, DIM=64)
    expected = torch.softmax(q.float() @ k.float().transpose(1, 2) * 0.125, -1) @ v.float()
    torch.testing.assert_close(out, expected.half(), rtol=1e-2, atol=2e-2)
