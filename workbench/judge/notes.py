"""Notes on kernels beside their verdict, which do not fail it."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.check_report import said_by_ptxas
from workbench.errors import WorkbenchError
from workbench.toolchain.half_sums import half_sum
from workbench.toolchain.ptx_text import kernels_of_ptx


def notes_on_code(ptx: Sequence[str], float32: bool) -> list[str]:
    """Return notes on PTX: sums in 16 bits of a ``float32`` problem, and what ptxas ignores or serializes."""
    notes = [half_sum(ptx)] if float32 else []
    for text in ptx:
        try:
            notes += [note for kernel in kernels_of_ptx(text).values() for note in said_by_ptxas(kernel)]
        except WorkbenchError:
            continue
    return [*dict.fromkeys(filter(None, notes))]
