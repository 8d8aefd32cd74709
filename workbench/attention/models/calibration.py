"""Scales for a quantized cache, found on text like that to come."""

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
    """The scales of every layer, for `PagedKVCache` or `make_cache`.

    Args:
        texts: token ids; not those that the cache is judged on.
        kv_cache_dtype: "int8", "fp8_e4m3" or "fp8_e5m2".
        per_head: a scale for each KV head instead of one for all of a layer.
        percentile: of the magnitudes that are to be in range; see `Calibration.scale`.

    Returns:
        ``k_scale`` and ``v_scale``, a list of ``[num_kv_heads]`` or ``[1] float32``, one for each layer.

    Raises:
        ArgumentError: no text, unknown tokens, an unknown dtype.
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
