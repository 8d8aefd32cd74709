"""The function that users import: checks its arguments, chooses a variant and configuration, runs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from workbench.argument_kinds import names_wrong_kinds
from workbench.ops.arguments import check_devices
from workbench.ops.dispatch import arch_of, config_text, run
from workbench.ops.reshape_and_cache.problem import Tensors
from workbench.ops.reshape_and_cache.validate import check_slots, problem_of
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
        key_cache, value_cache: see `workbench.kvcache.layouts`; pages contiguous, starting on 16 bytes.
        slot_mapping: ``[num_tokens] int64``, no slot twice.
        kv_cache_dtype: "auto" (the dtype of key), "fp8_e4m3", "fp8_e5m2" or "int8".
        k_scale, v_scale: dequantization scales of a quantized cache: elements are multiplied by their reciprocals,
            rounded and saturated, as `workbench.kvcache.quantization` says. A number, or float32 per tensor ``[1]``,
            per KV head ``[num_kv_heads]`` or per token and head ``[num_blocks, block_size, num_kv_heads]``, of which
            those of the slots that are written are read; default 1.
        layout: "x", "nhd" or "hnd"; may be left out for a 5-D key cache, which is "x".
        variant: "auto" (on a CPU the torch variant, on a GPU the tuned one for this GPU), "tuned", or a variant's name,
            which on a CPU runs in the simulator.
        config: the configuration to use instead of the tuned or default one; needs a named variant.

    Raises:
        ArgumentError: anything above that does not hold; nothing is written then. Slots on a GPU are only looked at
            with ``WORKBENCH_CHECK_INDICES=1`` in the environment: that waits for the GPU.
        UnknownNameError, ConfigurationError: a variant that does not exist, a configuration that breaks a rule.
    """
    k_scale, v_scale = as_scale(k_scale, key), as_scale(v_scale, key)
    check_devices(
        "key",
        key,
        value=value,
        key_cache=key_cache,
        value_cache=value_cache,
        slot_mapping=slot_mapping,
        k_scale=k_scale,
        v_scale=v_scale,
    )
    _reshape_and_cache(
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        kv_cache_dtype,
        k_scale,
        v_scale,
        layout,
        variant,
        config_text(config),
    )


@torch.library.custom_op("workbench::reshape_and_cache", mutates_args=("key_cache", "value_cache"))
def _reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str = "auto",
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    layout: str | None = None,
    variant: str = "auto",
    config: str | None = None,
) -> None:
    from workbench.ops.reshape_and_cache import OP

    tensors = Tensors(key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale)
    problem = problem_of(tensors, layout=layout, kv_cache_dtype=kv_cache_dtype, arch=arch_of(key))
    check_slots(slot_mapping, key_cache.shape[0] * problem.block_size)
    run(OP, problem, tensors, key, variant, config, problem.num_tokens)


_reshape_and_cache.register_fake(lambda *given, **options: None)
