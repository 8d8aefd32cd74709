"""Checked runs with and without a proof, beside bare ones: ``python -m benchmarks.proved_checks``.

First checks of one launch, then `check_kernel`, which runs a kernel in two orders, and in one where all is proved and
no lane sees another's registers; at last on a sample of the blocks. The kernels are those whose checks are mostly
bounds and races: a transpose and a tiled product in CUDA C++, a softmax and a product in Triton. All figures come from
one run on one core, in CPU seconds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import torch

from benchmarks.triton_programs import matmul_kernel, softmax_kernel
from workbench import ptx
from workbench.base.terminal import say
from workbench.errors import WrongResultError
from workbench.launch import check_kernel
from workbench.proof import Proof
from workbench.proof.family import Family
from workbench.proof.proving import prove_family
from workbench.toolchain import CompiledKernel, compile_cuda, compile_triton
from workbench.tuning.bench.results import in_turn

BARE = "bare"
PROVED, WHOLE, SAMPLED = "checks, proved", "check_kernel, proved", "check_kernel, proved, sample"
MODES = (BARE, "checks", PROVED, "check_kernel", WHOLE, SAMPLED)
SAMPLE = 16
"""Blocks of a sample, without the grid's corners."""
SOURCE = """
extern "C" __global__ void transpose(float* out, const float* x, int rows, int cols) {
  __shared__ float tile[32][33];
  int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  r = blockIdx.x * 32 + threadIdx.y, c = blockIdx.y * 32 + threadIdx.x;
  if (r < cols && c < rows) out[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void product(float* c, const float* a, const float* b, int m, int n, int k) {
  __shared__ float as[16][16], bs[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < k; t += 16) {
    as[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < k ? a[row * k + t + threadIdx.x] : 0.f;
    bs[threadIdx.y][threadIdx.x] = t + threadIdx.y < k && col < n ? b[(t + threadIdx.y) * n + col] : 0.f;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
"""


@dataclass(frozen=True)
class CheckedKernel:
    """A kernel with one launch, the family of launches that is proved, and a function that computes the result."""

    name: str
    compiled: CompiledKernel
    family: dict[str, Any]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: list[Any]
    output: torch.Tensor
    expected: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Measured:
    """CPU seconds of one kernel by mode, and its proof."""

    name: str
    seconds: dict[str, float]
    proof: Proof

    def ratio(self, mode: str) -> float:
        """Return the time of a mode beside that of a bare run."""
        return self.seconds[mode] / self.seconds[BARE]


def kernels(scale: int = 4) -> Iterator[CheckedKernel]:
    """Yield the kernels, on matrices of 128 times ``scale`` rows."""
    torch.manual_seed(0)
    rows = 128 * scale
    x, out = torch.rand(rows, rows), torch.empty(rows, rows)
    yield CheckedKernel(
        "transpose, CUDA", compile_cuda(SOURCE, "transpose", arch="sm_80"),
        {"grid": ("cdiv(cols, 32)", "cdiv(rows, 32)"), "block": (32, 32),
         "args": {"out": "float32[cols, rows]", "x": "float32[rows, cols]"}},
        (rows // 32, rows // 32), (32, 32), [out, x, rows, rows], out, lambda: x.T,
    )  # fmt: skip
    size = 32 * scale
    a, b, c = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    yield CheckedKernel(
        "tiled product, CUDA", compile_cuda(SOURCE, "product", arch="sm_80"),
        {"grid": ("cdiv(n, 16)", "cdiv(m, 16)"), "block": (16, 16),
         "args": {"c": "float32[m, n]", "a": "float32[m, k]", "b": "float32[k, n]"}},
        (size // 16, size // 16), (16, 16), [c, a, b, *[size] * 3], c, lambda: a @ b,
    )  # fmt: skip
    y, soft = torch.rand(rows, 781), torch.empty(rows, 781)
    softmax = compile_triton(
        softmax_kernel, {"out": "*fp32", "x": "*fp32", "cols": "i32"}, {"BLOCK": 1024}, arch="sm_80"
    )
    yield CheckedKernel(
        "softmax, Triton", softmax,
        {"grid": "rows", "args": {"out": "float32[rows, cols]", "x": "float32[rows, cols]"}},
        (rows,), (128,), [soft, y, 781], soft, lambda: torch.softmax(y, 1),
    )  # fmt: skip
    f, g = (torch.rand(rows, rows, dtype=torch.float16) - 0.5 for _ in range(2))
    h = torch.empty_like(f)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
    product = compile_triton(
        matmul_kernel, signature, blocks, arch="sm_80", num_stages=3, attributes=dict.fromkeys("MNK", 16)
    )
    yield CheckedKernel(
        "product, Triton", product,
        {"grid": ("m", "n"), "args": {
            "a": "float16[64 * m, 32 * k]", "b": "float16[32 * k, 64 * n]", "c": "float16[64 * m, 64 * n]",
            "M": "64 * m", "N": "64 * n", "K": "32 * k",
        }},
        (rows // 64, rows // 64), (128,), [f, g, h, *[rows] * 3], h, lambda: (f.float() @ g.float()).half(),
    )  # fmt: skip


def measure(one: CheckedKernel, repeats: int) -> Measured:
    """Prove a kernel and time its launch in each mode; the fastest of ``repeats`` counts.

    Raises:
        WrongResultError: if a result is wrong, the checks find something, or the proof does not cover the launch.
    """
    compiled = one.compiled
    proof = prove_family(Family(compiled, **one.family), compiled, run=False)
    if proof.accesses is None:
        raise WrongResultError(f"{one.name}: {proof}")
    kernel = ptx.Program.from_text(compiled.ptx)[compiled.name]
    arguments = [*one.arguments, *(None for parameter in compiled.parameters if parameter.scratch)]
    checks: dict[str, Any] = {"checks": True, "repeats": compiled.language == "triton"}
    options: dict[str, dict[str, Any]] = {BARE: {}, "checks": checks, PROVED: {**checks, "proved": proof.covered}}
    given: dict[str, dict[str, Any]] = {WHOLE: {"proof": proof}, SAMPLED: {"proof": proof, "sample": SAMPLE}}
    block = None if checks["repeats"] else one.block
    shared = compiled.shared_bytes - compiled.static_shared_bytes
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}

    def run(mode: str) -> Any:
        began = time.process_time()
        if mode in options:
            report = kernel.launch(one.grid, one.block, arguments, shared_bytes=shared, threads=1, **options[mode])
        else:
            more = given.get(mode, {})
            report = check_kernel(compiled, grid=one.grid, block=block, args=one.arguments, **more).launch
        seconds[mode].append(time.process_time() - began)
        return report

    for mode in MODES:
        one.output.fill_(torch.nan)
        report = run(mode)
        written = ~one.output.isnan()
        found, expected = one.output[written], one.expected()[written]
        torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-2)
        if not written.any() or not (mode == SAMPLED or written.all()):
            raise WrongResultError(f"{one.name}: elements are not written in mode {mode}")
        if report.findings or (report.proof is not None and not report.proof.whole):
            raise WrongResultError(f"{one.name}: {report.findings or report.proof}")
    in_turn({mode: functools.partial(run, mode) for mode in MODES}, repeats)
    return Measured(one.name, {mode: min(found) for mode, found in seconds.items()}, proof)


@click.command()
@click.option("--repeats", default=40, show_default=True, help="Runs in each mode, in turn; the fastest counts.")
def main(repeats: int) -> None:
    """Print a table in Markdown of the kernels, with the ratio of each mode to a bare run."""
    say(f"| kernel | bare, ms | {' | '.join(MODES[1:])} | proof, CPU s |\n|{'---|' * (len(MODES) + 2)}")
    for one in kernels():
        found = measure(one, repeats)
        ratios = " | ".join(f"{found.ratio(mode):.2f}x" for mode in MODES[1:])
        say(f"| {found.name} | {found.seconds['bare'] * 1e3:.2f} | {ratios} | {found.proof.seconds:.1f} |")


if __name__ == "__main__":
    main()
