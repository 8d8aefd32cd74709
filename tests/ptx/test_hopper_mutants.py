"""Every fence, wait, arrival, count and group of the kernels for sm_90a left out or shifted by one.

Each is noticed, or harmless for a reason that stands here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from sampling import long_if
from test_hopper import ORDERS, launched, program

from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.ptx import Program, PtxSyntaxError

# By the words of a statement: what is done to it. A wait is a loop, whose branch back goes.
LEFT_OUT = (
    "fence.proxy.async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group", "mbarrier.init", "mbarrier.arrive", "bar.sync", "barrier.cluster.arrive",
    "barrier.cluster.wait", "@!done bra",
)  # fmt: skip
COUNTED = ("mbarrier.init", "mbarrier.arrive.expect_tx")
# How many of a kind go unnoticed, and why nothing can notice them.
HARMLESS = {
    ("doubled", "bar.sync", "left out"): (1, "the last one: nobody accesses shared memory after it"),
    ("pipeline", "wgmma.fence", "left out"): (3, "in an unrolled loop, where products alone touch the registers"),
    ("pipeline", "mbarrier.arrive", "left out"): (1, "the last one: no stage is filled again"),
}


class Mutant(NamedTuple):
    kernel: str
    line: int
    words: str
    change: str
    text: str


def mutants(kernel: str) -> Iterator[Mutant]:
    """Those of one kernel, each with the PTX of the whole module."""
    module = program().module
    lines, entry = module.text.splitlines(), module.entries[kernel]
    for number in range(module.line_of(entry.body_start) - 1, module.line_of(entry.body_end)):
        line = lines[number].strip()
        words = next((words for words in LEFT_OUT if words in line), None)
        if words is None:
            continue

        def changed(text: str, number: int = number) -> str:
            return "\n".join([*lines[:number], text, *lines[number + 1 :]])

        yield Mutant(kernel, number, words, "left out", changed(""))
        if any(counted in line for counted in COUNTED):
            target, register = re.match(r"(.*), (%r\d+);", line).groups()
            more = f"{{ .reg .b32 %more; add.u32 %more, {register}, 1; {target}, %more; }}"
            yield Mutant(kernel, number, words, "one more", changed(more))


def noticed(mutant: Mutant) -> str:
    """What gives a mutant away: a finding's kind, a fault, a wrong value; empty if nothing does."""
    try:
        kernel = Program(mutant.text)[mutant.kernel]
    except (UnsupportedInstructionError, PtxSyntaxError) as error:
        return f"refused: {error}"
    for order in ORDERS:
        try:
            error, report = launched(kernel, mutant.kernel, checks=True, **order)
        except KernelFault as fault:
            return fault.finding.kind
        if report.findings:
            return report.findings[0].kind
        if not error < 1e-4:
            return "wrong values"
    return ""


@pytest.mark.parametrize("kernel", ["doubled", long_if(True, "pipeline"), "row_sums"])
def test_no_mutant_goes_unnoticed(kernel: str) -> None:
    found = [(mutant, noticed(mutant)) for mutant in mutants(kernel)]
    assert len(found) >= 4
    assert not [f"line {one.line}: {one.words} {one.change}" for one, by in found if by.startswith("refused")]
    missed = Counter((one.kernel, one.words, one.change) for one, by in found if not by)
    assert missed == {kind: count for kind, (count, _) in HARMLESS.items() if kind[0] == kernel}
