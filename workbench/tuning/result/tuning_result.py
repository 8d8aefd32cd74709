"""The result of a tuning run: every trial, the best of each variant and of all. `TuningRun` shows it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.device_models import DeviceModel, placed
from workbench.base.trials.trial import OUTCOMES, Trial, canonical, geometric_mean, median_error

if TYPE_CHECKING:
    from workbench.analysis.exact import Beside
    from workbench.ops.variant import Config
    from workbench.tuning.recorded.replayed import AnyCase, AnyDevice, AnyOp, AnyVariant
    from workbench.tuning.search.space import Space

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
        mean = f" (geometric mean over {len(self.trials)} cases)" if len(self.trials) > 1 else ""
        return f"{self.variant} {self.trials[0].config_text}: {self.basis} {self.seconds * 1e6:.2f} µs{mean}"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True)
class CaseWinner:
    """The fastest trial of one case, and on that case the trial of the configuration that is best over all cases."""

    fastest: Trial
    overall: Trial | None
    """None if no configuration is correct on every case."""

    @property
    def cost(self) -> float | None:
        """Time of the best single configuration on this case, as a multiple of the fastest; 1.0 if it is the same."""
        if self.overall is None or self.overall.seconds is None or self.fastest.seconds is None:
            return None
        return self.overall.seconds / self.fastest.seconds


@dataclass(frozen=True, repr=False)
class TuningResult:
    """The result of `tune`, with trials ordered by variant, place in the variant's space, and case.

    ``scouted`` counts the trials that were made before, on smaller cases or another device, to order the search; they
    are not among ``trials``. Nor are those of ``apart``: trials that earlier runs made of configurations that are legal
    on one of several cases and not on all. They count for the fastest configuration of their case alone.
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
    apart: tuple[Trial, ...] = ()
    exact: tuple[Beside | None, ...] = ()
    """For each trial, its answer of exact comparison, None for one that is not correct; empty where none was asked."""

    # -- choosing -----------------------------------------------------------------------------------------------

    @cached_property
    def ranking(self) -> tuple[Choice, ...]:
        """Every configuration that is correct on all cases, best first.

        Of predicted times on one case that are printed alike, the one with fewer bank conflicts is first; equal ones
        are in the order of the spaces.
        """
        grouped: dict[tuple, list[tuple[Trial, float]]] = {}
        for trial in self.trials:
            if trial.seconds is not None:
                key = trial.variant, canonical(dict(trial.config))
                grouped.setdefault(key, []).append((trial, trial.seconds))
        whole = [group for group in grouped.values() if len(group) == len(self.cases)]
        best = {trial.case: trial.seconds or math.inf for trial in self.fastest}
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
        if len(self.cases) == 1:
            return tuple(sorted(choices, key=lambda choice: self.place(choice.trials[0])))
        return tuple(sorted(choices, key=lambda choice: choice.score))

    def place(self, trial: Trial) -> tuple[float, ...]:
        """Return what a timed trial is ranked by: its time.

        A predicted time counts as far as a table shows it; between equal ones the bank conflicts decide.
        """
        assert trial.seconds is not None
        if self.model is None:
            return (trial.seconds,)
        return round(trial.seconds * 1e6, 2), trial.counts.get("shared_conflicts") or 0, trial.seconds

    @cached_property
    def fastest(self) -> tuple[Trial, ...]:
        """The fastest trial of each case that has a correct one, in the order of the cases."""
        timed = [trial for trial in (*self.trials, *self.apart) if trial.seconds is not None]
        by_case = ([trial for trial in timed if trial.case == case.name] for case in self.cases)
        return tuple(min(trials, key=self.place) for trials in by_case if trials)

    @property
    def by_case(self) -> tuple[CaseWinner, ...]:
        """The fastest configuration of each case, with what `best`, the best single one, costs there."""
        there = {trial.case: trial for trial in self.best.trials} if self.best else {}
        return tuple(CaseWinner(trial, there.get(trial.case)) for trial in self.fastest)

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

    def exact_of(self, trial: Trial) -> Beside | None:
        """Return the answer of exact comparison for a trial; None for one that is not correct, or was not compared."""
        return self._answers.get(id(trial))

    @cached_property
    def _answers(self) -> dict[int, Beside | None]:
        return {id(trial): one for trial, one in zip(self.trials, self.exact, strict=False)}

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
        """The message for a user who interrupted the run: the file with the trials so far, and how to continue."""
        made = f"{len(self.trials)} attempt{'s' * (len(self.trials) != 1)}"
        scouted = f" and {self.scouted} of scouting" if self.scouted else ""
        return (
            f"interrupted after {made}{scouted}; everything finished is kept in {self.store_path}. "
            "Start the same command again to go on from there."
        )
