"""Codecs that store a token and head as a row of bytes that stands alone: integers of 2 to 4 bits, and FP4 of blocks.

**int4, int3, int2**: codes without a sign, and two float16 numbers for the row, its smallest element and a step:

    step  = (max - min) / (2^bits - 1)       both over the row, rounded to float16
    code  = round((element - min) / step)    from 0 to 2^bits - 1
    value = code * step + min

A row is not symmetric: with four or eight levels, one that no element needs is dear (KIVI, Liu and others, 2024, whose
values have a scale and a zero point by token as well). Code i has the bits from i * bits on, lowest first, in a row of
``head_size * bits / 8 + 4`` bytes.

**mxfp4**: e2m1 elements, two in a byte, and a power of two in e8m0 for every 32 of them (OCP, "Microscaling Formats
(MX)" 1.0, section 6.3): ``2^(floor(log2(largest magnitude)) - 2)``. A row has ``head_size / 2 + head_size / 32`` bytes.
A magnitude between 6 and 8 times its scale saturates.

**nvfp4**: the rows of `workbench.attention.cache_formats.nvfp4`, with a k_scale of 1.

Elements are finite, and of integers below 65,504 in magnitude. No kernel of the package reads integer or mxfp4 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from workbench.attention.cache_formats import nvfp4
from workbench.errors import ArgumentError, UnknownNameError

MX_GROUP = 32
"""Elements of a head that share a scale in mxfp4."""

_LARGEST = torch.finfo(torch.float16).max
_SMALLEST_STEP = 2.0**-24
_BIAS = 127


@dataclass(frozen=True)
class RowCodec:
    """A way to store one head of a token as bytes.

    Attributes:
        name: its name in `ROW_CODECS`.
        pack: returns rows ``[..., row] uint8`` of elements ``[..., head_size]``.
        unpack: returns values ``[..., head_size] float32`` of rows.
        multiple: a number that divides every head size it takes.
    """

    name: str
    pack: Callable[[torch.Tensor], torch.Tensor]
    unpack: Callable[[torch.Tensor], torch.Tensor]
    multiple: int

    def row_bytes(self, head_size: int) -> int:
        """Return the bytes of a token and head, scales included; ArgumentError for a size that it does not take."""
        if head_size <= 0 or head_size % self.multiple:
            raise ArgumentError(
                "head_size", head_size, f"a multiple of {self.multiple} for {self.name}", "Pad the heads, or change it."
            )
        return self.pack(torch.zeros(head_size)).shape[-1]

    def bits(self, head_size: int) -> float:
        """Return the bits of an element, scales included."""
        return 8 * self.row_bytes(head_size) / head_size


def row_codec(name: str) -> RowCodec:
    """Return a codec by its name; raise UnknownNameError if there is none."""
    if name not in ROW_CODECS:
        raise UnknownNameError("format", repr(name), ", ".join(ROW_CODECS), "See cache_formats.token_rows.")
    return ROW_CODECS[name]


def _pack_integers(tokens: torch.Tensor, bits: int) -> torch.Tensor:
    x = tokens.float().clamp(-_LARGEST, _LARGEST)
    low, high = x.aminmax(dim=-1)
    low = low.half()
    step = ((high - low.float()) / (2**bits - 1)).clamp(_SMALLEST_STEP, _LARGEST).half()
    codes = ((x - low.float()[..., None]) / step.float()[..., None]).round().clamp(0, 2**bits - 1).int()
    stream = (codes[..., None] >> torch.arange(bits, device=x.device) & 1).flatten(-2).unflatten(-1, (-1, 8))
    packed = (stream << torch.arange(8, device=x.device)).sum(-1).to(torch.uint8)
    return torch.cat([packed, torch.stack([low, step], -1).view(torch.uint8)], -1)


def _unpack_integers(rows: torch.Tensor, bits: int) -> torch.Tensor:
    packed, scales = rows.tensor_split([-4], dim=-1)
    stream = (packed.int()[..., None] >> torch.arange(8, device=rows.device) & 1).flatten(-2).unflatten(-1, (-1, bits))
    codes = (stream << torch.arange(bits, device=rows.device)).sum(-1)
    low, step = scales.contiguous().view(torch.float16).float().split(1, -1)
    return codes * step + low


def _pack_mxfp4(tokens: torch.Tensor) -> torch.Tensor:
    groups = tokens.float().unflatten(-1, (-1, MX_GROUP))
    exponent = torch.frexp(groups.abs().amax(-1)).exponent - 1 - 2  # frexp's mantissa is from 0.5 to 1
    exponent = exponent.clamp(-_BIAS, _BIAS)
    halves = nvfp4.pack_elements(torch.ldexp(groups, -exponent[..., None]).flatten(-2))
    return torch.cat([halves, (exponent + _BIAS).to(torch.uint8)], -1)


def _unpack_mxfp4(rows: torch.Tensor) -> torch.Tensor:
    groups = rows.shape[-1] // (MX_GROUP // 2 + 1)
    halves, scales = rows.tensor_split([-groups], dim=-1)
    values = nvfp4.unpack_elements(halves).unflatten(-1, (-1, MX_GROUP))
    return torch.ldexp(values, (scales.int() - _BIAS)[..., None]).flatten(-2)


def _integers(bits: int) -> RowCodec:
    return RowCodec(
        f"int{bits}", lambda tokens: _pack_integers(tokens, bits), lambda rows: _unpack_integers(rows, bits), 8
    )


ROW_CODECS = {
    codec.name: codec
    for codec in (
        _integers(4),
        _integers(3),
        _integers(2),
        RowCodec("mxfp4", _pack_mxfp4, _unpack_mxfp4, MX_GROUP),
        RowCodec("nvfp4", nvfp4.quantize_rows, nvfp4.dequantize_rows, nvfp4.GROUP),
    )
}
"""Codecs by name."""
