"""Exact comparison of two kernels that are launched with the same arguments, where no reference is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from workbench.analysis.exact import ExactAnswer, Side, as_floats, compared, elements
from workbench.errors import ArgumentError
from workbench.launch.checking import run_on_elements
from workbench.launch.sim import machine_kernel
from workbench.ops.tensors.inputs import Input, make, randn

_TENSOR = re.compile(r"(float\d+|bfloat16)\[([\d, ]*)\]")


def argument_of(text: str) -> Any:
    """Return the argument that a terminal names: ``float32[2, 70]`` for a tensor that is drawn, or a number.

    Raises ArgumentError for other text.
    """
    if found := _TENSOR.fullmatch(text.strip()):
        return randn(*(int(one) for one in found[2].split(",") if one.strip()), dtype=found[1])
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        allowed = "float32[2, 70] with a dtype of floats, or a number"
        raise ArgumentError("arg", repr(text), allowed, "Other tensors: wb.compare_code(args=...) in Python.") from None


def dimensions_of(text: str) -> tuple[int, ...]:
    """Return grid or block of a terminal: ``8`` or ``8,4``. Raises ArgumentError for other text."""
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise ArgumentError("grid or block", repr(text), "one to three numbers", "For example 8 or 8,4.") from None


@dataclass
class DrawnLaunch:
    """A launch of a kernel with arguments that are drawn; ``outputs`` are the positions of tensors to compare."""

    kernel: Any
    grid: Any
    block: Any
    args: Sequence[Any]
    outputs: set[str] = field(default_factory=set)

    def written(self) -> set[str]:
        """Return the tensors of floats that the kernel changes."""
        before = {name: elements(one) for name, one in _floats(self._drawn(0)).items()}
        self.outputs = set(before)
        return {
            name for name, one in self.results(0, {}, Side(self.results)).items() if not torch.equal(one, before[name])
        }

    def results(self, number: int, replaced: Mapping[str, torch.Tensor], side: Side) -> dict[str, torch.Tensor]:
        """Run the launch on elements; return those of the outputs."""
        given = self._drawn(number)
        for name, one in replaced.items():
            _floats(given)[name].copy_(as_floats(one))
        compiled = run_on_elements(self.kernel, grid=self.grid, block=self.block, args=given)
        passed = [one for one in given if isinstance(one, float)]
        side.take_kernels([machine_kernel(compiled)], passed)
        return {name: elements(one) for name, one in _floats(given).items() if name in self.outputs}

    def inputs(self, number: int) -> dict[str, torch.Tensor]:
        """Return the tensors of floats among the arguments of a draw."""
        return _floats(self._drawn(number))

    def _drawn(self, number: int) -> list[Any]:
        made = (make(one, f"args[{place}]", {}, number) for place, one in enumerate(self.args))
        return [_copied(one) for one in made]


def exactly(first: DrawnLaunch, second: DrawnLaunch) -> ExactAnswer:
    """Return whether two launches are the same computation, in the tensors that one of them changes.

    Raises ArgumentError for arguments of which none is drawn.
    """
    if not any(isinstance(one, Input) or callable(one) for one in first.args):
        remedy = "Describe one, wb.randn(64, 70): two draws are compared."
        raise ArgumentError("args", f"{len(first.args)} values", "one or more that are drawn", remedy)
    if first.grid is None:
        raise ArgumentError("grid", None, "the blocks of the launch", "exact=True with kernels: grid=, block=, args=.")

    def side_of(launch: DrawnLaunch) -> Side:
        def compute(number: int, given: Mapping[str, torch.Tensor], side: Side) -> dict[str, torch.Tensor]:
            if not first.outputs:
                first.outputs = second.outputs = first.written() | second.written()
            return launch.results(number, given, side)

        return Side(compute, launch.inputs)

    return compared(side_of(first), side_of(second))


def _floats(given: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return the tensors of floats among arguments, by position."""
    tensors = {f"args[{at}]": torch.from_numpy(v) if isinstance(v, np.ndarray) else v for at, v in enumerate(given)}
    return {at: v for at, v in tensors.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value
