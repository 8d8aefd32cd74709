"""Verdicts of ``wb.prove`` on a corpus of kernels, with CPU seconds: ``python -m benchmarks.proofs``.

The corpus are the solutions of the puzzles, as ops of their specifications, and CUDA kernels of the running example,
with facts about their tables of pages.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import workbench as wb
from benchmarks.own_kernels import OWN
from benchmarks.own_kernels_2026 import OWN_2026
from workbench.base.home import cuda_sources
from workbench.base.terminal import say
from workbench.errors import WorkbenchError
from workbench.ops.declared import Input
from workbench.ops.files import run_file
from workbench.ops.tensors.tensor_type import TensorType
from workbench.proof import Proof
from workbench.proof.family import Family
from workbench.proof.proving import prove_family
from workbench.puzzles import puzzle as puzzle_of
from workbench.toolchain import compile_cuda_module

NOTEBOOKS = Path(__file__).parents[1] / "notebooks" / "puzzles"
OURS: dict[str, dict[str, Any]] = {
    "streaming_read": {
        "grid": "blocks", "block": 256,
        "args": {"out": "int32[1]", "data": "int32[chunks * 2048, 4]", "count": "chunks * 2048"},
        "facts": ["blocks <= 65535", "chunks < 2**40"],
    },
}  # fmt: skip
"""Launches of kernels in cuda_src/ that belong to no op."""


def solutions() -> Iterator[tuple[str, str, str]]:
    """Yield (puzzle, language, source) of each solution in the notebooks."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            text = "".join(cell["source"])
            if "solution" not in cell["metadata"].get("tags", ()):
                continue
            if text.startswith("%%cuda"):
                name = re.search(r"%%cuda (\w+)_solution", text)
                yield name[1] if name else "", "CUDA", text.split("\n", 1)[1]
            else:
                name = re.search(r"def (\w+)_solution_triton", text)
                yield name[1] if name else "", "Triton", text.split("\n\n\nfor kernel")[0]


def of_puzzle(name: str, language: str, source: str, folder: Path) -> Iterator[Proof]:
    """Yield the verdict on a puzzle's solution, as a variant of an op of its specification."""
    puzzle = puzzle_of(name)
    launch = puzzle.launches[language]
    op = wb.op(puzzle.spec, name=f"{name}_{language.lower()}", outputs=puzzle.outputs)
    args = list(puzzle.parameters)
    cases = [op.case(f"{i}", **puzzle.inputs, **one) for i, one in enumerate(reversed(puzzle.sizes))]
    shapes = [
        {key: one.shape for key, one in case.problem().arguments if isinstance(one, TensorType)} for case in cases
    ]
    places = {
        size: f"{key}.shape[{axis}]"
        for size in puzzle.sizes[-1]
        for key, shape in shapes[0].items() for axis in range(len(shape))
        if all(one[key][axis] == case.sizes[size] for one, case in zip(shapes, cases, strict=True))
    }  # fmt: skip
    found = ", ".join(f"{size!r}: {place}" for size, place in places.items())
    sizes = eval(f"lambda {', '.join(puzzle.inputs)}: {{{found}}}")
    if language == "CUDA":
        op.cuda(source, grid=launch.grid, block=launch.block, args=args, sizes=sizes, name="solution")
    else:
        path = folder / f"{name}_solution.py"
        path.write_text(f"import triton\nimport triton.language as tl\n{source}\n")
        function = next(one for key, one in vars(run_file(path)).items() if key.endswith("_solution_triton"))
        constants = dict(launch.constants)
        args = [one for one in args if one in function.arg_names]
        op.triton(function, grid=launch.grid, args=args, constexprs=constants, sizes=sizes, name="solution")
    # Functions make some inputs, with a number of rows that the launch has, too.
    fixed = [
        f"{key}_{axis} == {length}"
        for key, shape in shapes[0].items() if not isinstance(puzzle.inputs[key], Input)
        for axis, length in enumerate(shape) if length > 1 and all(one[key][axis] == length for one in shapes)
    ]  # fmt: skip
    yield from wb.prove(op, facts=fixed)


def of_ours(name: str) -> Proof:
    """Return the verdict on a kernel of the running example with its default tunables."""
    kernel = compile_cuda_module(cuda_sources() / f"{name}.cu")[name]
    return prove_family(Family(kernel, **OURS[name]), kernel)


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Print a table in Markdown of the verdicts on NAMES, default all, with CPU seconds."""
    say("| kernel | verdict | CPU s | preconditions beside sizes >= 1, or why |\n|---|---|---|---|")
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for label, proof in _verdicts(names, Path(folder)):
            if isinstance(proof, Proof):
                seconds.append(proof.seconds)
                why = ", ".join(proof.preconditions[1:]) if proof.ok else "; ".join(proof.lines()[1:3]).strip()
                say(f"| {label} | {proof.status} | {proof.seconds:.1f} | {why.replace('|', '')} |")
            else:
                say(f"| {label} | unknown | | {str(proof).splitlines()[0][:160].replace('|', '')} |")
    if seconds:
        say(f"\nMedian {statistics.median(seconds):.1f} CPU seconds.")


def _verdicts(names: tuple[str, ...], folder: Path) -> Iterator[tuple[str, Proof | WorkbenchError]]:
    for name, language, source in solutions():
        if not names or name in names:
            try:
                for proof in of_puzzle(name, language, source, folder):
                    yield f"puzzle {name}, {language}", proof
            except WorkbenchError as error:
                yield f"puzzle {name}, {language}", error
    for name in OURS:
        if not names or name in names:
            yield name, of_ours(name)
    for name, own in (OWN | OWN_2026).items():
        if not names or name.partition(",")[0].partition(":")[0] in names:
            family = own.family()
            yield name, prove_family(family, family.kernel)


if __name__ == "__main__":
    main()
