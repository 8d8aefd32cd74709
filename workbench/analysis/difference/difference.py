"""``diff``: the difference between two comparisons or two traces."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from workbench.analysis.difference.conditions import Condition, ConditionResult, judge
from workbench.analysis.difference.figures import FigureChange, case_names, notes_of, pairs_of
from workbench.analysis.difference.lines import COUNTS, LineChange, line_changes
from workbench.base.argument_kinds import checked_kinds
from workbench.base.documents import Document, document
from workbench.base.saved_documents import parse_document, read_document
from workbench.base.tables import WIDTH, Table, Tabular, cut
from workbench.errors import ArgumentError

KINDS = ("compare", "trace")
"""Kinds of documents that can be compared."""

_MORE, _FEWER = (
    "background:rgba(213,94,0,0.22)",
    "background:rgba(0,114,178,0.22)",
)  # Okabe-Ito; the sign is in the cell


@dataclass(frozen=True, repr=False)
class Difference(Tabular):
    """Difference between two comparisons or two traces.

    Attributes:
        title: what was compared.
        kind: "compare" or "trace".
        notes: what differs beside the figures, in words: versions, configurations, GPU models, what is new or gone.
        changes: every figure, also the unchanged ones.
        lines: of traces every source line, also the unchanged ones.
        results: the result of each condition.
        origins: when the results ``before`` and ``now`` were written, and by which version.
    """

    title: str
    kind: str
    notes: tuple[str, ...]
    changes: tuple[FigureChange, ...]
    lines: tuple[LineChange, ...]
    results: tuple[ConditionResult, ...]
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if no condition fails."""
        return all(result.ok for result in self.results)

    def __getitem__(self, figure: str) -> tuple[FigureChange, ...]:
        """Return the changes of a figure, one for each case and variant; none for an unknown figure."""
        return tuple(one for one in self.changes if one.figure == figure)

    @property
    def headline(self) -> str:
        """The title."""
        return self.title

    def about(self) -> Mapping[str, str]:
        """Return when and with which version both results were obtained."""
        return dict(self.origins)

    def to_json(self) -> str:
        """Return the difference as JSON; see `workbench.base.documents`."""
        changes = [
            {name: getattr(one, name) for name in ("case", "variant", "figure", "before", "now", "ratio")}
            for one in self.changes
        ]
        conditions = [
            {"condition": one.condition.text, "ok": one.ok, "checked": one.checked, "failures": one.failures}
            for one in self.results
        ]
        lines = [
            {"file": one.file, "before": _brief(one.before), "now": _brief(one.now)}
            for one in self.lines
            if one.changed
        ]
        head = {"title": self.title, "of": self.kind, "ok": self.ok, "notes": self.notes}
        return document("diff", **head, changes=changes, lines=lines, conditions=conditions)

    def tables(self) -> list[Table]:
        """Return the conditions, what differs beside the figures, the changed figures and the changed lines."""
        return self._tables()

    def __str__(self) -> str:
        width = max(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
        parts = [*self._tables()]
        if any(one.changed for one in self.lines):
            parts[-1] = self._narrow(parts[-1], width)
        return "\n\n".join([self.title, *(part.text(width) for part in parts)])

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(self.title)}</b></p>{super()._repr_html_()}"

    def __repr__(self) -> str:
        figures, lines = (sum(one.changed for one in ones) for ones in (self.changes, self.lines))
        failed = sum(not one.ok for one in self.results)
        told = f", {failed} of {len(self.results)} conditions fail" if self.results else ""
        return f"<difference of {self.title}: {figures} figures and {lines} lines changed{told}>"

    def _tables(self) -> list[Table]:
        parts = [self._condition_table(), self._note_table(), self._figure_table(), *self._line_tables()]
        return [part for part in parts if part is not None]

    def _condition_table(self) -> Table | None:
        if not self.results:
            return None
        rows = [
            ("✓" if one.ok else "✗", one.condition.text, "\n".join(one.failures) or _held(one)) for one in self.results
        ]
        title = "no condition fails" if self.ok else "CONDITIONS FAIL"
        marks = ["" if one.ok else "best" for one in self.results]
        return Table(("", "fail if", "found"), rows, "lll", title=title, marks=marks)

    def _note_table(self) -> Table | None:
        rows = [(note,) for note in self.notes]
        return Table((), rows, "l", title="what differs beside the figures") if rows else None

    def _figure_table(self) -> Table:
        changed = [one for one in self.changes if one.changed]
        same = len(self.changes) - len(changed)
        if not changed:
            return Table((), (), "", title=f"all {same} figures are the same")
        whose = ["variant"] if self.kind == "compare" else []
        if any(one.subject != one.variant for one in self.changes):
            whose = ["case", *whose]
        rows = [(*(getattr(one, name) for name in whose), *one.texts) for one in changed]
        styles = [[*("" for _ in whose), "", "", _tint(one.now, one.before), ""] for one in changed]
        columns, align = (*whose, "figure", "before", "now", "ratio"), "l" * len(whose) + "lrrr"
        note = f"{same} more figures are the same" if same else ""
        return Table(columns, rows, align, title="figures that changed", note=note, styles=styles)

    def _line_tables(self) -> list[Table]:
        if self.kind != "trace":
            return []
        changed = [one for one in self.lines if one.changed]
        same = len(self.lines) - len(changed)
        if not changed:
            return [Table((), (), "", title=f"all {same} source lines have the same counts")]
        names = [name for name in COUNTS if any(one.delta(name) for one in changed)]
        several = len({one.file for one in self.lines}) > 1
        places = [f"{one.file}:{one.place}" if several else one.place for one in changed]
        rows = [
            (place, "\n".join(one.texts), *(_count(one, name) for name in names))
            for place, one in zip(places, changed, strict=True)
        ]
        styles = [["", "", *(_tint(*reversed(one.counts(name))) for name in names)] for one in changed]
        columns = ("line", "source", *(COUNTS[name] for name in names))
        title = "what each source line gained or lost"
        note = f"{same} more lines have the same counts" if same else ""
        return [Table(columns, rows, "rc" + "r" * len(names), title=title, note=note, styles=styles)]

    def _narrow(self, table: Table, width: int) -> Table:
        """Return the table of source lines for a terminal: what changed stands below each source text."""
        room = width - 2 - max(len(row[0]) for row in table.rows)
        rows = []
        for change, (place, *_) in zip((one for one in self.lines if one.changed), table.rows, strict=True):
            counts = [f"{head} {_count(change, name)}" for name, head in COUNTS.items() if change.delta(name)]
            below = textwrap.wrap(", ".join(counts), room, initial_indent="    ", subsequent_indent="    ")
            rows.append((place, "\n".join([*(cut(text, room) for text in change.texts), *below])))
        return replace(table, columns=("line", "source, and what changed"), rows=rows, align="rc", styles=())


@checked_kinds(but=("before", "now"))
def diff(
    before: Document | str | os.PathLike[str],
    now: Document | str | os.PathLike[str],
    *,
    fail_if: str | Sequence[str] = (),
) -> Difference:
    """Compare two results of `compare`, or two of `trace`: what changed, by figure and by source line.

    Source lines of traces are aligned by their text, so that the sources may differ::

        wb.diff(wb.trace(op, variant="naive"), wb.trace(op, variant="tiled"))
        wb.diff("base.json", wb.compare(op), fail_if="warp_instructions > 1.02")

    Args:
        before: a `Comparison` (of several cases `ComparedCases`) or a `Trace`, or the file of one that was saved
            (``.save(path)``, ``--save FILE``, or the output of ``--json``). Rows are paired by case and variant.
        now: another of the same kind.
        fail_if: conditions, such as ``"warp_instructions > 1.02"`` (the ratio to the figure before) and ``"absolute
            spill_bytes > 0"`` (the figure itself). ``results`` of the difference says which fail. Figures are named as
            in the JSON; those of a trace are its facts, with underscores for spaces.

    Raises:
        DocumentError: a file that is not such a result, damaged, or of another version.
        ArgumentError: results of two kinds or of two ops; a condition that cannot be read.
        UnknownNameError: a condition on a figure that the results do not have.
    """
    conditions = [Condition.parse(text) for text in ([fail_if] if isinstance(fail_if, str) else fail_if)]
    return difference_of(_document("before", before), _document("now", now), conditions)


def difference_of(old: Mapping[str, Any], new: Mapping[str, Any], conditions: Sequence[Condition] = ()) -> Difference:
    """Return the difference between two documents; see `diff`."""
    kinds = [one["schema"] for one in (old, new)]
    if kinds[0] != kinds[1]:
        raise ArgumentError("now", kinds[1], f"another {kinds[0]}", "Compare two results of the same command.")
    kind = "trace" if kinds[0].startswith("workbench-trace/") else "compare"
    if kind == "compare" and old["op"] != new["op"]:
        raise ArgumentError("now", f"op {new['op']!r:.80}", f"op {old['op']!r:.80}", "Compare results of the same op.")
    pairs = pairs_of(old, new)
    return Difference(
        _title(kind, old, new),
        kind,
        tuple(notes_of(old, new, pairs)),
        tuple(change for pair in pairs for change in pair.changes.values()),
        tuple(line_changes(old["lines"], new["lines"]) if kind == "trace" else ()),
        tuple(judge(condition, pairs) for condition in conditions),
        {name: f"{one['written']}, workbench {one['workbench']}" for name, one in (("before", old), ("now", new))},
    )


def _document(argument: str, given: object) -> Mapping[str, Any]:
    if isinstance(given, str | os.PathLike):
        return read_document(Path(given), KINDS)
    if not isinstance(given, Document):
        allowed = "a comparison, a trace, or the file of one"
        raise ArgumentError(argument, type(given).__name__, allowed, "Pass what wb.compare or wb.trace returned.")
    return parse_document(given.to_json(), argument, KINDS)


def _title(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if kind == "compare":
        names = case_names(old, new)
        return f"{new['op']} on {new['case'] if len(names) < 2 else ', '.join(names.values())}, before and now"
    titles = list(dict.fromkeys([old["title"], new["title"]]))
    return f"{titles[0]}, before and now" if len(titles) == 1 else " → ".join(titles)


def _held(result: ConditionResult) -> str:
    names = [name for name in result.checked if name]
    return f"not so for {', '.join(names)}" if names else "not so"


def _brief(line: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if line is None else {name: line[name] for name in ("line", "text", *COUNTS)}


def _tint(now: float | None, before: float | None) -> str:
    if now is None or before is None or now == before:
        return ""
    return _MORE if now > before else _FEWER


def _count(change: LineChange, name: str) -> str:
    before, now = change.counts(name)
    if not before and not now:
        return ""
    return f"{now:,.0f}" if before == now else f"{before:,.0f} → {now:,.0f} ({now - before:+,.0f})"
