"""The dequantization scales that several ops take: their shapes, and how a kernel finds the one it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from workbench.cache_formats.layouts import PagedGeometry
from workbench.cache_formats.quantization import LARGEST_SCALE, SMALLEST_SCALE, usable
from workbench.errors import ArgumentError
from workbench.ops.arguments import check_dtype, look_at_values


def as_scale(scale: torch.Tensor | float | None, like: torch.Tensor) -> torch.Tensor | None:
    """A number as a tensor ``[1] float32`` beside ``like``; None and tensors as they are."""
    if scale is None or isinstance(scale, torch.Tensor):
        return scale
    return torch.full((1,), float(scale), dtype=torch.float32, device=like.device)


def check_scale(name: str, scale: torch.Tensor | None, geometry: PagedGeometry, kv_cache_dtype: str) -> None:
    """Check shape, dtype and, where that costs nothing, values of a scale.

    Raises:
        ArgumentError: names what cannot be used.
    """
    if scale is None:
        return
    if kv_cache_dtype == "auto":
        raise ArgumentError(name, "a scale", "None for a cache that is not quantized", "Pass kv_cache_dtype= as well.")
    check_dtype(name, scale, [torch.float32])
    shapes = (
        (1,),
        (geometry.num_kv_heads,),
        (geometry.num_blocks, geometry.block_size, geometry.num_kv_heads),
    )
    if tuple(scale.shape) not in ((), *shapes):
        raise ArgumentError(
            name, f"shape {tuple(scale.shape)}", ", ".join(map(str, shapes)), "Per tensor, KV head or token."
        )
    if not scale.is_contiguous():
        raise ArgumentError(name, f"strides {scale.stride()}", "a contiguous tensor", f"Call {name}.contiguous().")
    # Scales per token are not all in use: what stands in a free slot is nobody's business.
    if scale.dim() < 3 and look_at_values(scale) and not usable(scale):
        raise ArgumentError(
            name,
            "a value that is not above 0, or not finite",
            f"{SMALLEST_SCALE:.1e} to {LARGEST_SCALE:.1e}",
            "Elements are multiplied by its reciprocal when they are stored.",
        )


def scale_strides(scale: torch.Tensor | None) -> tuple[int, int]:
    """How far apart the scales of two slots and of two KV heads are: (0, 0) for one scale of the whole cache."""
    if scale is None or scale.numel() == 1:
        return 0, 0
    return (scale.shape[2], 1) if scale.dim() == 3 else (0, 1)


SCALE_TYPES = {
    "k_scale": "*fp32:1",
    "v_scale": "*fp32:1",
    "k_slot_stride": "i32",
    "k_head_stride": "i32",
    "v_slot_stride": "i32",
    "v_head_stride": "i32",
}
"""Triton's types of what kernels take of the scales of a quantized cache."""


def no_scales(problem: Any) -> Mapping[str, None]:
    """The constexprs that stand for `SCALE_TYPES` where there are no scales: of them nothing is compiled."""
    return {} if problem.quantized else dict.fromkeys(SCALE_TYPES)
