"""Puzzles as ops: the specification is the reference, the runs of a puzzle's check are the cases."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared import op as declared
from workbench.ops.op import Op
from workbench.ops.tensors.inputs import make
from workbench.puzzles import Puzzle

_KERNEL_TO_REPLACE = 'extern "C" __global__ void {name}_kernel({parameters}) {{}}'


def op_of(puzzle: Puzzle) -> Op:
    """Return an op that judges a candidate for a puzzle, launched as the puzzle launches it.

    A candidate is CUDA C++ or a ``@triton.jit`` function under the puzzle's name, with the puzzle's parameters. The
    puzzle's goals are not part of a judgement.
    """
    found = declared(puzzle.spec, name=puzzle.name, outputs=puzzle.outputs, exact_sizes=True)
    for sizes in puzzle.sizes:
        label = ", ".join(f"{name}={size}" for name, size in sizes.items())
        found.case(label, **puzzle.inputs, **sizes)
    expressions = dict(_sizes_in_shapes(puzzle))
    args = tuple(expressions.get(name, name) for name in puzzle.parameters)
    launch = puzzle.launches["CUDA"]
    text = _KERNEL_TO_REPLACE.format(
        name=puzzle.name, parameters=", ".join(f"void *{one}" for one in puzzle.parameters)
    )
    grid = tuple(_in_shapes(size, expressions) for size in launch.grid)
    found.cuda(text, kernel=f"{puzzle.name}_kernel", grid=grid, block=launch.block, args=args)
    return found


def _sizes_in_shapes(puzzle: Puzzle) -> Iterator[tuple[str, str]]:
    """Yield each size with an expression that has its value in all runs, such as ``("cols", "x.shape[1]")``."""
    runs = [{name: make(one, name, sizes, 0) for name, one in puzzle.inputs.items()} for sizes in puzzle.sizes]
    for size in puzzle.sizes[0]:
        places = (
            f"{name}.shape[{axis}]"
            for name, value in runs[0].items()
            if isinstance(value, torch.Tensor)
            for axis in range(value.ndim)
            if all(run[name].shape[axis] == sizes[size] for run, sizes in zip(runs, puzzle.sizes, strict=True))
        )
        expression = next(places, None)
        if expression is None:
            got = f"{puzzle.name}, whose {size} is no tensor's length"
            raise ArgumentError("puzzle", got, "one whose sizes are lengths of its inputs", "Declare it with @wb.op.")
        yield size, expression


def _in_shapes(text: str, expressions: Mapping[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda found: expressions.get(found[0], found[0]), text)
