"""``workbench bench tune``: how much of a space each search strategy has to evaluate.

The benchmark replays recorded sweeps, and published spaces with the configurations that failed in them. For every
strategy it counts, over many seeds, the evaluations until one is within a few per cent of the best. Every search starts
at a random point, since Kernel Tuner does not know the untuned rule; the value of that rule shows in the rows that
start from it. With each seed the values of every tunable are listed forwards or backwards: some strategies look at one
end of the space first (Kernel Tuner's diff_evo takes its first population in the order of the space), and it is an
accident of the lists whether the best lies there. Ours and Kernel Tuner's see the same space through the same
interface. A configuration that is asked for again costs nothing, one that fails costs as much as one that runs. Two
strategies are tied unless the rank-sum test of Mann and Whitney (1947) tells their searches apart, corrected for the
number of strategies that are compared (Holm, 1979). A search without success is behind all with success, and tied with
the others.
"""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.tuning.bench.measured import sweeps_in
from workbench.tuning.bench.results import Benchmark
from workbench.tuning.recorded.replay import space_of
from workbench.tuning.recorded.sweep import load, shipped
from workbench.tuning.recorded.sweep_record import Sweep
from workbench.tuning.search import kernel_tuner_strategies
from workbench.tuning.search import strategies as search
from workbench.tuning.search.ranking import holm, rank_sum
from workbench.tuning.search.space import Batches, Space, Strategy

TOLERANCE = 0.02
"""Share above the best of the sweep within which a configuration is good enough."""

TIE = 0.05
"""Chance of a difference by luck alone, from which on two strategies are tied."""

SEEDS = 50

AIM = 0.10
"""Largest share of any sweep that our best strategy may evaluate, started anywhere; nothing should be sooner on any."""

_OURS = ("exhaustive", "random", "greedy", "bayesian")
_STARTED = ("greedy", "bayesian")


@dataclass(frozen=True)
class Searched:
    """Searches of one strategy on one sweep: evaluations until success for each seed, None if it ended without."""

    sweep: str
    strategy: str
    size: int
    evaluations: tuple[int | None, ...]

    @property
    def share(self) -> float:
        """Median share of the space that is evaluated; a search without success is charged all of it."""
        return statistics.median(self.size if count is None else count for count in self.evaluations) / self.size

    @property
    def worst_tenth(self) -> float:
        """Share of the space that suffices for nine searches in ten."""
        counts = sorted(self.size if count is None else count for count in self.evaluations)
        return counts[math.ceil(0.9 * len(counts)) - 1] / self.size

    @property
    def found(self) -> int:
        """Number of searches that succeeded; the others gave up, or ran out of budget."""
        return len(self.evaluations) - self.evaluations.count(None)

    @property
    def median(self) -> float:
        """Median of the evaluations; infinity if half of the searches did not succeed."""
        return statistics.median(self._counts)

    def chance(self, other: Searched) -> float:
        """Return the p-value of a difference between two strategies as large as in these searches."""
        return rank_sum(self._counts, other._counts)

    def before(self, other: Searched) -> bool:
        """Return True if this strategy succeeds earlier than the other more often than later."""
        return sum((count > each) - (count < each) for count in self._counts for each in other._counts) < 0

    @property
    def _counts(self) -> list[float]:
        return [math.inf if count is None else count for count in self.evaluations]


@dataclass(frozen=True)
class TunerBenchmark(Benchmark):
    """Result of `run`: ``searches`` for each sweep and strategy, and ``labels`` of the sweeps."""

    kind = "bench-tune"

    labels: Mapping[str, str]
    searches: tuple[Searched, ...]
    notes: tuple[str, ...] = field(default=())

    def of(self, sweep: str) -> list[Searched]:
        """Return the strategies on one sweep, the most frugal first."""
        return sorted(
            (one for one in self.searches if one.sweep == sweep), key=lambda one: (one.share, one.worst_tenth)
        )

    @property
    def overall(self) -> list[tuple[str, float, float]]:
        """Each strategy with the mean and the largest of its shares over the sweeps, the smallest mean first."""
        shares: dict[str, list[float]] = {}
        for one in self.searches:
            shares.setdefault(one.strategy, []).append(one.share)
        whole = {name: values for name, values in shares.items() if len(values) == len(self.labels)}
        ranked = [(name, statistics.mean(values), max(values)) for name, values in whole.items()]
        return sorted(ranked, key=lambda row: row[1])

    def beside(self, sweep: str) -> dict[str, tuple[str, float]]:
        """Compare each strategy with bayesian on one sweep: sooner, later or tied, and the corrected chance of that.

        Strategies that start anywhere are corrected for their number, those that know more for theirs. Without bayesian
        the result is empty.
        """
        rows = {one.strategy: one for one in self.of(sweep)}
        ours = rows.pop("bayesian", None)
        if ours is None:
            return {}
        anywhere = {name: one.chance(ours) for name, one in rows.items() if _anywhere(one)}
        others = {name: one.chance(ours) for name, one in rows.items() if name not in anywhere}
        return {
            name: ("tied" if chance >= TIE else "sooner" if rows[name].before(ours) else "later", chance)
            for name, chance in (holm(anywhere) | holm(others)).items()
        }

    @property
    def verdict(self) -> str:
        """Verdict on our bayesian search against `AIM` and against all that start anywhere; empty if it did not run."""
        ours = {one.sweep: one for one in self.searches if one.strategy == "bayesian"}
        if not ours:
            return ""
        anywhere = {one.strategy for one in self.searches if _anywhere(one)}
        ahead = {
            name: [one for one, (order, _) in self.beside(name).items() if order == "sooner" and one in anywhere]
            for name in ours
        }
        first = sum(not names for names in ahead.values())
        largest = max(one.share for one in ours.values())
        missed = "" if first == len(ours) and largest <= AIM else "   MISSED"
        lines = [f"{name}: sooner than bayesian: {', '.join(names)}" for name, names in ahead.items() if names]
        lines.append(f"bayesian evaluates {largest:.1%} of a sweep at most (aim {AIM:.0%})")
        lines[-1] += f" and is first or tied on {first} of {len(ours)} among those that start anywhere{missed}"
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        rows = [asdict(one) | {"share": one.share} for one in self.searches]
        return {"labels": dict(self.labels), "searches": rows}

    def __str__(self) -> str:
        lines = []
        for name, label in self.labels.items():
            rows = self.of(name)
            lines += [f"{name}: {rows[0].size} configurations", f"  {label}"]
            lines.append(f"  {'strategy':44}{'found':>10}{'median':>8}{'share':>8}{'9 in 10':>9}  beside bayesian")
            beside = self.beside(name)
            for one in rows:
                found = f"{one.found} of {len(one.evaluations)}"
                median = f"{one.median:g}" if math.isfinite(one.median) else "-"
                shares = f"{one.share:>8.1%}{one.worst_tenth:>9.1%}"
                order = "{} (p {:.2g})".format(*beside[one.strategy]) if one.strategy in beside else ""
                lines.append(f"  {one.strategy:44}{found:>10}{median:>8}{shares}  {order}".rstrip())
        if len(self.labels) > 1:
            lines += ["all sweeps", f"  {'strategy':44}{'mean':>13}{'largest':>9}"]
            lines += [f"  {name:44}{mean:>12.1%} {largest:>8.1%}" for name, mean, largest in self.overall]
        lines += [*filter(None, [self.verdict]), *self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class SearchEnd:
    """The end of a search: a configuration within the share ``tolerance`` of the best, or ``budget`` evaluations.

    Without a ``budget`` (None) there is no limit.
    """

    tolerance: float = TOLERANCE
    budget: int | None = None

    def __str__(self) -> str:
        return f"within {self.tolerance:.0%} of the best" + (f", in {self.budget} evaluations" if self.budget else "")


ANY_NUMBER = SearchEnd()
"""End of a search without a limit of evaluations."""


def run(
    sweeps: Sequence[str] | None = None,
    *,
    measured: str | Path | None = None,
    seeds: int = SEEDS,
    end: SearchEnd = ANY_NUMBER,
    peers: bool = True,
    strategies: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> TunerBenchmark:
    """Replay sweeps under every strategy.

    Args:
        sweeps: files or names; default all that come with the package.
        measured: a folder of published spaces, Kernel Tuner caches and T4 results, which come first.
        seeds: searches of each strategy on each sweep.
        end: end of each search.
        peers: True to compare with Kernel Tuner's strategies, if it is installed.
        strategies: names of the only strategies to run; default: all.
        progress: called with a line about each step as it begins.
    """
    found = [] if measured is None else [sweep for _, sweep in sweeps_in(Path(measured))]
    loaded = found + [load(name) for name in (shipped() if sweeps is None else sweeps)]
    notes = [f"Found: {end}."]
    names = list(strategies or _OURS)
    if peers and strategies is None:
        if kernel_tuner_strategies.available():
            names += [kernel_tuner_strategies.PREFIX + name for name in kernel_tuner_strategies.NAMES]
        else:
            notes.append(
                'Kernel Tuner is not installed: pip install -e ".[kernel-tuner]" to compare with its strategies.'
            )
    searches = []
    warned: Counter[str] = Counter()
    for sweep in loaded:
        progress(f"searching {sweep.name}, {seeds} times with each of {len(names)} strategies")
        spaces = [_listed(sweep, seed) for seed in range(seeds)]
        seconds = {tuple(trial.config.values()): trial.seconds for trial in sweep.trials}
        for name, plan, start in _plans(sweep, names, loaded):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                counts = tuple(
                    evaluations(space, seconds, plan, start, random.Random(seed), end)
                    for seed, space in enumerate(spaces)
                )
            searches.append(Searched(sweep.name, name, len(seconds), counts))
            warned.update(f"{name} warned: {one.category.__name__}: {one.message}" for one in caught)
    notes += [f"{text} ({count} times)" for text, count in warned.items()]
    return TunerBenchmark({sweep.name: sweep.label for sweep in loaded}, tuple(searches), tuple(notes))


def _anywhere(one: Searched) -> bool:
    """Return True if a strategy starts at a random point and knows no other case."""
    return one.strategy in search.STRATEGIES or one.strategy.startswith(kernel_tuner_strategies.PREFIX)


def _listed(sweep: Sweep, seed: int) -> Space:
    """Return the space of a sweep, with the values of each tunable in their order or backwards."""
    rng = random.Random(f"{sweep.name} {seed}")
    lists = {name: values[:: rng.choice((1, -1))] for name, values in sweep.parameters.items()}
    return space_of(replace(sweep, parameters=lists))


def _plans(
    sweep: Sweep, names: Iterable[str], sweeps: Sequence[Sweep]
) -> Iterable[tuple[str, Strategy, Mapping | None]]:
    """Yield the contenders on a sweep: a name, the strategy, and where it starts."""
    yield from ((name, search.strategy(name), None) for name in names)
    for other in sweeps:
        if (other.op, other.variant) == (sweep.op, sweep.variant) and other.case_name != sweep.case_name:
            yield f"predicted, after scouting {other.case_name}", _ordered_by(other), None
    if sweep.default_config is not None and sweep.default_config in [dict(one.config) for one in sweep.trials]:
        for name in names:
            if name in _STARTED:
                yield f"{name}, from the untuned rule", search.strategy(name), sweep.default_config


def _ordered_by(scouted: Sweep) -> Strategy:
    """Return the strategy "predicted" with the times of another case's sweep."""
    seconds = {tuple(trial.config.items()): trial.seconds for trial in scouted.trials if trial.seconds is not None}

    def plan(space: Space, start: Mapping | None, rng: random.Random) -> Batches:
        space.estimate = lambda config: seconds.get(tuple(config.items()), math.inf)
        return search.predicted(space, start, rng)

    return plan


def evaluations(
    space: Space,
    seconds: Mapping[tuple, float | None],
    plan: Strategy,
    start: Mapping | None,
    rng: random.Random,
    end: SearchEnd = ANY_NUMBER,
) -> int | None:
    """Return how many configurations a strategy evaluates until one is good enough for the ``end`` of the search.

    None if it ends before, or has evaluated as many as the budget allows.
    """
    enough = (1 + end.tolerance) * min(value for value in seconds.values() if value is not None)
    seen: set[tuple] = set()
    batches = plan(space, start, rng)
    try:
        batch = next(batches)
        while True:
            scores = []
            for config in batch:
                key = tuple(config[name] for name in space.parameters)
                seen.add(key)
                value = seconds.get(key)
                scores.append(math.inf if value is None else value)
                if scores[-1] <= enough:
                    return len(seen)
                if len(seen) == end.budget:
                    return None
            batch = batches.send(scores)
    except StopIteration:
        return None
    finally:
        batches.close()
