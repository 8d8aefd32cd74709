"""Times of 23 Triton launches and 4 functions that torch.compile writes: measured on a GPU, predicted without one.

    python benchmarks/triton_kernels.py > times.jsonl
    workbench run --model h100-sxm --exact-name benchmarks/triton_kernels.py > times.jsonl

Each line has a name and `us`, the microseconds that `triton.testing.do_bench` returns. docs/GPUS.md has the times of an
H100 and an H200.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

GENERATOR = torch.Generator().manual_seed(0)

Launch = tuple[str, Callable[[], object]]
"""The name of a launch, and the call that launches it. The kernel compiles at the first call."""


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add two vectors of n elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < n
    tl.store(out + at, tl.load(x + at, there) + tl.load(y + at, there), there)


@triton.jit
def softmax(x, out, cols, BLOCK: tl.constexpr):
    """Compute the softmax of a row."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    there = at < cols
    values = tl.load(x + row * cols + at, there, -float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * cols + at, powers / tl.sum(powers, 0), there)


@triton.jit
def layer_norm(x, weight, bias, out, cols, BLOCK: tl.constexpr):
    """Normalize a row to mean 0 and variance 1, then scale and shift it."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    there = at < cols
    values = tl.load(x + row * cols + at, there, 0.0).to(tl.float32)
    centred = tl.where(there, values - tl.sum(values, 0) / cols, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / cols + 1e-5)
    tl.store(out + row * cols + at, centred * scale * tl.load(weight + at, there) + tl.load(bias + at, there), there)


@triton.jit
def transpose(x, out, n, BLOCK: tl.constexpr):
    """Transpose a tile of an n x n matrix."""
    row, column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + row[:, None] * n + column[None, :])
    tl.store(out + column[:, None] * n + row[None, :], tl.trans(tile))


@triton.jit
def transpose_uncoalesced(x, out, n, BLOCK: tl.constexpr):
    """Transpose an n x n matrix with loads that are n elements apart."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + (at % n) * n + at // n))


@triton.jit
def matmul(a, b, c, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Compute a tile of the product of two n x n matrices."""
    row, column = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    of_a, of_b = a + row[:, None] * n + k[None, :], b + k[:, None] * n + column[None, :]
    for _ in range(0, n, BLOCK_K):
        sums = tl.dot(tl.load(of_a), tl.load(of_b), sums)
        of_a += BLOCK_K
        of_b += BLOCK_K * n
    tl.store(c + row[:, None] * n + column[None, :], sums.to(c.dtype.element_ty))


@triton.jit
def histogram(x, out, BLOCK: tl.constexpr):
    """Count values with an atomic addition each."""
    tl.atomic_add(out + tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 1)


@triton.jit
def attention(q, k, v, out, tokens, scale, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Compute causal attention of BLOCK_M queries of one head, with an online softmax."""
    base, row, d = (
        tl.program_id(1) * tokens * HEAD,
        tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M),
        tl.arange(0, HEAD),
    )
    query = tl.load(q + base + row[:, None] * HEAD + d[None, :])
    most = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total, sums = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, HEAD), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BLOCK_M, BLOCK_N):
        token = start + tl.arange(0, BLOCK_N)
        key = tl.load(k + base + token[None, :] * HEAD + d[:, None])
        value = tl.load(v + base + token[:, None] * HEAD + d[None, :])
        score = tl.where(row[:, None] >= token[None, :], tl.dot(query, key) * scale, -float("inf"))
        higher = tl.maximum(most, tl.max(score, 1))
        weight, rescale = tl.exp(score - higher[:, None]), tl.exp(most - higher)
        total = total * rescale + tl.sum(weight, 1)
        sums = tl.dot(weight.to(value.dtype), value, sums * rescale[:, None])
        most = higher
    tl.store(out + base + row[:, None] * HEAD + d[None, :], (sums / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def sines(x, out, steps, BLOCK: tl.constexpr):
    """Apply a chain of sines to each element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    for _ in range(steps):
        value = tl.sin(value) * 0.9 + 0.1
    tl.store(out + at, value)


@triton.jit
def gather_rows(table, rows, out, cols, BLOCK: tl.constexpr):
    """Copy a row of a table, selected by an index."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * cols + at, tl.load(table + tl.load(rows + row) * cols + at))


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Draw numbers from 0 to 1."""
    return torch.rand(shape, generator=GENERATOR).to(dtype).cuda()


def integers(most: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Draw whole numbers below ``most``."""
    return torch.randint(0, most, (count,), generator=GENERATOR, dtype=dtype).cuda()


def rowwise() -> Iterator[Launch]:
    """Yield additions, softmaxes and layer norms."""
    for power, block, warps in ((20, 1024, 4), (22, 1024, 4), (22, 128, 4), (22, 4096, 8)):
        n = 1 << power
        x, y, out = random(n), random(n), torch.empty(n, device="cuda")
        yield f"add 2^{power} B{block}", partial(add[(n // block,)], x, y, out, n, BLOCK=block, num_warps=warps)
    for rows, cols, warps in ((2048, 1000, 4), (512, 4096, 4), (512, 4096, 16)):
        x, out, block = random(rows, cols), torch.empty(rows, cols, device="cuda"), triton.next_power_of_2(cols)
        yield f"softmax {rows}x{cols} w{warps}", partial(softmax[(rows,)], x, out, cols, BLOCK=block, num_warps=warps)
    for rows, cols in ((1024, 1024), (1024, 2000)):
        x, weight, bias = random(rows, cols, dtype=torch.float16), random(cols), random(cols)
        out, block = torch.empty_like(x), triton.next_power_of_2(cols)
        yield f"layer_norm {rows}x{cols} fp16", partial(layer_norm[(rows,)], x, weight, bias, out, cols, BLOCK=block)


def moves() -> Iterator[Launch]:
    """Yield transpositions and a gather of rows."""
    n = 1024
    x, out = random(n, n), torch.empty(n, n, device="cuda")
    for block in (32, 64):
        yield f"transpose {n} B{block}", partial(transpose[(n // block, n // block)], x, out, n, BLOCK=block)
    yield f"transpose_uncoalesced {n}", partial(transpose_uncoalesced[(n * n // 1024,)], x, out, n, BLOCK=1024)
    table, rows, out = random(32000, 512), integers(32000, 4096, torch.int64), torch.empty(4096, 512, device="cuda")
    yield "gather 4096 rows of 512", partial(gather_rows[(4096,)], table, rows, out, 512, BLOCK=512)


def products() -> Iterator[Launch]:
    """Yield matrix products and attention."""
    for n, (m, k, cols), warps, dtype in (
        (512, (64, 32, 64), 4, torch.float16),
        (1024, (128, 32, 128), 8, torch.float16),
        (1024, (128, 64, 128), 4, torch.bfloat16),
        (512, (64, 32, 64), 4, torch.float32),
    ):
        a, b, c = (random(n, n, dtype=dtype) for _ in range(3))
        blocks = {"BLOCK_M": m, "BLOCK_N": cols, "BLOCK_K": k, "num_warps": warps}
        name = f"matmul {n} {m}x{cols}x{k} w{warps} {str(dtype).removeprefix('torch.')}"
        yield name, partial(matmul[(n // m, n // cols)], a, b, c, n, **blocks)
    for heads, tokens, head in ((8, 512, 64), (8, 1024, 64), (16, 1024, 128)):
        q, k, v, out = (random(heads, tokens, head, dtype=torch.float16) for _ in range(4))
        grid, blocks = (tokens // 64, heads), {"HEAD": head, "BLOCK_M": 64, "BLOCK_N": 64}
        yield f"attention {heads}x{tokens}x{head}", partial(attention[grid], q, k, v, out, tokens, head**-0.5, **blocks)


def others() -> Iterator[Launch]:
    """Yield histograms and a chain of sines."""
    for bins in (16, 65536):
        x, out = integers(bins, 1 << 19, torch.int32), torch.zeros(bins, dtype=torch.int32, device="cuda")
        yield f"histogram 2^19 {bins} bins", partial(histogram[(512,)], x, out, BLOCK=1024)
    x, out = random(1 << 18), torch.empty(1 << 18, device="cuda")
    yield "chain of 32 sines 2^18", partial(sines[(1024,)], x, out, 32, BLOCK=256)


def written_by_compile() -> Iterator[Launch]:
    """Yield functions whose kernels torch.compile writes."""
    x, y, first = random(1024, 2048), random(1024, 2048), torch.zeros(1024, dtype=torch.long, device="cuda")
    functions = {
        "gelu(x)+y": lambda: torch.nn.functional.gelu(x) + y,
        "sum": lambda: (x * y).sum(),
        "rms_norm": lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        "cross_entropy": lambda: torch.nn.functional.cross_entropy(x, first),
    }
    for name, function in functions.items():
        yield f"inductor {name}", torch.compile(function, dynamic=False)


def launches() -> Iterator[Launch]:
    """Yield the launches of this module's kernels, always with the same inputs."""
    GENERATOR.manual_seed(0)
    for group in (rowwise, moves, products, others):
        yield from group()


def main() -> None:
    """Print the time of each call, after a first one, as a JSON line."""
    for name, call in chain(launches(), written_by_compile()):
        call()
        torch.cuda.synchronize()
        print(json.dumps({"name": name, "us": round(do_bench(call, return_mode="median") * 1e3, 3)}), flush=True)


if __name__ == "__main__":
    main()
