"""Common parts of the problems of ops on caches, and the places of a token's elements in a page of each layout.

Here are also the arguments that their kernels take by the same names. The layouts are those of
`workbench.attention.cache_formats.layouts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from workbench.attention.cache_formats.quantization import CACHE_DTYPES
from workbench.attention.ops.constants import constant
from workbench.attention.ops.dtypes import DTYPES
from workbench.base.packages import ELEMENT_TYPES
from workbench.ops import Arguments, Config, next_power_of_2


@dataclass(frozen=True)
class Sizes:
    """Base of the problems: dataclasses with ``features`` among their fields, which `to_dict` makes records."""

    def to_dict(self) -> dict:
        """Return plain values, for a store or a table of tuned configurations."""
        return asdict(self) | {"features": list(vars(self)["features"])}


class ElementProblem(Sizes):
    """Base of problems on tensors of one of `DTYPES`."""

    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].itemsize


class AttentionProblem(Sizes):
    """Base of attention problems: sizes that follow from ``dtype``, ``num_heads`` and ``num_kv_heads``."""

    dtype: str
    num_heads: int
    num_kv_heads: int

    @property
    def group(self) -> int:
        """Number of query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not in a cache of its own type."""
        return getattr(torch, self.dtype).itemsize


class CacheProblem(Sizes):
    """Base of problems on caches: sizes and dtypes that follow from ``dtype`` and ``kv_cache_dtype``."""

    dtype: str
    kv_cache_dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not in the cache."""
        return DTYPES[self.dtype].itemsize

    @property
    def quantized(self) -> bool:
        """True if the cache holds codes, which are multiplied by scales."""
        return self.kv_cache_dtype != "auto"

    @property
    def cache_dtype(self) -> torch.dtype:
        """The dtype of a cache element."""
        return CACHE_DTYPES[self.kv_cache_dtype] if self.quantized else DTYPES[self.dtype]

    @property
    def cache_itemsize(self) -> int:
        """Bytes of a cache element."""
        return self.cache_dtype.itemsize

    @property
    def x(self) -> int:
        """Cache elements per 16 bytes."""
        return 16 // self.cache_itemsize


def scale_strides(scale: torch.Tensor | None) -> tuple[int, int]:
    """Return the distances between the scales of two slots and of two KV heads, in elements.

    Both are 0 without a scale and for one scale of the whole cache.
    """
    if scale is None or scale.numel() == 1:
        return 0, 0
    return (scale.shape[2], 1) if scale.dim() == 3 else (0, 1)


def head_macros(config: Config, problem: Any) -> dict[str, Any]:
    """Return the macros of every attention kernel in CUDA C++: the element type, the head size, the tunables."""
    return {"SCALAR": ELEMENT_TYPES[problem.dtype].cpp, "HEAD_SIZE": problem.head_size, **config}


STRIDES: Arguments = {
    "table_stride": lambda config, problem, tensors: tensors.block_tables.stride(0),
    "query_stride": lambda config, problem, tensors: tensors.query.stride(0),
    "key_page_stride": lambda config, problem, tensors: tensors.key_cache.stride(0),
    "value_page_stride": lambda config, problem, tensors: tensors.value_cache.stride(0),
    "k_slot_stride": lambda config, problem, tensors: scale_strides(tensors.k_scale)[0],
    "k_head_stride": lambda config, problem, tensors: scale_strides(tensors.k_scale)[1],
    "v_slot_stride": lambda config, problem, tensors: scale_strides(tensors.v_scale)[0],
    "v_head_stride": lambda config, problem, tensors: scale_strides(tensors.v_scale)[1],
}
"""Strides that kernels take, in elements: between rows of tables and queries, between pages, and between scales."""

SCALES_OR_ONE: Arguments = {
    "k_scale": lambda config, problem, tensors: _or_one(tensors.k_scale, tensors, problem),
    "v_scale": lambda config, problem, tensors: _or_one(tensors.v_scale, tensors, problem),
}
"""Scales of a quantized cache for kernels that do not read null as 1; None for any other cache."""

CODES_AS_BYTES: Arguments = {
    "key_cache": lambda config, problem, tensors: _bytes(tensors.key_cache, problem),
    "value_cache": lambda config, problem, tensors: _bytes(tensors.value_cache, problem),
}
"""Caches for Triton kernels that decode codes by themselves, which get a quantized cache as bytes."""


def attributes(*names: str) -> Arguments:
    """Return arguments that are fields of the tensors."""

    def of(name: str) -> Callable[[Config, Any, Any], Any]:
        return lambda config, problem, tensors: getattr(tensors, name)

    return {name: of(name) for name in names}


def never_none(arguments: Arguments) -> Arguments:
    """Return the arguments with the query's address in place of None.

    Any address serves there: no kernel follows the pointer of a feature that is not asked for.
    """

    def some(value: Callable[[Config, Any, Any], Any]) -> Callable[[Config, Any, Any], Any]:
        def passed(config: Config, problem: Any, tensors: Any) -> Any:
            found = value(config, problem, tensors)
            return tensors.query if found is None else found

        return passed

    return {name: some(value) for name, value in arguments.items()}


def _or_one(scale: torch.Tensor | None, tensors: Any, problem: CacheProblem) -> torch.Tensor | None:
    if not problem.quantized:
        return None
    return constant((1,), torch.float32, tensors.key_cache.device) if scale is None else scale


def _bytes(cache: torch.Tensor, problem: CacheProblem) -> torch.Tensor:
    return cache.view(torch.uint8) if problem.quantized else cache


SCALES = ("k_scale", "v_scale", "k_slot_stride", "k_head_stride", "v_slot_stride", "v_head_stride")
"""Parameters that kernels have for the scales of a quantized cache."""


def no_scales(problem: Any) -> Mapping[str, None]:
    """Return a constexpr None for each of `SCALES` unless the cache is quantized: nothing is compiled for them."""
    return {} if problem.quantized else dict.fromkeys(SCALES)


def head_and_token_stride(problem: Any, page: int) -> tuple[int, int]:
    """Return the distances from one KV head to the next and from one token to the next, in elements.

    The second is right only where the elements of a token lie side by side, as in all layouts but "x". ``page`` is in
    tokens.
    """
    if problem.layout == "nhd":
        return problem.head_size, problem.num_kv_heads * problem.head_size
    return page * problem.head_size, problem.head_size


def head_and_strides(problem: Any, page: int) -> Mapping[str, int]:
    """Return the constexprs that describe a head and the places of its elements in a page.

    The layout may be any; ``page`` is in tokens.
    """
    size, (head, token) = problem.head_size, head_and_token_stride(problem, page)
    if problem.layout == "x":
        x = problem.x
        strides = {"X": x, "KEY_TOKEN": x, "KEY_X": page * x, "VALUE_TOKEN": 1, "VALUE_ELEMENT": page}
    else:
        strides = {"X": next_power_of_2(size), "KEY_TOKEN": token, "KEY_X": 0, "VALUE_TOKEN": token, "VALUE_ELEMENT": 1}
    return {"HEAD_SIZE": size, "HEAD_PADDED": next_power_of_2(size), "KEY_HEAD": head, "VALUE_HEAD": head, **strides}
