"""A run of a reader's kernel on the inputs of a puzzle, compared with the specification."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from workbench.ptx import Finding

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""Errors that count as rounding of float32."""
_UNWRITTEN = -98765.4375
"""Element of an output before the launch. A sum with it is another number, which one with NaN would not be."""
_BY_CHANCE = 32
"""An output of bytes is unwritten from this fraction of its elements on."""
_SHOWN = 3
"""Places that a sentence names."""


@dataclass(frozen=True)
class PuzzleRun:
    """The arguments of one run by name, the outputs that the specification expects, and those of the kernel.

    ``before`` holds the outputs as they were before the launch; ``findings`` and ``notes`` are those of the checks.
    """

    language: str
    sizes: Mapping[str, int]
    arguments: Mapping[str, torch.Tensor]
    expected: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]
    before: Mapping[str, torch.Tensor]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The sizes as text, such as ``n = 100``."""
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items())

    @cached_property
    def wrong(self) -> dict[str, torch.Tensor]:
        """For each output a mask of the elements with a wrong value."""
        return {name: ~same(self.outputs[name], right) for name, right in self.expected.items()}

    @cached_property
    def unwritten(self) -> dict[str, torch.Tensor]:
        """For each output a mask of the wrong elements that the kernel did not change."""
        return {name: self._unwritten(name, wrong) for name, wrong in self.wrong.items()}

    def _unwritten(self, name: str, wrong: torch.Tensor) -> torch.Tensor:
        """Return a mask of unwritten elements; a few bytes without change may have been written with that value."""
        kept = wrong & _unchanged(self.outputs[name], self.before[name])
        by_chance = self.outputs[name].element_size() == 1 and kept.sum() * _BY_CHANCE < kept.numel()
        return torch.zeros_like(kept) if by_chance else kept

    @property
    def is_right(self) -> bool:
        """True if every element of every output is right."""
        return not any(bool(wrong.any()) for wrong in self.wrong.values())

    @property
    def has_wrong_values(self) -> bool:
        """True if the kernel wrote an element that is wrong."""
        return any(map(self.has_wrong, self.wrong))

    def has_wrong(self, name: str) -> bool:
        """Return True if the kernel wrote a wrong element to this output."""
        return bool((self.wrong[name] & ~self.unwritten[name]).any())

    @property
    def wrote_nothing(self) -> bool:
        """True if no element of any output has changed."""
        return all(bool(_unchanged(self.outputs[name], self.before[name]).all()) for name in self.outputs)

    @property
    def first_wrong(self) -> str:
        """The first output with a wrong element that the kernel wrote."""
        return next(filter(self.has_wrong, self.wrong))

    def applied(self, function: Callable) -> Any:
        """Call a function with the arguments and sizes that its parameters name."""
        known = {**self.arguments, **self.sizes}
        return function(**{name: known[name] for name in inspect.signature(function).parameters if name in known})

    def values(self) -> str:
        """Describe the wrong elements of the first output that has some, with one of them as an example."""
        name = self.first_wrong
        wrong = self.wrong[name] & ~self.unwritten[name]
        place = tuple(wrong.nonzero()[0].tolist())
        got, right = self.outputs[name][place].item(), self.expected[name][place].item()
        return f"{_element(name, place)} is {got:.6g}, right is {right:.6g}; {_share(wrong)} are wrong"

    def gaps(self) -> str:
        """Describe the elements that were never written, with the first places."""
        name = next(name for name, mask in self.unwritten.items() if bool(mask.any()))
        mask = self.unwritten[name]
        places = [_element(name, tuple(place)) for place in mask.nonzero()[:_SHOWN].tolist()]
        more = ", …" if int(mask.sum()) > len(places) else ""
        return f"never written: {', '.join(places)}{more} ({_share(mask)})"


def outputs_for(expected: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return outputs that hold what no right kernel leaves: an odd number, or the smallest integer."""
    made = {name: torch.empty_like(right) for name, right in expected.items()}
    for out in made.values():
        out.fill_(_UNWRITTEN if out.is_floating_point() else torch.iinfo(out.dtype).min)
    return made


def same(got: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that agree but for rounding; integers and NaN have to be equal."""
    if not right.is_floating_point():
        return got == right
    return torch.isclose(got, right.to(got.dtype), rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


def _unchanged(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements whose bytes are equal, as NaN is not equal to itself."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[now.element_size()]
    return now.view(kind) == before.view(kind)


def _element(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]"


def _share(mask: torch.Tensor) -> str:
    return f"{int(mask.sum()):,} of {mask.numel():,} elements"
