"""The function that users import: checks its arguments, chooses a variant and configuration, runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.ops.library_op import LibraryOp
from workbench.ops.reshape_and_cache.problem import Tensors
from workbench.ops.reshape_and_cache.validate import problem_of
from workbench.ops.scales import as_scale


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
        key, value: ``[num_tokens, num_kv_heads, head_size]`` float32, float16 or bfloat16; tokens may be apart, as in a
            fused projection.
        key_cache, value_cache: see `workbench.cache_formats.layouts`; pages contiguous, starting on 16 bytes.
        slot_mapping: ``[num_tokens] int64``, no slot twice.
        kv_cache_dtype: "auto" (the dtype of key), "fp8_e4m3", "fp8_e5m2" or "int8".
        k_scale, v_scale: dequantization scales of a quantized cache: elements are multiplied by their reciprocals,
            rounded and saturated, as in `workbench.cache_formats.quantization`. A number, or float32 per tensor
            ``[1]``, per KV head ``[num_kv_heads]`` or per token and head ``[num_blocks, block_size, num_kv_heads]``, of
            which those of the slots that are written are read; default 1.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: anything above that does not hold; nothing is written then. Slots on a GPU are only looked at
            with ``WORKBENCH_CHECK_INDICES=1`` in the environment: that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    t = Tensors(key, value, key_cache, value_cache, slot_mapping, as_scale(k_scale, key), as_scale(v_scale, key))
    library_op.check(t)
    library_op(t, layout=layout, kv_cache_dtype=kv_cache_dtype, variant=variant, config=config)


library_op = LibraryOp(
    "reshape_and_cache",
    Tensors,
    problem_of,
    like="key",
    written=("key_cache", "value_cache"),
    made=("out",),
    options={"layout": None, "kv_cache_dtype": "auto"},
)
