"""Calibration of the scales of a quantized cache on sample text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from workbench.attention.cache_formats.quantization import Calibration
from workbench.attention.models.activations import record
from workbench.attention.models.gpt import GPT


def calibrated_scales(
    model: GPT,
    texts: Iterable[Sequence[int]],
    kv_cache_dtype: str,
    *,
    per_head: bool = True,
    percentile: float = 100.0,
) -> dict[str, list[torch.Tensor]]:
    """Compute the scales of every layer from sample texts, for `PagedKVCache` or `make_cache`.

    Args:
        model: the model whose keys and values are measured.
        texts: token ids of the sample texts; not those on which the cache is evaluated.
        kv_cache_dtype: "int8", "fp8_e4m3", "fp8_e5m2" or "nvfp4".
        per_head: True for a scale per KV head instead of one per layer.
        percentile: percentage of the elements that must not saturate; see `Calibration.scale`.

    Returns:
        ``k_scale`` and ``v_scale``: lists with a ``[num_kv_heads]`` or ``[1] float32`` tensor for each layer.

    Raises:
        ArgumentError: if there is no text, or a token or the dtype is unknown.
    """
    layers = range(model.config.num_layers)
    counted = {name: [Calibration(kv_cache_dtype, per_head=per_head) for _ in layers] for name in ("keys", "values")}
    for tokens in texts:
        found = record(model, tokens, num_queries=0)
        for name, calibrations in counted.items():
            for layer, calibration in enumerate(calibrations):
                calibration.add(found[name][layer])
    scales = {name: [each.scale(percentile) for each in calibrations] for name, calibrations in counted.items()}
    return {"k_scale": scales["keys"], "v_scale": scales["values"]}
