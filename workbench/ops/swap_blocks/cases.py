"""Named swaps with a known answer: every byte of every target cache.

Source caches hold random bytes, so that no two pages, caches or halves of a page agree; target caches hold ones. Both
sides have free pages, another number of them, and pages of the targets lie further apart. All sources are parts of one
allocation and all targets of another. ``Tensors.out`` is the targets, and the answer is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

import torch

from workbench.errors import ArgumentError
from workbench.ops.paged_attention.problem import DTYPES
from workbench.ops.swap_blocks.problem import Problem, Tensors, tensors_of
from workbench.ops.variant import Check

_UNWRITTEN = 0xFF
_GAP = 32
"""Bytes between two pages of a target."""


@dataclass(frozen=True)
class Case:
    """One swap of the key and value caches of ``num_layers`` layers; ``block_size`` is in tokens."""

    name: str
    num_layers: int
    num_kv_heads: int
    head_size: int
    num_pairs: int
    block_size: int = 16
    dtype: str = "float16"
    seed: int = 0

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise ArgumentError("dtype", repr(self.dtype), ", ".join(DTYPES), "Change the case.")

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of one cache."""
        return self.block_size * self.num_kv_heads * self.head_size * DTYPES[self.dtype].itemsize

    @property
    def label(self) -> str:
        """The name with what distinguishes it, e.g. ``preempt 16 pairs 4 caches of 32768-byte pages``."""
        return f"{self.name} {self.num_pairs} pairs {2 * self.num_layers} caches of {self.page_bytes}-byte pages"

    def override(self, **changes) -> Self:
        """The case with fields changed; ArgumentError for a name that is no field."""
        known = [item.name for item in fields(self)]
        for name in changes:
            if name not in known:
                raise ArgumentError("override", name, ", ".join(known), "Name a field.")
        return replace(self, **changes)

    def problem(self, config: Mapping[str, Any] | None = None, arch: str = "sm_80") -> Problem:
        """The problem to solve; no configuration changes it."""
        return Problem(self.num_pairs, 2 * self.num_layers, self.page_bytes, arch=arch)

    def minimum_bytes(self, problem: Problem) -> int:
        """Bytes that must cross memory once: each page read and written, in every cache, and what says where."""
        return 2 * self.num_layers * (2 * self.num_pairs * self.page_bytes + 16) + 16 * self.num_pairs

    def inputs(self, problem: Problem, device: str | torch.device = "cpu") -> Tensors:
        """Fresh tensors; the targets are parts of ``out``."""
        out = torch.full_like(_answer(self), _UNWRITTEN, device=device)
        targets = out[:, :, : self.page_bytes]
        return tensors_of(
            _sources(self).to(device, copy=True).unbind(0), targets.unbind(0), _pairs(self).to(device, copy=True), out
        )

    def reference(self) -> torch.Tensor:
        """The target caches afterwards, gaps included, ``[num_caches, pages, bytes] uint8``."""
        return _answer(self)

    def check(self, out: torch.Tensor) -> Check:
        """Judge an output by its bytes; ``max_error`` is the largest difference of two."""
        expected = _answer(self)
        if out.shape != expected.shape or out.dtype != expected.dtype:
            raise ArgumentError(
                "out", f"{out.dtype} {tuple(out.shape)}", f"torch.uint8 {tuple(expected.shape)}", "Pass tensors.out."
            )
        error = int((out.detach().cpu().int() - expected.int()).abs().max())
        return Check(float(error), 0.0, error == 0)

    def to_dict(self) -> dict:
        """Plain values; `from_dict` makes the case again."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Case:
        """The case of a record made by `to_dict`."""
        return cls(**record)


@functools.lru_cache(maxsize=16)
def _pairs(case: Case) -> torch.Tensor:
    """``[num_pairs, 2] int64`` out of ``num_pairs + 2`` source pages and ``num_pairs + 3`` target pages, shuffled."""
    generator = torch.Generator().manual_seed(case.seed)
    sides = [torch.randperm(case.num_pairs + free, generator=generator)[: case.num_pairs] for free in (2, 3)]
    return torch.stack(sides, 1)


def _sources(case: Case) -> torch.Tensor:
    """``[num_caches, pages, page_bytes] uint8``."""
    generator = torch.Generator().manual_seed(case.seed + 1)
    shape = (2 * case.num_layers, case.num_pairs + 2, case.page_bytes)
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator)


@functools.lru_cache(maxsize=8)
def _answer(case: Case) -> torch.Tensor:
    sources = _sources(case)
    apart = -(-case.page_bytes // 16) * 16 + _GAP
    targets = torch.full((len(sources), case.num_pairs + 3, apart), _UNWRITTEN, dtype=torch.uint8)
    for source, destination in _pairs(case).tolist():
        targets[:, destination, : case.page_bytes] = sources[:, source]
    return targets


CASES = {
    item.name: item
    for item in (
        Case("small", num_layers=2, num_kv_heads=2, head_size=80, num_pairs=5, block_size=8),
        Case("preempt", num_layers=2, num_kv_heads=8, head_size=128, num_pairs=16),
        Case("layers", num_layers=32, num_kv_heads=2, head_size=64, num_pairs=2, dtype="bfloat16"),
        Case("tiny-pages", num_layers=1, num_kv_heads=1, head_size=20, num_pairs=9, block_size=1, dtype="float32"),
    )
}


def case(name: str, **overrides) -> Case:
    """The case of that name; ``overrides`` as in `Case.override`, e.g. ``num_pairs=64``."""
    from workbench.ops.swap_blocks import OP

    return OP.case(name, **overrides)
