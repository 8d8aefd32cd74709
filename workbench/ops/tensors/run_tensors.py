"""The tensors of one run: what kernels are given by name, and what of it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, is_dataclass
from typing import Any

import torch

from workbench.ops.tensors.checks import extent
from workbench.ops.tensors.poison import poison

MADE = "made for a run"
"""Key in the metadata of a field that is not an argument of the op."""


def made(default: Any = None) -> Any:
    """Return a field of a run's tensors that is not an argument of the op; a case, or the run itself, makes it."""
    return field(default=default, metadata={MADE: True})


class RunTensors:
    """A dataclass whose fields are tensors, numbers, and tuples or dataclasses of them, under the kernels' names.

    Its field ``out`` is what a run writes and a case judges; other fields may be parts of the same memory.
    """

    out: Any

    def members(self) -> Iterable[object]:
        """Return every tensor and number."""
        return vars(self).values()

    def named(self) -> dict[str, torch.Tensor]:
        """Return every tensor by its name, such as ``sources[0]``, without the workspace."""
        found: dict[str, torch.Tensor] = {}
        for name, value in vars(self).items():
            if name != "workspace":
                found |= _named(name, value)
        return found

    def judged(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that a run writes and a case judges, by name."""
        return {"out": self.out}

    def fresh(self) -> frozenset[str]:
        """Return the names of judged tensors that hold nothing before a run; integers may be bytes of anything."""
        return frozenset({"out"} if self.out.is_floating_point() else ())

    def renew(self) -> None:
        """Fill the judged tensors so that elements that a run does not write are noticed."""
        poison(self.out)


def _named(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a value holds, with their names."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _named(f"{name}[{index}]", one)
    elif is_dataclass(value):
        for part, one in vars(value).items():
            yield from _named(f"{name}.{part}", one)


def name_of(tensor: torch.Tensor, named: Mapping[str, torch.Tensor]) -> str | None:
    """Return the first name of a tensor that starts where this one does and is no shorter; None where there is none."""
    place, end = place_of(tensor), extent(tensor)
    found = (name for name, one in named.items() if place_of(one) == place and extent(one) >= end)
    return next(found, None)


def place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the memory that a tensor lies in, by an identity, and how many bytes into it the tensor starts."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset() * tensor.element_size()
