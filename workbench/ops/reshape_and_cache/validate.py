"""Refusing what a kernel would write to the wrong place, before anything is written."""

from __future__ import annotations

import torch

from workbench.cache_formats.layouts import PagedGeometry
from workbench.errors import ArgumentError
from workbench.ops.arguments import alignment_of, check_dtype, check_vector, check_within, dtype_name, look_at_values
from workbench.ops.cache_arguments import check_caches
from workbench.ops.dispatch import arch_of
from workbench.ops.element_types import DTYPES
from workbench.ops.reshape_and_cache.problem import Problem, Tensors
from workbench.ops.scales import check_scale


def problem_of(t: Tensors, *, layout: str | None, kv_cache_dtype: str) -> Problem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, slots; describe the problem.

    Raises:
        ArgumentError: for the first argument that cannot be used.
    """
    _check_tokens(t)
    geometry = _check_caches(t, layout, kv_cache_dtype)
    for name in ("k_scale", "v_scale"):
        check_scale(name, getattr(t, name), geometry, kv_cache_dtype)
    check_slots(t.slot_mapping, geometry.num_blocks * geometry.block_size)
    return Problem(
        num_tokens=t.key.shape[0],
        num_kv_heads=geometry.num_kv_heads,
        head_size=geometry.head_size,
        dtype=dtype_name(t.key.dtype),
        layout=geometry.layout,
        block_size=geometry.block_size,
        kv_cache_dtype=kv_cache_dtype,
        alignment=alignment_of(t.key, t.value),
        features=() if kv_cache_dtype == "auto" else (kv_cache_dtype,),
        arch=arch_of(t.key),
    )


def check_slots(slot_mapping: torch.Tensor, num_slots: int) -> None:
    """Check that every slot is -1 or one of the cache's, and that no two tokens go to the same one.

    Always on a CPU; on a GPU only with ``WORKBENCH_CHECK_INDICES=1``, because it waits for the GPU.

    Raises:
        ArgumentError: names the first token whose slot cannot be used.
    """
    if not look_at_values(slot_mapping):
        return
    meaning = ", the slots of the cache, or -1 (skip)"
    check_within("slot_mapping", slot_mapping, -1, num_slots - 1, meaning, "A slot is page * block_size + offset.")
    slots, order = slot_mapping.sort(stable=True)
    twice = (slots[1:] == slots[:-1]) & (slots[1:] >= 0)
    if twice.any():
        at = int(twice.nonzero()[0])
        raise ArgumentError(
            f"slot_mapping[{int(order[at + 1])}]",
            f"{int(slots[at])}, as slot_mapping[{int(order[at])}] has",
            "each slot once",
            "Two tokens in one slot would overwrite each other in no order.",
        )


def _check_tokens(t: Tensors) -> None:
    for name in ("key", "value"):
        tensor = getattr(t, name)
        check_dtype(name, tensor, DTYPES.values() if name == "key" else [t.key.dtype])
        if tensor.dim() != 3 or tensor.shape[1] == 0 or tensor.shape[2] == 0:
            raise ArgumentError(
                name, f"shape {tuple(tensor.shape)}", "[num_tokens, num_kv_heads, head_size]", "Reshape it."
            )
        # The strides of an empty tensor mean nothing, and some ways to make one leave zeros there.
        if tensor.numel() and (tensor.stride(2) != 1 or tensor.stride(1) != tensor.shape[2]):
            raise ArgumentError(
                name,
                f"strides {tensor.stride()}",
                f"(any, {tensor.shape[2]}, 1): the heads of a token side by side",
                f"Call {name}.contiguous().",
            )
    if t.value.shape != t.key.shape:
        raise ArgumentError("value", f"shape {tuple(t.value.shape)}", f"{tuple(t.key.shape)}, as key", "Reshape it.")
    remedy = "Pass one slot per token of key, -1 for one that is to be skipped."
    check_vector("slot_mapping", t.slot_mapping, t.key.shape[0], torch.int64, remedy)


def _check_caches(t: Tensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    geometry = check_caches(t, layout, kv_cache_dtype, [t.key.dtype], f"the dtype of key, {t.key.dtype}")
    if (geometry.num_kv_heads, geometry.head_size) != tuple(t.key.shape[1:]):
        raise ArgumentError(
            "key_cache",
            f"{geometry.num_kv_heads} heads of {geometry.head_size}",
            f"{t.key.shape[1]} of {t.key.shape[2]}, those of key",
            f"Check layout={geometry.layout!r}.",
        )
    return geometry
