"""Figures of a saved comparison or trace, by variant, and how two sets of them differ."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.analysis.summary import OF_KERNEL, OF_RUN
from workbench.base.documents import COMPARED

_TIMES = ("seconds", "predicted_us")
_ABOUT = ("outcome", "arch", "compiler", "blocks that ran")


@dataclass(frozen=True)
class Subject:
    """The figures of one variant on one case, or those of a trace.

    Attributes:
        figures: number of each figure; None for an unknown one.
        about: what the figures depend on, by name: outcome, configuration, architecture, compiler.
        times: the basis of its times, such as "predicted for a100-sxm-80gb"; times of another basis are not comparable.
    """

    figures: Mapping[str, float | None]
    about: Mapping[str, str]
    times: str


@dataclass(frozen=True)
class FigureChange:
    """One figure of one subject, before and now; None where it is unknown."""

    subject: str
    """Name of the subject: its variant, with several cases also the case."""
    variant: str
    case: str
    figure: str
    before: float | None
    now: float | None
    comparable: bool = True
    """False for times of different bases, such as a prediction for another GPU."""

    @property
    def changed(self) -> bool:
        """True if the two numbers differ, or one is unknown."""
        return self.before != self.now

    @property
    def ratio(self) -> float | None:
        """The number now, as a multiple of the one before; 1 for two zeros; None if they cannot be compared."""
        if self.before is None or self.now is None or not self.comparable:
            return None
        if self.before == self.now:
            return 1.0
        return self.now / self.before if self.before else math.copysign(math.inf, self.now)

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Figure, number before, number now and ratio, as the cells of a table."""
        ratio = "" if self.ratio is None else "∞" if math.isinf(self.ratio) else f"{self.ratio:.3f}"
        return self.figure, number_text(self.figure, self.before), number_text(self.figure, self.now), ratio


@dataclass(frozen=True)
class Pair:
    """One subject before and now; None where it is missing.

    ``name`` is that of the variant, with several cases also of the case; for a trace it is empty.
    """

    name: str
    before: Subject | None
    now: Subject | None
    changes: Mapping[str, FigureChange] = field(default_factory=dict)


def number_text(figure: str, number: float | None) -> str:
    """Return a figure's number as text, seconds as microseconds; a dash for an unknown one."""
    if number is None:
        return "–"
    if figure == "seconds":
        return f"{number * 1e6:,.2f} µs"
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4g}"


def subjects_of(document: Mapping[str, Any]) -> dict[tuple[str, str], Subject]:
    """Return the subjects of a saved comparison or trace by case and variant; a trace has one, under empty names.

    Where a variant was compared for several architectures its name has each.
    """
    if document["schema"].startswith("workbench-trace/"):
        figures = {figure_name(one["fact"]): one["value"] for one in document["facts"]}
        return {("", ""): Subject(figures, _about(document), f"predicted for {document['predicted_for']}")}
    times = Counter((_case_of(row, document), row["variant"]) for row in document["variants"])

    def name_of(row: Mapping[str, Any]) -> tuple[str, str]:
        name = case, variant = _case_of(row, document), row["variant"]
        return name if times[name] == 1 else (case, f"{variant} for {row['arch']}")

    return {
        name_of(row): Subject(
            {name: row[name] for name in COMPARED.split()},
            _about(row),
            f"{row['time_is']} for {row['predicted_for']}" if row["predicted_for"] else f"on {document['machine']}",
        )
        for row in document["variants"]
    }


def figures_of(kind: str) -> tuple[str, ...]:
    """Return the names of all figures that a comparison or a trace may have, by kind: "compare" or "trace"."""
    return tuple(COMPARED.split() if kind == "compare" else map(figure_name, (*OF_RUN, *OF_KERNEL)))


def may_have(kind: str, figure: str) -> bool:
    """Return True if a result of a kind may have a figure; one kernel of several is named behind ``_of_``."""
    of_kernel = kind == "trace" and figure.partition("_of_")[0] in map(figure_name, OF_KERNEL)
    return of_kernel or figure in figures_of(kind)


def pairs_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Pair]:
    """Return the subjects of two documents in pairs, in the order of the present one; those that are gone come last.

    With several cases the names of pairs have theirs.
    """
    old, new = subjects_of(before), subjects_of(now)
    keys = dict.fromkeys([*new, *old])
    names = case_names(before, now)
    pairs = []
    for case, variant in keys:
        name = f"{variant} on {names[case]}" if len(names) > 1 else variant
        pairs.append(_pair(name, variant, names[case], old.get((case, variant)), new.get((case, variant))))
    return pairs


def case_names(*documents: Mapping[str, Any]) -> dict[str, str]:
    """Return the cases of comparisons, each with its name where no other case has that one; of traces one, "".

    A case whose inputs have changed keeps its name and is another case.
    """
    found: dict[str, str] = {}
    for document in documents:
        for row in document.get("variants", ({"case": ""},)):
            case = _case_of(row, document)
            found.setdefault(case, row.get("case_name", case))
    names = list(found.values())
    return {case: name if names.count(name) == 1 else case for case, name in found.items()}


def notes_of(before: Mapping[str, Any], now: Mapping[str, Any], pairs: list[Pair]) -> list[str]:
    """Return in words what differs beside the figures: versions, devices, configurations, subjects that come and go."""
    several = any(len(case_names(one)) > 1 for one in (before, now))  # what comes and goes is noted for each
    notes = [
        f"{name}: {before[name] or 'none'} → {now[name] or 'none'}"
        for name in ("op", "case", "variant", "device", "machine", "predicted_for")
        if name in before and name in now and before[name] != now[name] and not (name == "case" and several)
    ]
    notes += [f"version of {note}" for note in _changes(before["versions"], now["versions"])]
    for pair in pairs:
        if pair.before is None or pair.now is None:
            notes.append(f"{pair.name}: {'new' if pair.before is None else 'gone'}")
            continue
        head = f"{pair.name}: " if pair.name else ""
        notes += [head + note for note in _changes(pair.before.about, pair.now.about)]
        if _incomparable(pair):
            notes.append(f"{head}times are {pair.before.times} → {pair.now.times}: not comparable")
    return notes


def figure_name(fact: str) -> str:
    """Return a trace's fact as the name of a figure: "sectors per request" is ``sectors_per_request``."""
    return re.sub(r"\W+", "_", fact.replace("µ", "u")).strip("_")


def _case_of(row: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return the case of a compared variant; before version 0.2 a document had one case, that of all rows."""
    return row["case"] if "case" in row else document["case"]


def _about(row: Mapping[str, Any]) -> dict[str, str]:
    sample = row.get("sample")
    known = dict(row) | {"blocks that ran": sample and f"{sample.get('blocks')} of {sample.get('of')}"}
    settings = {name: str(value) for name, value in row["config"].items()}
    return settings | {name: str(known[name]) for name in _ABOUT if known.get(name) not in (None, "")}


def _pair(name: str, variant: str, case: str, before: Subject | None, now: Subject | None) -> Pair:
    if before is None or now is None:
        return Pair(name, before, now)
    same = before.times == now.times
    changes = {
        figure: FigureChange(
            name,
            variant,
            case,
            figure,
            before.figures.get(figure),
            now.figures.get(figure),
            same or figure not in _TIMES,
        )
        for figure in dict.fromkeys([*now.figures, *before.figures])
    }
    return Pair(name, before, now, changes)


def _incomparable(pair: Pair) -> list[str]:
    """Return the times of a pair that are known on both sides and cannot be compared."""
    known = [one for one in pair.changes.values() if one.before is not None and one.now is not None]
    return [one.figure for one in known if not one.comparable]


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = [name for name in dict.fromkeys([*now, *before]) if before.get(name) != now.get(name)]
    return [f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}" for name in names]
