"""Lines of a traced source with the facts beside them, as the browser part of a source view takes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.places import Place, source_text
from workbench.errors import UnknownNameError
from workbench.ui.source_facts import FINDINGS, LABELS, detail_of, sides_of, values_of

if TYPE_CHECKING:
    from workbench.launch import Trace
    from workbench.ptx import Finding

STATIC = Path(__file__).parent / "static"
_LONGEST_GAP = 12  # lines without instructions that the browser still shows
_MOST_ABOVE = 10  # lines above the first of them, down from an empty line: a function's head


class SourceLines:
    """Lines with facts of a trace, and of ``findings``, which are None where nothing was checked.

    Attributes:
        values: for each fact, its text and amount by file and line.
        files: paths of the files with facts, the one with the most instructions first.
    """

    def __init__(self, trace: Trace, findings: Iterable[Finding] | None):
        self.trace = trace
        self.checked = findings is not None
        self.findings = () if findings is None else tuple(findings)
        self.values = values_of(trace, self.findings)
        self.files = tuple(_main_first(trace, self.findings))

    def path_of(self, file: str) -> str:
        """Return the path of a file, given by path or name; of the main file for an empty one.

        Raises UnknownNameError for a file without facts.
        """
        if not file:
            return self.files[0] if self.files else ""
        for path in self.files:
            if file in (path, Path(path).name):
                return path
        names = ", ".join(Path(path).name for path in self.files)
        raise UnknownNameError("file", repr(file), names, "The trace has lines of these.")

    def detail(self, line: int, file: str = "") -> dict[str, Any]:
        """Return the details of a line: facts, PTX, machine code, findings."""
        place = (self.path_of(file), line)
        head = {"line": line, "file": Path(place[0]).name, "text": _text(place)}
        return head | detail_of(self.trace, place, self.findings, inlined=self.trace._unfolded)

    def state(self) -> dict[str, Any]:
        """Return the title, the facts, the rows to show, and the number of findings, as the browser takes them."""
        labels = [dict(zip(("name", "label", "meaning"), (name, *self.label(name)), strict=True)) for name in LABELS]
        rows: list[dict[str, Any]] = []
        for path in self.files:
            if len(self.files) > 1:
                rows.append({"head": Path(path).name})
            rows += self._rows_of(path)
        return {"title": self.trace.title, "facts": labels, "rows": rows, "findings": len(self.findings)}

    def label(self, fact: str) -> tuple[str, str]:
        """Return the label and the meaning of a fact; those of findings tell whether anything was checked."""
        label, meaning = LABELS[fact]
        if fact != FINDINGS:
            return label, meaning
        if not self.checked:
            return f"{label} (not checked)", f"checks: {self.trace.checks_brief}"
        return f"{label} ({len(self.findings)})", meaning if self.findings else "none"

    def _rows_of(self, path: str) -> list[dict[str, Any]]:
        """Return the lines from the first to the last with a fact; a long gap is the number of lines left out."""
        known = sorted({line for values in self.values.values() for at, line in values if at == path})
        first = next((line for line in known if line), 0)
        above = first
        while above > 1 and first - above < _MOST_ABOVE and _text((path, above - 1)).strip():
            above -= 1
        rows = [self._row(path, 0)] if 0 in known else []
        rows += [self._row(path, line) for line in range(above, first)]
        before = None
        for number in filter(None, known):
            if before:
                between = range(before + 1, number)
                if len(between) > _LONGEST_GAP:
                    rows.append({"skip": len(between)})
                else:
                    rows += [self._row(path, line) for line in between]
            rows.append(self._row(path, number))
            before = number
        return rows

    def _row(self, path: str, line: int) -> dict[str, Any]:
        place = (path, line)
        values = {name: list(places[place]) for name, places in self.values.items() if place in places}
        return {"path": path, "line": line, "text": _text(place), "values": values}


def _main_first(trace: Trace, findings: Iterable[Finding]) -> list[str]:
    """Return the files by falling number of instructions; those with findings only come last."""
    weights: dict[str, int] = {}
    for line in trace.lines:
        weights[line.path] = weights.get(line.path, 0) + line.instructions
    for (path, _), _, _ in sides_of(findings):
        weights.setdefault(path, 0)
    named = [path for path in weights if path]
    return sorted(named, key=lambda path: -weights[path]) + [path for path in weights if not path]


def _text(place: Place) -> str:
    return source_text(*place, "(instructions that the compiler attributes to no line)").expandtabs(4)
