"""Vector loads of which a kernel uses a part: ptxas loads the elements that are used, one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.analysis.atomics import machine_code_by_ptx_line
from workbench.ptx import Program
from workbench.ptx.report import LaunchReport, LineFacts

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

_VECTOR = re.compile(r"(?:@!?%\w+\s+)?ld\.global[\w.:]*\.v[248]\.[a-z]+(?P<bits>\d+)\s*\{(?P<targets>[^}]*)\}")
_REGISTER = re.compile(r"%[\w$]+")
_LETTERS = "xyzwstuv"


@dataclass(frozen=True)
class PartlyUsed:
    """A vector load in global memory: which of its elements are used, and the loads that ptxas makes of it.

    ``loads`` is their number, ``bits`` the width of each.
    """

    facts: LineFacts
    elements: int
    used: str
    loads: int
    bits: int

    @property
    def unused_bytes(self) -> int:
        """Bytes of the vectors that lanes load in the PTX and that nothing uses."""
        return self.facts.distinct_bytes * (self.elements - len(self.used)) // self.elements


def partly_used(report: LaunchReport, kernel: CompiledKernel) -> Iterator[PartlyUsed]:
    """Yield the vector loads of a launch with elements that nothing uses, where the machine code has narrower loads."""
    vectors = [(facts, found) for facts in report.lines if (found := _VECTOR.match(facts.text))]
    if not vectors:
        return
    named, made = _names(kernel), machine_code_by_ptx_line(kernel)
    for facts, found in vectors:
        targets = [one.strip() for one in found["targets"].split(",")]
        used = [at for at, one in enumerate(targets) if named[one] > 1]
        width, classes = int(found["bits"]), made.get(facts.ptx_line, Counter[str]())
        bits = max((int(name.partition(".")[2]) for name in classes if name.startswith("LDG.")), default=0)
        if used and bits and bits < width * len(targets):
            letters = "".join(_LETTERS[at] for at in used)
            yield PartlyUsed(facts, len(targets), letters, max(width * len(used) // bits, 1), bits)


def _names(kernel: CompiledKernel) -> Counter[str]:
    """Return how often the PTX of a kernel names each register."""
    module = Program.from_text(kernel.ptx).module
    entry = module.entries[kernel.name]
    return Counter(_REGISTER.findall(module.text, entry.body_start, entry.body_end))
