"""`reshape_and_cache`, the function that users import: it checks its arguments, chooses a variant and runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.attention.cache_formats.layouts import PagedGeometry
from workbench.attention.ops.cache_arguments import as_scale, check_caches, check_scales, page_fields
from workbench.attention.ops.dtypes import DTYPES
from workbench.attention.ops.reshape_and_cache.problem import ReshapeAndCacheProblem, ReshapeAndCacheTensors
from workbench.attention.ops.tensor_checks import alignment_of, check_dtype, check_vector, check_within, look_at_values
from workbench.base.packages import names_wrong_kinds
from workbench.errors import ArgumentError
from workbench.ops import DescribedOp, arch_of
from workbench.ops.declared import op
from workbench.ops.tensors import dtype_name


@names_wrong_kinds
def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | float | None = None,
    v_scale: torch.Tensor | float | None = None,
    layout: str | None = None,
    variant: str = "auto",
    config: Mapping[str, int] | None = None,
) -> None:
    """Write the keys and values of new tokens into a paged cache, in place.

    Token i goes to slot ``slot_mapping[i] = page * block_size + offset``; -1 skips it. Nothing else of the cache
    changes. After vLLM's kernel of this name (csrc/cache_kernels.cu).

    Args:
        key: ``[num_tokens, num_kv_heads, head_size]`` float32, float16 or bfloat16; tokens may be apart, as in a fused
            projection.
        value: as key.
        key_cache: see `workbench.attention.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        value_cache: as key_cache.
        slot_mapping: ``[num_tokens] int64``, no slot twice.
        kv_cache_dtype: "auto" (the dtype of key), "fp8_e4m3", "fp8_e5m2", "int8", or "nvfp4", whose caches are bytes in
            layout "nhd" or "hnd", as `workbench.attention.cache_formats.nvfp4` has them.
        k_scale: dequantization scale of a quantized key cache: elements are multiplied by its reciprocal, rounded and
            saturated, as in `workbench.attention.cache_formats.quantization`. A number, or float32 per tensor ``[1]``,
            per KV head ``[num_kv_heads]`` or per token and head ``[num_blocks, block_size, num_kv_heads]``, read at the
            slots that are written; default 1. nvfp4 computes the scales of its pages, and takes none per token.
        v_scale: dequantization scale of a quantized value cache, as k_scale.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: an argument breaks a rule above; nothing is written then. Slots on a GPU are checked only with
            ``WORKBENCH_CHECK_INDICES=1`` in the environment, since that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    t = ReshapeAndCacheTensors(
        key, value, key_cache, value_cache, slot_mapping, as_scale(k_scale, key), as_scale(v_scale, key)
    )
    OP.run(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)


def problem_of(
    t: ReshapeAndCacheTensors, *, layout: str | None = None, kv_cache_dtype: str = "auto"
) -> ReshapeAndCacheProblem:
    """Check all metadata (dtypes, shapes, strides) and, where that costs nothing, slots; describe the problem.

    Raises:
        ArgumentError: the first argument that cannot be used.
    """
    _check_tokens(t)
    geometry = _check_caches(t, layout, kv_cache_dtype)
    check_scales(t, geometry, kv_cache_dtype)
    check_slots(t.slot_mapping, geometry.num_blocks * geometry.block_size)
    return ReshapeAndCacheProblem(
        num_tokens=t.key.shape[0],
        dtype=dtype_name(t.key.dtype),
        alignment=alignment_of(t.key, t.value),
        arch=arch_of(t.key),
        **page_fields(geometry, kv_cache_dtype),
    )


def check_slots(slot_mapping: torch.Tensor, num_slots: int) -> None:
    """Check that every slot is -1 or exists, and that no two tokens share one, if `look_at_values` allows it.

    Raises ArgumentError for the first token whose slot cannot be used.
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
            "Two tokens in one slot would overwrite each other in an undefined order.",
        )


def _check_tokens(t: ReshapeAndCacheTensors) -> None:
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
    remedy = "Pass one slot per token of key, or -1 to skip the token."
    check_vector("slot_mapping", t.slot_mapping, t.key.shape[0], torch.int64, remedy)


def _check_caches(t: ReshapeAndCacheTensors, layout: str | None, kv_cache_dtype: str) -> PagedGeometry:
    geometry = check_caches(t, layout, kv_cache_dtype, [t.key.dtype], f"the dtype of key, {t.key.dtype}")
    if (geometry.num_kv_heads, geometry.head_size) != tuple(t.key.shape[1:]):
        raise ArgumentError(
            "key_cache",
            f"{geometry.num_kv_heads} heads of {geometry.head_size}",
            f"{t.key.shape[1]} of {t.key.shape[2]}, those of key",
            f"Check layout={geometry.layout!r}.",
        )
    return geometry


OP: DescribedOp = op(
    name="reshape_and_cache",
    tensors=ReshapeAndCacheTensors,
    in_place=("key_cache", "value_cache"),
    like="key",
    namespace="workbench",
)(problem_of)
