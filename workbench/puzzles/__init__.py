"""Puzzles: fourteen small kernels to write, in CUDA C++ and in Triton, each with a check that names mistakes.

``puzzle("guard")`` is one of them: ``print`` shows what to compute, ``.picture`` draws it, ``.check(kernel)`` runs a
kernel in the PTX machine and reports what is wrong with it, ``.hint()`` prints the next hint. The notebooks in
``notebooks/puzzles`` have the kernels to start from, and solutions.
"""

from __future__ import annotations

import importlib

from workbench.errors import UnknownNameError
from workbench.puzzles.feedback import Feedback, Remark
from workbench.puzzles.task import Puzzle

_HOMES = {
    "map": "elements",
    "zip": "elements",
    "guard": "elements",
    "stencil": "neighbours",
    "reduction": "neighbours",
    "scan": "neighbours",
    "transpose": "tiles",
    "softmax": "rows",
    "matmul": "tiles",
    "online_softmax": "rows",
    "paged_read": "serving",
    "quantize": "serving",
    "latent_read": "attention",
    "ragged_prompt": "attention",
}

NAMES = tuple(_HOMES)
"""The names of the puzzles, from the easiest to the hardest."""

__all__ = ["NAMES", "Feedback", "Puzzle", "Remark", "puzzle"]


def puzzle(name: str) -> Puzzle:
    """Return the puzzle of that name. Raises UnknownNameError, with the names of all puzzles."""
    if name not in _HOMES:
        raise UnknownNameError("puzzle", repr(name), ", ".join(NAMES), "Choose one of these.")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    found: Puzzle = next(one for one in module.PUZZLES if one.name == name)
    return found
