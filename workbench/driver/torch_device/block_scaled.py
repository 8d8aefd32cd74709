"""Products of matrices with a scale for each block of a row, which torch only has for GPUs."""

from __future__ import annotations

import torch
from torch import Tensor

# The values of e2m1 by their bits.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_BLOCKS = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}  # elements of one scale: of NVFP4; of MXFP8 and MXFP4


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``a @ b`` of scaled factors; torch's operator for the host supports all scales but those of blocks."""
    device = a.device
    if scale_a.dtype not in _BLOCKS or scale_b.dtype != scale_a.dtype:
        given = [one if one is None else one.cpu() for one in (a, b, scale_a, scale_b, bias, scale_result)]
        return torch._scaled_mm(*given, out_dtype=out_dtype, use_fast_accum=use_fast_accum).to(device)
    block = _BLOCKS[scale_a.dtype]
    rows, columns = (_scaled(one.cpu(), scale.cpu(), block) for one, scale in ((a, scale_a), (b.t(), scale_b)))
    product = rows @ columns.t()
    if bias is not None:
        product += bias.cpu().float()
    return product.to(out_dtype or torch.bfloat16).to(device)


def _scaled(rows: Tensor, scales: Tensor, block: int) -> Tensor:
    values = _unpacked(rows.contiguous()) if rows.dtype == torch.float4_e2m1fn_x2 else rows.float()
    count, length = values.shape
    by_row = _by_row(scales.float().flatten(), count, -(-length // block))
    return values * by_row.repeat_interleave(block, 1)[:, :length]


def _unpacked(pairs: Tensor) -> Tensor:
    codes = pairs.view(torch.uint8).int()
    return torch.tensor(_E2M1)[torch.stack([codes & 15, codes >> 4], -1)].flatten(1)


def _by_row(scales: Tensor, rows: int, columns: int) -> Tensor:
    """Return scales by row and column from tiles of 128 x 4, in which 32 rows stand beside each other (cuBLAS)."""
    down, across = -(-rows // 128), -(-columns // 4)
    tiles = scales.view(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(down * 128, across * 4)[:rows, :columns]
