"""Mistakes of any puzzle, recognized by findings, by unwritten elements or by wrong values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.puzzles.feedback import Remark
from workbench.puzzles.run import PuzzleRun
from workbench.puzzles.signs import code_lines, is_in_shared, is_one_past, sentence

if TYPE_CHECKING:
    from workbench.errors import CompileError

_OF_FINDINGS = {
    "shared race": (
        "missing barrier",
        "Between a write to shared memory and another thread's read or next write, all threads of the block have to "
        "meet: __syncthreads().",
    ),
    "global race": (
        "two threads write one element",
        "Give every element of the output one thread. Does the index count blocks as well as threads?",
    ),
    "uninitialised shared read": (
        "shared memory read before it is written",
        "Let every element that is read be written first, also those without an input: write 0 there.",
    ),
    "uninitialised global read": (
        "output read before it is written",
        "The output holds no zeros at the start. Add up in a register and write the output once.",
    ),
    "deadlock": ("wait that does not end", "Who changes what the waiting threads read, or arrives where they wait?"),
    "timeout": ("kernel that does not end", "Does the condition of every loop become false?"),
    "divergent barrier": (
        "barrier that only some threads reach",
        "Take __syncthreads() out of the if: all threads of the block have to reach it.",
    ),
}
_GUARDS = {
    "CUDA": "Let a thread work only if its element exists: if (i < n). If every thread has one, the index is wrong.",
    "Triton": "Give tl.load and tl.store a mask= of the elements that exist. If all do, the index is wrong.",
}
RACES = ("shared race", "warp race")
ALIASES = {"warp race": "shared race"}
CONSEQUENCES = {"out-of-bounds", "global race", "uninitialised shared read"}
"""Kinds of findings that follow from a wrong index: a remark that names the index is enough."""


def of_findings(run: PuzzleRun, known: set[str]) -> Iterator[Remark]:
    """Yield a remark for each kind of finding that is not among the ``known`` ones."""
    if any(finding.kind in RACES for finding in run.findings):
        known.add("uninitialised shared read")  # the reader came before the writer
    if any(finding.kind == "out-of-bounds" and not is_in_shared(finding) for finding in run.findings):
        known |= CONSEQUENCES - {"out-of-bounds"}
    for finding in run.findings:
        kind = ALIASES.get(finding.kind, finding.kind)
        if kind in known:
            continue
        known.add(kind)
        if is_in_shared(finding):
            name = "index beyond the shared array"
            remedy = "Compare the size of the __shared__ array with the largest index that a thread uses."
        elif kind == "out-of-bounds":
            one_past = is_one_past(finding)
            name = "guard off by one" if one_past else "missing guard"
            remedy = "The last element has the index n - 1: compare with < instead of <=." if one_past else ""
            remedy = remedy or _GUARDS[run.language]
        else:
            name, remedy = _OF_FINDINGS.get(kind, (kind, "The line above is the place to look at."))
        yield Remark(name, run.label, sentence(finding, run), code_lines(finding), remedy)


def of_notes(run: PuzzleRun) -> Iterator[Remark]:
    """Yield a remark for each masked load of Triton whose masked elements have no value and reach a result."""
    for note in run.notes:
        if "without other=" in note:
            place, _, words = note.partition(": ")
            seen = f"line {place.rpartition(':')[2]}: {words.partition('. ')[0]}"
            remedy = "Give the load other=: 0.0 for a sum, -float('inf') for a maximum."
            yield Remark("masked elements without a value", run.label, seen, "", remedy)


def refused(run: PuzzleRun, error: CompileError) -> Remark:
    """Return the remark on a kernel that Triton does not compile."""
    first, *code = error.log.splitlines() or str(error).splitlines()
    number = re.search(r":(\d+): ", first)
    seen = code.pop() if code else first
    where = f", in line {number[1]}" if number else ""
    return Remark("kernel that does not compile", run.label, seen + where, "\n".join(code), "Correct what it names.")


def of_values(run: PuzzleRun) -> Iterator[Remark]:
    """Yield remarks on elements that were not written, and on wrong values."""
    if any(bool(mask.any()) for mask in run.unwritten.values()):
        remedy = "Does every element have a thread? Check the index, and the loop's end."
        yield Remark("elements left out", run.label, run.gaps(), "", remedy)
    if run.has_wrong_values:
        remedy = "Work the element out by hand, and compare it with the kernel line by line."
        yield Remark("wrong values", run.label, run.values(), "", remedy)


def nothing(run: PuzzleRun) -> Remark:
    """Return the remark on a kernel that wrote nothing."""
    names = ", ".join(run.outputs)
    return Remark("nothing written", run.label, f"the kernel leaves {names} as it was", "", "Fill in the kernel.")
