"""The result of a tuning run: trials, the best of each variant and case and of all, entries for the tuned table."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import placed
from workbench.analysis.prediction.confidence import level, ranking
from workbench.base.documents import document
from workbench.base.pages import Section, framed
from workbench.base.tables import Table, Tabular
from workbench.base.trials.trial import Trial, canonical
from workbench.base.versions import versions
from workbench.ops.sampled_case import SampledCase
from workbench.ops.tuned import TunedEntry, problem_record
from workbench.tuning.result.tuning_result import TuningResult

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from workbench.tuning.result.view import TuningView

_PAGE_ROWS = 2000
"""Largest number of rows of all variants together on a page."""


@dataclass(frozen=True, repr=False)
class TuningRun(TuningResult, Tabular):
    """The result of `tune`, as text, as rows and as pictures."""

    @property
    def rows(self) -> list[dict]:
        """One plain dictionary per trial, in order; times are in microseconds, named measured or predicted."""
        from workbench.tuning.result.summary import row_of

        answers = (
            {"exact": None if one is None else str(one), "exact_difference": [] if one is None else [*one.difference]}
            for one in self.exact or (None,) * len(self.trials)
        )
        return [row_of(trial) | one for trial, one in zip(self.trials, answers, strict=True)]

    def to_json(self) -> str:
        """Return the best configuration, the counts and the rows as JSON; see `workbench.base.documents`."""
        best = self.best and {"variant": self.best.variant, "config": self.best.config, "seconds": self.best.seconds}
        by_case = [
            {
                "case": one.fastest.case,
                "variant": one.fastest.variant,
                "config": one.fastest.config,
                "seconds": one.fastest.seconds,
                "best_seconds": one.overall and one.overall.seconds,
                "best_cost": one.cost,
            }
            for one in self.by_case
        ]
        return document(
            "tune",
            op=self.op.name,
            cases=[case.label for case in self.cases],
            times=self.time_label,
            best=best,
            by_case=by_case,
            outcomes=self.outcomes,
            new=self.new,
            reused=self.reused,
            interrupted=self.interrupted,
            notes=self.notes,
            trials=self.rows,
        )

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, each tunable also in a column of its own. Needs pandas (``[lab]``)."""
        from workbench.tuning.result.summary import frame_of

        return frame_of(self.rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the time of every correct configuration by rank, one colour and marker per variant. Needs matplotlib."""
        from workbench.tuning.result.summary import plot

        return plot(self, ax)

    def heat_map(
        self, x: str, y: str, variant: str | None = None, case: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw the best time for every two values of the parameters ``x`` and ``y`` of a variant. Needs matplotlib."""
        from workbench.tuning.result.landscape import heat_map

        return heat_map(self, x, y, variant, case, ax)

    def widget(self) -> TuningView:
        """Return a view of the attempts and their landscape, with controls. Needs anywidget (``[lab]``)."""
        from workbench.tuning.result.view import TuningView

        return TuningView(self)

    def __str__(self) -> str:
        from workbench.tuning.result.summary import text_of

        return text_of(self)

    @property
    def headline(self) -> str:
        """The op and the cases."""
        return f"Tuning of {self.op.name} on {', '.join(case.label for case in self.cases)}"

    def about(self) -> Mapping[str, str]:
        """Return what was tuned, and the basis of the times."""
        return {
            "op": self.op.name,
            "cases": ", ".join(case.label for case in self.cases),
            "variants": ", ".join(variant.name for variant in self.variants),
            "times": self.time_label,
            "level of the times": "" if self.model is None else level(self.model),
            "ranking by them": "" if self.model is None else ranking(self.model),
            "trials": f"{len(self.trials):,}, {self.new:,} of them new",
        }

    def sections(self) -> Sequence[Section]:
        """Return the summary in words, the times by rank where matplotlib is installed, and the trials."""
        from workbench.tuning.result.summary import tables_of
        from workbench.ui.page_sections import picture

        words = Section(framed(f"<pre>{escape(str(self))}</pre>"))
        plot = picture(lambda: self.plot(), "Times of the configurations by rank") if self.ranking else []
        tables = tables_of(self, rows=_PAGE_ROWS)[1:]  # the winner is in the words
        return [words, *plot, *(Section(framed(table.html())) for table in tables)]

    def __repr__(self) -> str:
        best = "nothing correct" if self.best is None else f"best {self.best}"
        return f"<tuning run of {self.op.name}: {len(self.trials)} trials, {best}>"

    def tables(self) -> list[Table]:
        """Return a table of each variant's leaders and failures, the winner first."""
        from workbench.tuning.result.summary import tables_of

        return tables_of(self)


def table_entries(run: TuningRun) -> list[TunedEntry]:
    """Return the winners of a run for the tuned table, one for each variant and problem.

    Page size is part of a problem.
    """
    best: dict[tuple[str, str], tuple[Trial, Any]] = {}
    cases = {case.name: case for case in run.cases}
    variants = {variant.name: variant for variant in run.variants}
    times = {
        (trial.variant, trial.case, canonical(dict(trial.config))): trial.seconds
        for trial in run.trials
        if trial.seconds is not None
    }
    for trial in (*run.trials, *run.apart):
        if trial.seconds is None:
            continue
        problem = cases[trial.case].problem(trial.config, arch=run.device.arch)
        key = (trial.variant, canonical(problem_record(problem)))
        if key not in best or run.place(trial) < run.place(best[key][0]):
            best[key] = trial, problem
    entries = []
    for trial, problem in best.values():
        variant = variants[trial.variant]
        default = variant.default_config(placed(problem, run.device, run.model))
        entries.append(
            TunedEntry(
                op=run.op.name,
                variant=trial.variant,
                problem=problem_record(problem),
                config=dict(trial.config),
                seconds=trial.seconds or math.inf,
                basis=trial.basis,
                source_hash=variant.source_hash,
                case=trial.case,
                default_config=default,
                default_seconds=times.get((trial.variant, trial.case, canonical(default))),
                recorded=time.strftime("%Y-%m-%d", time.gmtime(trial.finished)),
                versions=dict(versions()),
                sample=case.how if isinstance(case := cases[trial.case], SampledCase) else "",
            )
        )
    return entries
