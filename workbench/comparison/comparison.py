"""The result of `workbench.compare`, an op's variants side by side: correctness, resources, memory behaviour and time.

On the simulator the time is *predicted* from counts for the named GPU; on a GPU it is *measured*. A variant in plain
torch is only checked, as there is no kernel of ours to count.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.base.architectures import plain_arch
from workbench.base.documents import Document
from workbench.base.frames import data_frame
from workbench.base.pages import Section
from workbench.base.tables import WIDTH, Table, Tabular
from workbench.base.terminal import visible
from workbench.base.trials.trial import Trial
from workbench.comparison.compared_facts import (
    ARCH_COLUMNS,
    arch_row,
    compare_document,
    facts_of,
    remarks_of,
    unique_bytes,
)
from workbench.errors import UnknownNameError
from workbench.tuning.result.summary import row_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from workbench.analysis.exact import Beside

_NONE = "–"
_OF_TRIAL = (
    "variant", "language", "outcome", "config", "max_error", "error_bound",
    "registers", "spill_bytes", "shared_bytes", "occupancy",
)  # fmt: skip
_FACT_WIDTH, _VARIANT_WIDTH = 27, 26
"""Columns of a terminal for the names of the facts, and for each variant."""


@dataclass(frozen=True)
class Comparison(Tabular, Document):
    """Comparison of variants on the same inputs, one trial each.

    ``str`` and notebooks show facts as rows and variants as columns.
    """

    op: str
    case: str
    device: str
    trials: tuple[Trial, ...]
    minimum_bytes: tuple[int, ...]
    """For each trial, the bytes that must cross memory once at its page size."""
    machine: str = ""
    """Name of the GPU that measured; empty on the simulator."""
    origins: tuple[str, ...] = ()
    """For each trial, the origin of its configuration: "given", "default" or "tuned, LEVEL"."""
    exact: tuple[Beside | None, ...] = ()
    """For each trial, its answer of exact comparison, None for one that is not correct; empty where none was asked."""

    @property
    def all_correct(self) -> bool:
        """True if every variant ran and met its error bound."""
        return all(trial.ok for trial in self.trials)

    def __getitem__(self, variant: str) -> Trial:
        """Return the trial of the variant of that name.

        Raises:
            UnknownNameError: there is none; lists the variants there are.
        """
        for trial in self.trials:
            if trial.variant == variant:
                return trial
        known = ", ".join(trial.variant for trial in self.trials)
        raise UnknownNameError("variant", repr(variant), known, "Only these were compared.")

    def facts(self) -> dict[str, tuple[str, ...]]:
        """Return the rows of the table: for each fact one text per variant, in the order of ``trials``."""
        tuned = any(origin.startswith("tuned") for origin in self.origins)
        origins = self.origins if tuned else ("",) * len(self.trials)  # of all, or of none where they are as usual
        columns = [facts_of(*each) for each in zip(self.trials, self.minimum_bytes, origins, strict=True)]
        rows = {name: tuple(texts[name] for texts in columns) for name in (columns[0] if columns else ())}
        rows["exact"] = tuple("" if one is None else one.brief for one in self.exact)
        return {name: tuple(text or _NONE for text in texts) for name, texts in rows.items() if any(texts)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per variant, with numbers as numbers: errors, resources, counts, seconds.

        Its ``case`` is the case with what distinguishes it, ``case_name`` the name alone.
        """
        rows = []
        origins = self.origins or ("",) * len(self.trials)
        answers = self.exact or (None,) * len(self.trials)
        for trial, least, source, exact in zip(self.trials, self.minimum_bytes, origins, answers, strict=True):
            known = row_of(trial)
            rows.append(
                {"case": self.case, "case_name": trial.case}
                | {name: known[name] for name in _OF_TRIAL}
                | {
                    "configuration_is": source,
                    "warp_instructions": known["instructions"],
                    "sectors_per_request": known["sectors_per_request"],
                    "shared_conflicts": known["shared_conflicts"],
                    "bytes_moved": trial.memory.bytes_moved if trial.counts else None,
                    "unique_bytes": unique_bytes(trial),
                    "minimum_bytes": least,
                    "sample": trial.counts.get("sample"),
                    "seconds": trial.seconds,
                    "time_is": trial.basis or None,
                    "predicted_for": trial.predicted_for,
                    "arch": trial.arch,
                    "compiler": trial.resources.get("compiler"),
                    "remarks": remarks_of(trial),
                    "exact": None if exact is None else str(exact),
                    "exact_difference": [] if exact is None else [*exact.difference],
                }
            )
        return rows

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, indexed by variant. Needs pandas (``[lab]``)."""
        return data_frame(self.rows).set_index("variant")

    def to_json(self) -> str:
        """Return the rows as JSON; see `workbench.base.documents`."""
        return compare_document([self])

    def roofline(self, ax: Axes | None = None) -> Axes:
        """Plot each variant under the ceilings of the GPU and return the axes. Needs matplotlib (``[lab]``).

        The plot shows instructions per second over instructions per sector of memory traffic.

        Raises:
            ArgumentError: no variant has both a time and counts.
        """
        from workbench.ui.roofline_plot import roofline

        return roofline(self.op, self.trials, ax)

    @property
    def title(self) -> str:
        """Op, case and the device that the figures come from."""
        return f"{self.op} on {self.case}, device {self.device}"

    @property
    def headline(self) -> str:
        """Op, case and device."""
        return self.title

    def about(self) -> Mapping[str, str]:
        """Return what was compared, and on which GPU or for which one."""
        models = dict.fromkeys(filter(None, (trial.predicted_for for trial in self.trials)))
        return {
            "op": self.op,
            "case": self.case,
            "variants": ", ".join(self._names()),
            "device": self.machine or f"{self.device}, the PTX machine",
            "times predicted for": ", ".join(models),
        }

    def sections(self) -> Sequence[Section]:
        """Return the table, and the roofline where there are times and matplotlib is installed."""
        return [*super().sections(), *self.roofline_section()]

    def roofline_section(self) -> Sequence[Section]:
        """Return a section with the roofline; none without times or matplotlib."""
        from workbench.ui.page_sections import picture

        timed = any(trial.seconds is not None and trial.counts for trial in self.trials)
        return picture(self.roofline, "Roofline of the variants") if timed else []

    def __str__(self) -> str:
        """Return a table of facts as rows, with as many variants side by side as the terminal has room for.

        The other variants follow below.
        """
        width = max(shutil.get_terminal_size((WIDTH, 0)).columns, _FACT_WIDTH + _VARIANT_WIDTH)
        beside = (width - _FACT_WIDTH) // _VARIANT_WIDTH
        parts = (self._table(first, first + beside) for first in range(0, len(self.trials), beside))
        return "\n".join([visible(self.title), *(part.text(width) for part in parts)])

    def __repr__(self) -> str:
        verdict = "all correct" if self.all_correct else "NOT all correct"
        return f"<comparison of {self.title}: {', '.join(self._names())}; {verdict}>"

    def _names(self) -> Sequence[str]:
        """Return what was compared, each once."""
        return [trial.variant for trial in self.trials]

    def tables(self) -> list[Table]:
        """Return a table of the facts as rows and all variants as columns."""
        return [replace(self._table(0, len(self.trials)), title=self.title)]

    def _table(self, first: int, end: int) -> Table:
        names = [trial.variant for trial in self.trials[first:end]]
        rows = [(name, *texts[first:end]) for name, texts in self.facts().items()]
        said = [f"{one.variant}: {text}" for one in self.trials[first:end] for text in remarks_of(one)]
        said += _exact_notes((one.variant for one in self.trials[first:end]), self.exact[first:end])
        return Table(("", *names), rows, "h" + "l" * len(names), note="\n".join(said))


@dataclass(frozen=True, repr=False)
class ArchComparison(Comparison):
    """Comparison of variants for several architectures on the same inputs, one trial for each pair.

    ``str`` and notebooks show a row for each variant and architecture that it has code for.
    """

    def __getitem__(self, key: str | tuple[str, str]) -> Trial:
        """Return the trial of a variant and an architecture: ``comparison["cuda_mma", "sm_100a"]``.

        A variant that was compared for one architecture alone needs no second name.

        Raises:
            UnknownNameError: there is none, or several; lists the pairs there are.
        """
        name, arch = key if isinstance(key, tuple) else (key, None)
        found = [one for one in self.trials if one.variant == name and arch in (None, one.arch, plain_arch(one.arch))]
        if len(found) != 1:
            known = ", ".join(f"({one.variant!r}, {one.arch!r})" for one in self.trials)
            raise UnknownNameError("variant and architecture", repr(key), known, "Name one of these pairs.")
        return found[0]

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, indexed by variant and architecture. Needs pandas (``[lab]``)."""
        return data_frame(self.rows).set_index(["variant", "arch"])

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables()))

    def _names(self) -> Sequence[str]:
        return [f"{trial.variant} for {trial.arch}" for trial in self.trials]

    def tables(self) -> list[Table]:
        """Return a table with a row for each variant and architecture."""
        rows = [arch_row(trial) for trial in self.trials]
        marks = ["" if trial.ok else "failed" for trial in self.trials]
        why = [f"{one.variant}, {one.arch}: {one.outcome}: {one.message}" for one in self.trials if not one.ok]
        why += [f"{one.variant}, {one.arch}: {text}" for one in self.trials for text in remarks_of(one)]
        why += _exact_notes((f"{one.variant}, {one.arch}" for one in self.trials), self.exact)
        return [Table(ARCH_COLUMNS, rows, "hllrrlrrll", title=self.title, marks=marks, note="\n".join(why))]


def _exact_notes(names: Iterable[str], answers: Sequence[Beside | None]) -> list[str]:
    if not answers:
        return []
    from workbench.analysis.exact import exact_notes

    return exact_notes(names, answers)
