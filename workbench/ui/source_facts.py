"""Facts that a source view can show beside each line: their text, and the length of their bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.analysis.places import Place
    from workbench.launch import Trace, TracedLine
    from workbench.ptx import Finding


@dataclass(frozen=True)
class SourceFact:
    """One kind of fact about source lines.

    Attributes:
        name: key of the fact.
        label: its label on a button.
        meaning: its explanation for users.
        text: function of a line that returns the text in the gutter; empty if the fact does not apply.
        heat: function of a line that returns its amount in any unit; the line with the most has a full bar.
    """

    name: str
    label: str
    meaning: str
    text: Callable[[TracedLine], str]
    heat: Callable[[TracedLine], float]


FACTS: tuple[SourceFact, ...] = (
    SourceFact(
        "instructions",
        "instructions",
        "share of all warp instructions, in the text and in the bar",
        lambda line: f"{100 * line.share:.1f} %",
        lambda line: line.instructions,
    ),
    SourceFact(
        "lanes",
        "active lanes",
        "active lanes of 32; the bar is the cost of idle lanes, lanes x instructions",
        lambda line: f"{line.active_lanes:.0f} of 32",
        lambda line: line.instructions * (32 - line.active_lanes),
    ),
    SourceFact(
        "sectors",
        "sectors / request",
        "32-byte sectors per request of global memory, and the ideal; the bar is all sectors beyond it",
        lambda line: (
            f"{line.sectors_per_request:.1f} / {line.ideal_sectors_per_request:.1f}" if line.global_requests else ""
        ),
        lambda line: line.global_sectors - line.global_ideal_sectors,
    ),
    SourceFact(
        "bytes",
        "bytes moved",
        "bytes of all sectors that requests to global memory touch, and the part of them used; the bar is bytes",
        lambda line: (
            f"{_bytes(line.bytes_moved)}, {100 * line.used_fraction:.0f} %" if line.used_fraction is not None else ""
        ),
        lambda line: line.bytes_moved,
    ),
    SourceFact(
        "wavefronts",
        "wavefronts",
        "passes through the banks of shared memory, and those without conflicts; the bar is the conflicts",
        lambda line: f"{line.shared_wavefronts:,} / {line.shared_ideal_wavefronts:,}" if line.shared_wavefronts else "",
        lambda line: line.shared_wavefronts - line.shared_ideal_wavefronts,
    ),
    SourceFact(
        "copies",
        "bytes by bulk copies",
        "bytes that bulk copies (TMA) bring to shared memory, and the part of them inside the tensor; the bar is bytes",
        lambda line: (
            f"{_bytes(line.landed_bytes)}, {1 - line.filled_bytes / line.landed_bytes:.0%}" if line.landed_bytes else ""
        ),
        lambda line: line.landed_bytes,
    ),
    SourceFact(
        "waits",
        "barrier waits",
        "warp instructions that warps waited at the barrier of this line, in the text and in the bar",
        lambda line: f"{line.barrier_waits:,}" if line.barrier_waits else "",
        lambda line: line.barrier_waits,
    ),
)

FINDINGS = "findings"
"""Name of the fact that is not a count: the findings of checks."""

LABELS = {fact.name: (fact.label, fact.meaning) for fact in FACTS} | {
    FINDINGS: ("findings", "findings of the checks on this line, or with their other side on it")
}
"""Label and meaning of each fact."""


def values_of(trace: Trace, findings: Iterable[Finding]) -> dict[str, dict[Place, tuple[str, float]]]:
    """Return (text, heat from 0 to 1) by fact and place; places without a text are omitted."""
    values: dict[str, dict[Place, tuple[str, float]]] = {}
    for fact in FACTS:
        most = max((fact.heat(line) for line in trace.lines), default=0) or 1
        rows = ((line, fact.text(line)) for line in trace.lines)
        values[fact.name] = {
            (line.path, line.line): (text, max(0.0, fact.heat(line) / most)) for line, text in rows if text
        }
    marks: dict[Place, list[str]] = {}
    for place, finding, _ in sides_of(findings):
        marks.setdefault(place, []).append(finding.kind)
    values[FINDINGS] = {place: ("✗ " + ", ".join(dict.fromkeys(kinds)), 1.0) for place, kinds in marks.items()}
    return values


def sides_of(findings: Iterable[Finding]) -> list[tuple[Place, Finding, str]]:
    """Return (place, finding, message at the place) for both sides of each finding that has a line."""
    sides = []
    for finding in findings:
        if finding.line:
            sides.append(((finding.source, finding.line), finding, finding.message))
        other = (finding.other_source, finding.other_line or 0)
        if finding.other_line and other != (finding.source, finding.line):
            sides.append((other, finding, f"the other side of: {finding.message}"))
    return sides


def detail_of(trace: Trace, place: Place, findings: Iterable[Finding], *, inlined: bool) -> dict[str, Any]:
    """Return all facts about one line, for the panel under the source.

    Returns:
        A dictionary. ``facts`` has pairs of label and text. ``ptx`` has the line, text, number of executions and cost
        of each PTX instruction; those that access memory or wait come first. ``sass`` describes the line's machine
        code by class, or has the reason why it is not known. ``findings`` has texts.
    """
    line = next((one for one in trace.lines if (one.path, one.line) == place), None)
    facts: list[tuple[str, str]] = []
    if line is not None:
        facts.append(("warp instructions", f"{line.instructions:,} ({100 * line.share:.1f} %)"))
        facts += [(fact.label, text) for fact in FACTS[1:] if (text := fact.text(line))]
        facts.append(("of which", ", ".join(f"{count:,} {name}" for name, count in line.mix.items())))
    ptx = [
        {"line": fact.ptx_line, "text": fact.text, "executions": fact.executions, "cost": _cost(fact)}
        for fact in trace.report.lines
        if fact.place(inlined=inlined) == place
    ]
    ptx.sort(key=lambda row: not row["cost"])  # a stable sort: each part keeps the order of the PTX
    found = [text for at, _, text in sides_of(findings) if at == place]
    return {"facts": facts, "ptx": ptx, "sass": _machine_code(trace, place), "findings": found}


def _cost(fact: Any) -> str:
    if fact.sectors:
        each = fact.sectors_per_request
        return f"{fact.requests:,} requests, {each:.3g} sectors each (ideal {fact.ideal_sectors_per_request:.3g})"
    if fact.wavefronts:
        return f"{fact.requests:,} requests, {fact.wavefronts:,} wavefronts (ideal {fact.ideal_wavefronts:,})"
    return f"waits {fact.barrier_waits:,}" if fact.barrier_waits else ""


def _machine_code(trace: Trace, place: Place) -> str:
    from workbench.errors import MissingToolError

    if not trace.kernels:
        return "not known: the trace has no compiled kernel"
    try:
        return trace.sass.at(*place).brief or "none: ptxas put all of it under other lines"
    except MissingToolError as error:
        return f"not known: {error}"


def _bytes(count: int) -> str:
    for unit, size in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
