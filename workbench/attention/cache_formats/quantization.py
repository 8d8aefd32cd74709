"""Quantization of keys and values to one byte per element, or half of one: codes, scales and calibration.

    code  = round(element * (1 / scale))     when storing; 1 / scale is TensorRT-LLM's kv_orig_quant_scale
    value = code * scale                     when reading; scale is its kv_quant_orig_scale, and our k_scale, v_scale

All arithmetic is in fp32: the reciprocal is computed and rounded once per scale, every element is multiplied by it
(which may differ from a division in the last bit), then rounded to the nearest code, ties to even. Magnitudes that are
too large *saturate*: they become the largest code, infinity too, as in OCP's saturating mode. (Not all of torch's casts
do: e5m2 gives infinity, e4m3 NaN or the largest code, depending on the version.) NaN stays NaN in FP8 (the code 0x7F,
whatever its sign); INT8 has no NaN and stores 0. INT8 is symmetric: -128 is never stored. The kernels of
`workbench.attention.ops.reshape_and_cache` agree bit for bit.

A scale may be one number for the whole cache ``[1]``, one per KV head ``[num_kv_heads]``, or one per token and head
``[num_blocks, block_size, num_kv_heads]``; the last is stored beside the cache and written with the tokens
(`store_token_scales`). The first two are calibrated beforehand on similar tokens (`Calibration`). NVFP4, which has a
scale of its own for every 16 elements beside these two, is defined in `workbench.attention.cache_formats.nvfp4`.

FP8: "OCP 8-bit Floating Point Specification" 1.0 and Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
"""

from __future__ import annotations

import math

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.errors import ArgumentError

CACHE_DTYPES = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "nvfp4": torch.uint8,
}
"""Dtypes of a quantized cache by name; ``"auto"`` elsewhere means the dtype of the model.

``"nvfp4"`` is vLLM's and TensorRT-LLM's name; its bytes are those of `workbench.attention.cache_formats.nvfp4`.
"""

EIGHT_BITS = tuple(name for name in CACHE_DTYPES if name != "nvfp4")
"""Names of the dtypes with one byte per element."""

LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "nvfp4": 6.0 * 448.0}
"""Largest magnitude that is represented before k_scale or v_scale is applied."""

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-126, 2.0**126
"""Range in which both a scale and its reciprocal are normal fp32 numbers."""

_NAN = 0x7F
_BINS = 1 << 15  # the upper 16 bits of an fp32 magnitude, whose sign bit is 0


def e4m3_with_scales(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes ``[..., size] float8_e4m3fn`` of vectors ``[..., size]``, and a scale for each, ``[...] float32``.

    A scale maps the largest magnitude of its vector to the largest code, and is 1 where all elements are zero.
    """
    highest = vectors.float().abs().amax(-1)
    scales = torch.where(highest > 0, highest / LARGEST["fp8_e4m3"], 1.0)
    return (vectors.float() / scales[..., None]).to(torch.float8_e4m3fn), scales


def quantize(tokens: torch.Tensor, scale: torch.Tensor | float, kv_cache_dtype: str) -> torch.Tensor:
    """Return the codes of keys or values, in the cache's dtype; of "nvfp4" rows ``[..., num_kv_heads, row] uint8``.

    Args:
        tokens: ``[..., num_kv_heads, head_size]`` float32, float16 or bfloat16.
        scale: factor to multiply by when reading: a number, ``[1]``, ``[num_kv_heads]`` or ``[..., num_kv_heads]``.
        kv_cache_dtype: one of `CACHE_DTYPES`.
    """
    dtype, largest = CACHE_DTYPES[check_kind(kv_cache_dtype)], LARGEST[kv_cache_dtype]
    scaled = tokens.float() * (1.0 / _for_elements(scale, tokens))
    if kv_cache_dtype == "nvfp4":
        return nvfp4.quantize_rows(scaled)
    if dtype == torch.int8:
        return scaled.round().clamp(-largest, largest).nan_to_num(0.0).to(dtype)
    codes = scaled.clamp(-largest, largest).to(dtype).view(torch.uint8)
    return codes.masked_fill(scaled.isnan(), _NAN).view(dtype)


def dequantize(codes: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    """Return the values of codes, as `quantize` returns them, in fp32; ``scale`` as there."""
    values = nvfp4.dequantize_rows(codes) if codes.dtype == torch.uint8 else codes.float()
    return values * _for_elements(scale, codes)


def token_scales(tokens: torch.Tensor, kv_cache_dtype: str) -> torch.Tensor:
    """Return a scale for every token and head, at which its largest magnitude becomes the largest code.

    The scale is 1 where all elements are zero.

    Args:
        tokens: ``[..., num_kv_heads, head_size]``.
        kv_cache_dtype: one of `CACHE_DTYPES`.

    Returns:
        ``[..., num_kv_heads] float32``.
    """
    return _scale_of(tokens.abs().amax(-1).float(), kv_cache_dtype)


def store_token_scales(
    tokens: torch.Tensor, scales: torch.Tensor, slot_mapping: torch.Tensor, kv_cache_dtype: str
) -> None:
    """Write the scales of new tokens at their slots, for `reshape_and_cache` to quantize with.

    Args:
        tokens: ``[num_tokens, num_kv_heads, head_size]``.
        scales: ``[num_blocks, block_size, num_kv_heads] float32``, contiguous; written in place.
        slot_mapping: ``[num_tokens] int64``; -1 skips a token.
        kv_cache_dtype: one of `CACHE_DTYPES`.
    """
    kept = slot_mapping >= 0
    scales.view(-1, scales.shape[-1])[slot_mapping[kept]] = token_scales(tokens[kept], kv_cache_dtype)


class Calibration:
    """A histogram of sample tokens that yields quantization scales, one for all heads or one per head.

    ::

        keys = Calibration("int8", per_head=True)
        for batch in batches:
            keys.add(batch)
        k_scale = keys.scale()                  # the absolute maximum: no sample saturates
        k_scale = keys.scale(percentile=99.9)   # one element in a thousand may: finer steps for the others

    Memory does not grow with the samples: magnitudes are counted by the upper 16 bits of their fp32 pattern (a
    bfloat16), so that a percentile is exact for bfloat16 and up to 1/128 too large otherwise, never too small.

    Args:
        kv_cache_dtype: one of `CACHE_DTYPES`.
        per_head: True for a scale per KV head instead of one for all.

    Raises:
        ArgumentError: if kv_cache_dtype is unknown, or tokens are empty, not finite, or of another number of heads.
    """

    def __init__(self, kv_cache_dtype: str, *, per_head: bool = False):
        self.kv_cache_dtype = check_kind(kv_cache_dtype)
        self.per_head = per_head
        self._seen: tuple[torch.Tensor, torch.Tensor] | None = None
        """Largest magnitude ``[num_kv_heads]`` and counts ``[num_kv_heads, _BINS] int64`` of each head, on the CPU."""

    def add(self, tokens: torch.Tensor) -> None:
        """Count the magnitudes of keys, or of values, of one layer: ``[..., num_kv_heads, head_size]``."""
        if not tokens.is_floating_point() or tokens.dim() < 2 or tokens.numel() == 0:
            raise ArgumentError(
                "tokens",
                f"{tokens.dtype} of shape {tuple(tokens.shape)}",
                "floating-point [..., num_kv_heads, head_size], at least one element",
                "Pass the keys or values before they are quantized.",
            )
        heads = tokens.shape[-2]
        if self._seen is not None and len(self._seen[0]) != heads:
            before = f"{len(self._seen[0])}, as before"
            raise ArgumentError(
                "tokens",
                f"{heads} KV heads",
                before,
                "Use a Calibration for each layer's keys, and one for its values.",
            )
        magnitudes = tokens.detach().movedim(-2, 0).reshape(heads, -1).float().abs()
        largest = magnitudes.amax(1).cpu()
        if not bool(largest.isfinite().all()):
            raise ArgumentError(
                "tokens",
                "NaN or infinity",
                "finite elements",
                "A scale cannot cover them; look where the model overflows, often in float16.",
            )
        bins = magnitudes.view(torch.int32) + 0xFFFF >> 16  # rounded up, so a bin's bfloat16 is its upper bound
        counts = torch.stack([torch.bincount(row, minlength=_BINS) for row in bins]).cpu()
        if self._seen is not None:
            largest, counts = torch.maximum(self._seen[0], largest), self._seen[1] + counts
        self._seen = largest, counts

    def scale(self, percentile: float = 100.0) -> torch.Tensor:
        """Return the scale at which a percentage of the samples does not saturate, ``[1]`` or ``[num_kv_heads]``.

        The scale is float32. A head whose samples are all zero gets 1.
        """
        if self._seen is None:
            raise ArgumentError("tokens", "none yet", "at least one batch", "Call add first.")
        if not 0 < percentile <= 100:
            raise ArgumentError("percentile", percentile, "above 0, at most 100", "100 takes the largest magnitude.")
        largest, counts = self._seen
        if not self.per_head:
            largest, counts = largest.amax(0, keepdim=True), counts.sum(0, keepdim=True)
        if percentile < 100:
            wanted = torch.ceil(counts.sum(1, keepdim=True).double() * (percentile / 100)).long()
            reached = (counts.cumsum(1) >= wanted).int().argmax(1)  # the first bin that reaches the percentile
            largest = torch.minimum(largest, (reached.int() << 16).view(torch.float32))
        return _scale_of(largest, self.kv_cache_dtype)


def check_kind(kv_cache_dtype: str) -> str:
    """Return the name of a quantized dtype; ArgumentError if it is not in `CACHE_DTYPES`."""
    if kv_cache_dtype not in CACHE_DTYPES:
        raise ArgumentError(
            "kv_cache_dtype", repr(kv_cache_dtype), ", ".join(CACHE_DTYPES), '"auto" means a cache without scales.'
        )
    return kv_cache_dtype


def usable(scale: torch.Tensor | float) -> bool:
    """Return True if every scale and its reciprocal are positive normal fp32 numbers; synchronizes with a GPU."""
    if not isinstance(scale, torch.Tensor):
        return math.isfinite(scale) and SMALLEST_SCALE <= scale <= LARGEST_SCALE
    return bool(((scale >= SMALLEST_SCALE) & (scale <= LARGEST_SCALE)).all())


def _scale_of(largest: torch.Tensor, kv_cache_dtype: str) -> torch.Tensor:
    scale = (largest / LARGEST[check_kind(kv_cache_dtype)]).clamp(SMALLEST_SCALE, LARGEST_SCALE)
    return torch.where(largest > 0, scale, 1.0)


def _for_elements(scale: torch.Tensor | float, tokens: torch.Tensor) -> torch.Tensor:
    """Return the scale in fp32, in a shape that broadcasts over ``tokens [..., num_kv_heads, head_size]``."""
    scale = torch.as_tensor(scale, dtype=torch.float32, device=tokens.device)
    return scale if scale.dim() == 0 else scale[..., None]
