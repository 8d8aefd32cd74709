"""Signs of mistakes: functions of a run that return the evidence of one mistake, or None.

``computes`` recognizes a mistake by its result: it computes what a kernel with that mistake would, and compares. The
others look at what the machine found, or at the elements that were not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.places import source_text
from workbench.puzzles.run import PuzzleRun, same

if TYPE_CHECKING:
    from workbench.ptx import Finding


@dataclass(frozen=True)
class Evidence:
    """Evidence of a mistake: a sentence, the source lines, and the finding if the machine found it."""

    seen: str
    line: str = ""
    finding: Finding | None = None


Sign = Callable[[PuzzleRun], Evidence | None]


def computes(*functions: Callable[..., Any]) -> Sign:
    """Return the sign that the wrong outputs are those of one of the functions, called by argument names.

    A function returns a tensor for each output, or None for an output that may be anything. Elements that the kernel
    did not write are not compared.
    """

    def look(run: PuzzleRun) -> Evidence | None:
        if not run.has_wrong_values:
            return None
        for function in functions:
            made = run.applied(function)
            several = made if isinstance(made, tuple) else (made,)
            known = {name: one for name, one in zip(run.outputs, several, strict=True) if one is not None}
            if all(_agree(run, name, one) for name, one in known.items()) and any(map(run.has_wrong, known)):
                return Evidence(run.values())
        return None

    return look


def _agree(run: PuzzleRun, name: str, made: torch.Tensor) -> bool:
    return bool(same(run.outputs[name], made)[~run.unwritten[name]].all())


def wrong_only(where: Callable[..., torch.Tensor]) -> Sign:
    """Return the sign that the wrong elements are exactly those of the mask that ``where`` makes."""

    def look(run: PuzzleRun) -> Evidence | None:
        if not run.has_wrong_values:
            return None
        name = run.first_wrong
        matches = torch.equal(run.wrong[name], run.applied(where).expand_as(run.wrong[name]))
        return Evidence(run.values()) if matches and not run.unwritten[name].any() else None

    return look


def leaves(where: Callable[..., torch.Tensor], output: str | None = None) -> Sign:
    """Return the sign that the elements of the mask that ``where`` makes, and no others, were not written.

    ``output`` names the output; default the first.
    """

    def look(run: PuzzleRun) -> Evidence | None:
        mask = run.unwritten[output or next(iter(run.unwritten))]
        expected = run.applied(where)
        return Evidence(run.gaps()) if mask.any() and torch.equal(mask, expected.expand_as(mask)) else None

    return look


def finds(kind: str, buffer: str | None = None, *, text: str = "", unless: str | None = None) -> Sign:
    """Return the sign that the machine reported a finding of this kind.

    Args:
        kind: the finding's kind, or its end: "race" stands for races in shared and in global memory.
        buffer: the argument that was accessed.
        text: a part of the finding's message.
        unless: an argument that no finding of the kind may be about.
    """

    def look(run: PuzzleRun) -> Evidence | None:
        found = [one for one in run.findings if one.kind.endswith(kind)]
        if kind.startswith("uninitialised") and any(one.kind.endswith("race") for one in run.findings):
            return None  # the reader came before the writer
        if unless is not None and any(one.buffer == unless for one in found):
            return None
        for one in found:
            if buffer in (None, one.buffer) and text in one.message:
                return Evidence(sentence(one, run), code_lines(one), one)
        return None

    return look


_WRAPPED = 1 << 32
_SHARED_END = 1 << 56
_BEYOND = re.compile(r"(\d+) bytes (past the end of|before) (\w+), which has (\d+) bytes")


def sentence(finding: Finding, run: PuzzleRun) -> str:
    """Describe a finding in terms of threads and elements."""
    who = f"thread {_place(finding.thread)} of block {_place(finding.block)}"
    if finding.kind.endswith("out-of-bounds") and (place := _BEYOND.search(finding.message)):
        tensor = {**run.arguments, **run.outputs}[place[3]]
        distance = int(place[1]) // tensor.element_size()
        at = -distance if place[2] == "before" else tensor.numel() + distance
        if at >= _WRAPPED - tensor.numel():
            at -= _WRAPPED  # the index was computed without a sign, and is negative
        times = f" ({finding.count:,} such accesses)" if finding.count > 1 else ""
        return f"{who} accesses element {at} of {place[3]}, which has {tensor.numel():,} elements{times}"
    if finding.kind.endswith("race"):
        other = f"thread {_place(finding.other_thread)}" if finding.other_thread is not None else "another thread"
        if finding.other_block is not None:
            other = f"block {_place(finding.other_block)}"
        where = f"the same element of {finding.buffer}" if finding.buffer else "the same place"
        return f"{who} and {other} access {where} in no certain order"
    if finding.kind == "divergent barrier":
        return f"{who} waits at the barrier, and other threads of its warp are elsewhere"
    if is_in_shared(finding):
        at = finding.address or 0
        at -= _SHARED_END * (at > _SHARED_END // 2)  # below the first byte
        return f"{who} accesses byte {at} of shared memory, which the kernel does not have"
    if finding.kind == "timeout":
        return f"{who} is still running when the time is over"
    if finding.kind.startswith("uninitialised"):
        return f"{who} reads an element of {finding.buffer or 'memory'} that no thread has written"
    return finding.message.replace(finding.kernel_source, finding.kernel_source.rsplit("/", 1)[-1])


def code_lines(finding: Finding) -> str:
    """Return the line of a finding, and that of a race's other side."""
    both = (finding.kernel_source, finding.kernel_line), (finding.other_kernel_source, finding.other_kernel_line)
    return "\n".join(dict.fromkeys(filter(None, (code_line(*place) for place in both))))


def code_line(source: str, line: int | None) -> str:
    """Return a line of the kernel with its number, such as ``line 4: out[i] = x[i];``, or nothing."""
    text = source_text(source, line, nowhere="").strip() if line else ""
    return f"line {line}: {text}" if text else ""


def _place(at: tuple[int, int, int]) -> str:
    kept = list(at)
    while len(kept) > 1 and kept[-1] == 0:
        kept.pop()
    return str(kept[0]) if len(kept) == 1 else f"({', '.join(map(str, kept))})"


def is_in_shared(finding: Finding) -> bool:
    """Return True for an access outside of the block's shared memory."""
    return finding.kind == "out-of-bounds" and "of shared memory" in finding.message


def is_one_past(finding: Finding) -> bool:
    """Return True for an access out of bounds by one thread, of the element just past the end."""
    place = _BEYOND.search(finding.message)
    return place is not None and place[1] == "0" and place[2] != "before" and finding.count <= finding.places
