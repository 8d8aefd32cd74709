"""The result of a tuning run: every trial, the best of each variant and of all, and the entries for the tuned table."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, placed
from workbench.base.documents import document
from workbench.base.tables import Table, Tabular
from workbench.base.trials.trial import OUTCOMES, Trial, canonical, geometric_mean
from workbench.base.versions import versions
from workbench.ops.sampled_case import SampledCase
from workbench.ops.tuned import Entry, problem_record
from workbench.tuning.gpu_timing import median_error

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from workbench.ops.variant import Config
    from workbench.tuning.replay import AnyCase, AnyDevice, AnyOp, AnyVariant
    from workbench.tuning.space import Space
    from workbench.tuning.view import TuningView

PREDICTED_TIE = 0.01
"""Relative difference up to which predicted times count as tied.

Pairs that are as near are in the measured order no more often than by chance
(`workbench.analysis.prediction.confidence.in_order`).
"""


@dataclass(frozen=True, repr=False)
class Choice:
    """One configuration with its trial on each case.

    ``score`` is the geometric mean, over the cases, of its time relative to the best time of any configuration on that
    case: 1.0 is the best on every case.
    """

    variant: str
    config: Config
    trials: tuple[Trial, ...]
    score: float
    seconds: float
    """The time that the configuration is ranked by; over several cases their geometric mean."""

    @property
    def basis(self) -> str:
        """``"measured"`` or ``"predicted"``, the origin of its times."""
        return self.trials[0].basis

    @property
    def relative_error(self) -> float:
        """Relative uncertainty of the time: the noise of the measurement, or half of the tie share of predictions."""
        if self.basis == "predicted":
            return PREDICTED_TIE / 2
        errors = []
        for trial in self.trials:
            samples = trial.leader_samples or trial.samples
            errors.append(median_error(samples) / statistics.median(samples) if len(samples) > 1 else 0.0)
        return max(errors)

    def __str__(self) -> str:
        return f"{self.variant} {self.trials[0].config_text}: {self.basis} {self.seconds * 1e6:.2f} µs"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, repr=False)
class TuningRun(Tabular):
    """The result of `tune`, with trials ordered by variant, place in the variant's space, and case.

    ``scouted`` counts the trials that were made before, on smaller cases or another device, to order the search; they
    are not among ``trials``.
    """

    op: AnyOp
    cases: tuple[AnyCase, ...]
    variants: tuple[AnyVariant, ...]
    spaces: Mapping[Any, Space]
    """The space of each variant."""
    device: AnyDevice
    model: DeviceModel | None
    trials: tuple[Trial, ...]
    new: int
    reused: int
    interrupted: bool
    store_path: Path
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    table_path: Path | None = None
    recorded: int = 0
    scouted: int = 0

    # -- choosing -----------------------------------------------------------------------------------------------

    @cached_property
    def ranking(self) -> tuple[Choice, ...]:
        """Every configuration that is correct on all cases, best first; equal ones in the order of the spaces."""
        grouped: dict[tuple, list[tuple[Trial, float]]] = {}
        for trial in self.trials:
            if trial.seconds is not None:
                key = trial.variant, canonical(dict(trial.config))
                grouped.setdefault(key, []).append((trial, trial.seconds))
        whole = [group for group in grouped.values() if len(group) == len(self.cases)]
        best = {
            case.name: min((seconds for g in whole for t, seconds in g if t.case == case.name), default=math.inf)
            for case in self.cases
        }
        choices = [
            Choice(
                group[0][0].variant,
                dict(group[0][0].config),
                tuple(trial for trial, _ in group),
                geometric_mean(seconds / best[trial.case] for trial, seconds in group),
                geometric_mean(seconds for _, seconds in group),
            )
            for group in whole
        ]
        return tuple(sorted(choices, key=lambda choice: choice.score))

    @property
    def best(self) -> Choice | None:
        """The fastest configuration of all; None if none is correct on all cases."""
        return self.ranking[0] if self.ranking else None

    @property
    def best_by_variant(self) -> dict[str, Choice]:
        """The fastest configuration of each variant that has a correct one, by the variant's name."""
        found: dict[str, Choice] = {}
        for choice in self.ranking:
            found.setdefault(choice.variant, choice)
        return {variant.name: found[variant.name] for variant in self.variants if variant.name in found}

    @property
    def ties(self) -> tuple[Choice, ...]:
        """Configurations that cannot be told apart from the best: within measured noise or the model's resolution."""
        if self.best is None:
            return ()
        best = self.best
        return tuple(
            choice
            for choice in self.ranking[1:]
            if choice.score / best.score - 1 <= best.relative_error + choice.relative_error
        )

    def default_of(self, variant: AnyVariant) -> Choice | None:
        """Return the configuration that the untuned rule picks for a variant; None unless tried and correct."""
        problem = self.cases[0].problem(arch=self.device.arch)
        config = variant.default_config(placed(problem, self.device, self.model))
        return next((c for c in self.ranking if c.variant == variant.name and c.config == config), None)

    @property
    def outcomes(self) -> dict[str, int]:
        """Number of trials by outcome, for the outcomes that occurred."""
        counts = Counter(trial.outcome for trial in self.trials)
        return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}

    # -- showing ------------------------------------------------------------------------------------------------

    @property
    def time_label(self) -> str:
        """The origin of the times: the GPU measured on, the GPU predicted for, or the recording that was replayed."""
        replayed = getattr(self.device, "time_label", None)
        if replayed is not None:
            return replayed
        if self.model is None:
            return f"measured on {self.device.description}"
        return f"predicted for {self.model} from the simulator's counts"

    @property
    def how_to_go_on(self) -> str:
        """The message for a user who interrupted the run: what is kept where, and how to go on."""
        made = f"{len(self.trials)} attempt{'s' * (len(self.trials) != 1)}"
        scouted = f" and {self.scouted} of scouting" if self.scouted else ""
        return (
            f"interrupted after {made}{scouted}; all that is finished is kept in {self.store_path}. "
            "Start the same command again to go on from there."
        )

    @property
    def rows(self) -> list[dict]:
        """One plain dictionary per trial, in order; times are in microseconds, named measured or predicted."""
        from workbench.tuning.summary import row_of

        return [row_of(trial) for trial in self.trials]

    def to_json(self) -> str:
        """Return the best configuration, the counts and the rows as JSON; see `workbench.base.documents`."""
        best = self.best and {"variant": self.best.variant, "config": self.best.config, "seconds": self.best.seconds}
        return document(
            "tune",
            op=self.op.name,
            cases=[case.label for case in self.cases],
            times=self.time_label,
            best=best,
            outcomes=self.outcomes,
            new=self.new,
            reused=self.reused,
            interrupted=self.interrupted,
            notes=self.notes,
            trials=self.rows,
        )

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, each tunable also in a column of its own. Needs pandas (``[lab]``)."""
        from workbench.tuning.summary import frame_of

        return frame_of(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the time of every correct configuration by rank, one colour and marker per variant. Needs matplotlib."""
        from workbench.tuning.summary import plot

        return plot(self, ax)

    def heat_map(
        self, x: str, y: str, variant: str | None = None, case: str | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw the best time for every two values of the parameters ``x`` and ``y`` of a variant. Needs matplotlib."""
        from workbench.tuning.landscape import heat_map

        return heat_map(self, x, y, variant, case, ax)

    def widget(self) -> TuningView:
        """Return a view of the attempts and their landscape, with controls. Needs anywidget (``[lab]``)."""
        from workbench.tuning.view import TuningView

        return TuningView(self)

    def __str__(self) -> str:
        from workbench.tuning.summary import text_of

        return text_of(self)

    def __repr__(self) -> str:
        best = "nothing correct" if self.best is None else f"best {self.best}"
        return f"<tuning run of {self.op.name}: {len(self.trials)} trials, {best}>"

    def tables(self) -> list[Table]:
        """Return a table of each variant's leaders and failures, the winner first."""
        from workbench.tuning.summary import tables_of

        return tables_of(self)


def table_entries(run: TuningRun) -> list[Entry]:
    """Return the winners of a run for the tuned table, one for each variant and problem.

    Page size is part of a problem.
    """
    best: dict[tuple[str, str], tuple[float, Trial, Any]] = {}
    cases = {case.name: case for case in run.cases}
    variants = {variant.name: variant for variant in run.variants}
    times = {
        (trial.variant, trial.case, canonical(dict(trial.config))): trial.seconds
        for trial in run.trials
        if trial.seconds is not None
    }
    for trial in run.trials:
        if trial.seconds is None:
            continue
        problem = cases[trial.case].problem(trial.config, arch=run.device.arch)
        key = (trial.variant, canonical(problem_record(problem)))
        if key not in best or trial.seconds < best[key][0]:
            best[key] = trial.seconds, trial, problem
    entries = []
    for seconds, trial, problem in best.values():
        variant = variants[trial.variant]
        default = variant.default_config(placed(problem, run.device, run.model))
        entries.append(
            Entry(
                op=run.op.name,
                variant=trial.variant,
                problem=problem_record(problem),
                config=dict(trial.config),
                seconds=seconds,
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
