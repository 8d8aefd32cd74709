"""Matrix products through shared memory, in CUDA and in Triton, bare and with all checks on one core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.triton_programs import matmul_kernel
from workbench import ptx
from workbench.errors import WrongResultError
from workbench.toolchain import compile_cuda, compile_triton
from workbench.tuning.bench.results import in_turn

TILE, CUDA_SIZE, TRITON_SIZE = 32, 256, 512
_BLOCKS = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
_MULTIPLES = dict.fromkeys("MNK", 16)
_MODES: dict[str, dict[str, bool]] = {
    "bare": {}, "all checks": {"checks": True}, "on elements of a ring": {"exact": True},
}  # fmt: skip
SOURCE = f"""
extern "C" __global__ void tiled_product(const float* a, const float* b, float* c, int n) {{
  constexpr int kTile = {TILE};
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {{
    a_tile[y][x] = a[row * n + k + x];
    b_tile[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a_tile[y][i] * b_tile[i][x];
    __syncthreads();
  }}
  c[row * n + column] = sum;
}}
"""


def measure(repeats: int) -> dict[str, dict[str, tuple[float, int]]]:
    """Measure (seconds, warp instructions) of each product by its name and mode; the fastest of ``repeats`` counts.

    Raises:
        WrongResultError: if a product is wrong, or the checks find something.
    """
    return {name: _measured(name, start, repeats) for name, start in _products()}


def _measured(name: str, start: Callable[..., ptx.LaunchReport], repeats: int) -> dict[str, tuple[float, int]]:
    reports: dict[str, list[ptx.LaunchReport]] = {mode: [] for mode in _MODES}
    in_turn({mode: lambda mode=mode: reports[mode].append(start(**_MODES[mode])) for mode in _MODES}, repeats)
    if any(report.findings for report in reports["all checks"]):
        raise WrongResultError(f"{name}: {reports['all checks'][0].findings[0]}")
    best = {mode: min(found, key=lambda report: report.seconds) for mode, found in reports.items()}
    return {mode: (report.seconds, report.instructions) for mode, report in best.items()}


def _products() -> Iterator[tuple[str, Callable[..., ptx.LaunchReport]]]:
    torch.manual_seed(0)
    a, b = (torch.rand(CUDA_SIZE, CUDA_SIZE) - 0.5 for _ in range(2))
    c, tiles = torch.empty_like(a), CUDA_SIZE // TILE
    kernel = ptx.Program.from_text(compile_cuda(SOURCE, "tiled_product", arch="sm_80").ptx)["tiled_product"]
    arguments = [a, b, c, CUDA_SIZE]
    name = f"CUDA product of {CUDA_SIZE}^3 in tiles of {TILE} x {TILE}"
    yield name, _start(kernel, (tiles, tiles), (TILE, TILE), arguments, 0, name)
    a, b = (torch.rand(TRITON_SIZE, TRITON_SIZE, dtype=torch.float16) - 0.5 for _ in range(2))
    c = torch.empty_like(a)
    grid = (TRITON_SIZE // _BLOCKS["BLOCK_M"], TRITON_SIZE // _BLOCKS["BLOCK_N"])
    for arch in ("sm_80", "sm_90"):
        signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
        made = compile_triton(matmul_kernel, signature, _BLOCKS, arch=arch, num_stages=3, attributes=_MULTIPLES)
        kernel = ptx.Program.from_text(made.ptx)[made.name]
        scratch = [None for parameter in made.parameters if parameter.scratch]
        shared, name = made.shared_bytes - made.static_shared_bytes, f"Triton product of {TRITON_SIZE}^3 for {arch}"
        yield name, _start(kernel, grid, (128,), [a, b, c, *[TRITON_SIZE] * 3, *scratch], shared, name)


def _start(
    kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: list[Any], shared_bytes: int, name: str
) -> Callable[..., ptx.LaunchReport]:
    """Return a function that launches the kernel on one core; the product is checked once."""
    a, b, c = arguments[:3]

    def start(**options: Any) -> ptx.LaunchReport:
        return kernel.launch(grid, block, arguments, shared_bytes=shared_bytes, threads=1, **options)

    start()
    error = (c.float() - a.float() @ b.float()).abs().max().item()
    if not error < 1e-2:
        raise WrongResultError(f"{name}: an error of {error}")
    return start
