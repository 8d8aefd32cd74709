"""The kernels of ``cuda_src/matmul_block_scaled.cu`` on the PTX machine, and the exact values of their operands."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch

from workbench.base.home import cuda_sources
from workbench.ops.expressions import cdiv
from workbench.ptx import LaunchReport, Program
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda_module

_TILE, _STAGES, _THREADS = 128, 3, 256


class BlockScaledFormat(NamedTuple):
    """A format of elements with a scale for each ``group`` of them along K."""

    group: int
    bits: int

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of the product: tiles of 128 bytes of 128 rows, and their scales."""
        return _STAGES * 2 * _TILE * (128 + 128 * 8 // self.bits // self.group)


FORMATS = {"mxfp8": BlockScaledFormat(32, 8), "nvfp4": BlockScaledFormat(16, 4)}
_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


class BlockScaled(NamedTuple):
    """A quantized matrix: codes ``[rows, K * bits / 8]``, scales as the product reads them; both uint8."""

    kind: str
    codes: torch.Tensor
    scales: torch.Tensor

    def scale_values(self) -> torch.Tensor:
        """Return the scales, ``[rows, K / group]`` float64."""
        # The bytes lie by 128 rows, by four along K, by row % 32, by row % 128 / 32, and along K.
        rows, parts = len(self.codes), self.scales.numel() // len(self.codes)
        codes = self.scales.view(rows // 128, parts // 4, 32, 4, 4).permute(0, 3, 2, 1, 4).reshape(rows, parts)
        if self.kind == "mxfp8":
            return torch.exp2(codes.double() - 127)
        return codes.view(torch.float8_e4m3fn).double()

    def code_values(self) -> torch.Tensor:
        """Return what the codes stand for without their scales, ``[rows, K]`` float64."""
        if self.kind == "mxfp8":
            return self.codes.view(torch.float8_e4m3fn).double()
        codes = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1).long()
        return torch.where(codes >= 8, -1.0, 1.0) * _E2M1[codes & 7]

    def values(self) -> torch.Tensor:
        """Return the matrix that the codes and scales stand for, ``[rows, K]`` float64."""
        return self.code_values() * self.scale_values().repeat_interleave(FORMATS[self.kind].group, 1)


@functools.cache
def program() -> Program:
    """Compile the file for sm_100a and return its kernels."""
    module = compile_cuda_module(cuda_sources() / "matmul_block_scaled.cu", arch="sm_100a", machine_code=False)
    return Program.from_text(next(iter(module.kernels.values())).ptx)


def quantize(kind: str, x: torch.Tensor, **options: Any) -> tuple[BlockScaled, LaunchReport]:
    """Quantize a float32 matrix ``[rows, K]``, rows a multiple of 128, K of 128 or, for nvfp4, 256."""
    (rows, k), form = x.shape, FORMATS[kind]
    codes = torch.zeros(rows, k * form.bits // 8, dtype=torch.uint8)
    scales = torch.zeros(rows * k // form.group, dtype=torch.uint8)
    blocks = cdiv(scales.numel(), _THREADS)
    report = program()[f"quantize_{kind}"].launch(blocks, _THREADS, [codes, scales, x, rows, k], **options)
    return BlockScaled(kind, codes, scales), report


def launch_of(a: BlockScaled, b: BlockScaled) -> tuple[dict[str, Any], torch.Tensor]:
    """Return what a launch of the product takes, and the result to be, ``[M, N]`` float32, NaN everywhere."""
    m, n, k = len(a.codes), len(b.codes), a.codes.shape[1] * 8 // FORMATS[a.kind].bits
    c = torch.full((m, n), torch.nan)
    maps = [TensorMap.of(one.codes, (_TILE, 128), swizzle=128) for one in (a, b)]
    shape: dict[str, Any] = {
        "grid": (n // _TILE, m // _TILE),
        "block": 192,
        "shared_bytes": FORMATS[a.kind].shared_bytes,
    }
    return {**shape, "args": [c, *maps, a.scales, b.scales, n, k]}, c


def multiply(a: BlockScaled, b: BlockScaled, **options: Any) -> tuple[torch.Tensor, LaunchReport]:
    """Multiply two matrices of one format: a b^T."""
    given, c = launch_of(a, b)
    return c, program()[f"matmul_{a.kind}"].launch(**given, **options)
