"""What the problems of the ops on caches have alike, what their kernels take by the same names, and where a token's
elements lie in a page of each layout (`workbench.attention.cache_formats.layouts`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from workbench.attention.cache_formats.quantization import CACHE_DTYPES
from workbench.ops.constants import constant
from workbench.ops.element_types import CPP_NAMES, DTYPES
from workbench.ops.expressions import next_power_of_2
from workbench.ops.steps import Arguments
from workbench.ops.values import Config


@dataclass(frozen=True)
class Sizes:
    """A problem, which has ``features`` among its fields, as a record."""

    def to_dict(self) -> dict:
        """Plain values, for a store or a table of tuned configurations."""
        return asdict(self) | {"features": list(vars(self)["features"])}


class AttentionProblem(Sizes):
    """What follows from the ``dtype``, ``num_heads`` and ``num_kv_heads`` of a problem of any attention."""

    dtype: str
    num_heads: int
    num_kv_heads: int

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not in a cache of its own type."""
        return getattr(torch, self.dtype).itemsize


class CacheProblem(Sizes):
    """What follows from the ``dtype`` and ``kv_cache_dtype`` of a problem of any op on caches."""

    dtype: str
    kv_cache_dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not in the cache."""
        return DTYPES[self.dtype].itemsize

    @property
    def quantized(self) -> bool:
        """Whether the cache holds codes, to be multiplied by scales."""
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
    """How far apart the scales of two slots and of two KV heads are: (0, 0) for one scale of the whole cache."""
    if scale is None or scale.numel() == 1:
        return 0, 0
    return (scale.shape[2], 1) if scale.dim() == 3 else (0, 1)


def head_macros(config: Config, problem: Any) -> dict[str, Any]:
    """The macros of every kernel in CUDA C++ that attends: elements, the head, tunables."""
    return {"SCALAR": CPP_NAMES[problem.dtype], "HEAD_SIZE": problem.head_size, **config}


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
"""How far apart the rows of tables and queries, pages, and scales are, in elements, as kernels are told."""

SCALES_OR_ONE: Arguments = {
    "k_scale": lambda config, problem, tensors: _or_one(tensors.k_scale, tensors, problem),
    "v_scale": lambda config, problem, tensors: _or_one(tensors.v_scale, tensors, problem),
}
"""The scales of a quantized cache, for kernels that do not take null for 1; of any other cache none."""

CODES_AS_BYTES: Arguments = {
    "key_cache": lambda config, problem, tensors: _bytes(tensors.key_cache, problem),
    "value_cache": lambda config, problem, tensors: _bytes(tensors.value_cache, problem),
}
"""The caches of Triton kernels that decode by themselves: quantized ones as bytes."""


def attributes(*names: str) -> Arguments:
    """Arguments that are fields of the tensors."""

    def of(name: str) -> Callable[[Config, Any, Any], Any]:
        return lambda config, problem, tensors: getattr(tensors, name)

    return {name: of(name) for name in names}


def never_none(arguments: Arguments) -> Arguments:
    """The arguments, with any address, the query's, for those that are None: what is not asked for is not followed."""

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
"""What kernels take of the scales of a quantized cache."""


def no_scales(problem: Any) -> Mapping[str, None]:
    """The constexprs that stand for `SCALES` where there are none: of them nothing is compiled."""
    return {} if problem.quantized else dict.fromkeys(SCALES)


def head_and_token_stride(problem: Any, page: int) -> tuple[int, int]:
    """From one KV head to the next and from one token to the next, in elements, where a token's lie side by side.

    In layout "x", where they do not, the first is right too. ``page`` is in tokens.
    """
    if problem.layout == "nhd":
        return problem.head_size, problem.num_kv_heads * problem.head_size
    return page * problem.head_size, problem.head_size


def head_and_strides(problem: Any, page: int) -> Mapping[str, int]:
    """The constexprs that describe a head, and where its elements lie in a page of ``page`` tokens of any layout."""
    size, (head, token) = problem.head_size, head_and_token_stride(problem, page)
    if problem.layout == "x":
        x = problem.x
        strides = {"X": x, "KEY_TOKEN": x, "KEY_X": page * x, "VALUE_TOKEN": 1, "VALUE_ELEMENT": page}
    else:
        strides = {"X": next_power_of_2(size), "KEY_TOKEN": token, "KEY_X": 0, "VALUE_TOKEN": token, "VALUE_ELEMENT": 1}
    return {"HEAD_SIZE": size, "HEAD_PADDED": next_power_of_2(size), "KEY_HEAD": head, "VALUE_HEAD": head, **strides}
