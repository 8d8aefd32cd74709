"""``workbench bench tune``: how much of a space each search strategy looks at, and what the tuner itself costs.

The search part replays recorded sweeps: for every strategy the share of the space that it had evaluated when it met a
configuration within 2 % of the best, the median over seeds. Everybody starts at a random point, since Kernel Tuner does
not know the untuned rule; what it is worth shows in the rows that start from it. Ours and Kernel Tuner's see the same
space through the same interface, and a configuration that is asked for again costs nothing.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from workbench.bench import tuner_speed
from workbench.tuning import kernel_tuner_strategies, search
from workbench.tuning.replay import space_of
from workbench.tuning.space import Space
from workbench.tuning.sweep import Sweep, load, shipped

TOLERANCE = 0.02
"""A configuration is good enough within this share of the best of the sweep."""

SEEDS = 50

AIM = 0.10
"""What our best strategy, started anywhere, may take of any sweep; it should also come first."""

_OURS = ("random", "greedy", "bayesian")


@dataclass(frozen=True)
class Searched:
    """One strategy on one sweep: evaluations until it was good enough, for each seed; None where it ended before."""

    sweep: str
    strategy: str
    size: int
    evaluations: tuple[int | None, ...]

    @property
    def share(self) -> float:
        """The median share of the space; a search that ended without is charged all of it."""
        return statistics.median(self.size if count is None else count for count in self.evaluations) / self.size

    @property
    def worst_tenth(self) -> float:
        """The share that nine searches in ten get by with."""
        counts = sorted(self.size if count is None else count for count in self.evaluations)
        return counts[math.ceil(0.9 * len(counts)) - 1] / self.size

    @property
    def unfinished(self) -> int:
        """Searches that ended before they were good enough."""
        return self.evaluations.count(None)


@dataclass(frozen=True)
class TunerBenchmark:
    """What `run` found: ``searches`` for each sweep and strategy, ``labels`` of the sweeps, ``speed`` of the tuner."""

    labels: Mapping[str, str]
    searches: tuple[Searched, ...]
    speed: tuple[tuner_speed.Figure, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def of(self, sweep: str) -> list[Searched]:
        """The strategies on one sweep, the most frugal first."""
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

    @property
    def verdict(self) -> str:
        """Our bayesian search against `AIM` and against all that start anywhere, too; empty where it did not run."""
        anywhere = [row for row in self.overall if row[0] in search.STRATEGIES or _is_peer(row[0])]
        names = [name for name, *_ in anywhere]
        if "bayesian" not in names:
            return ""
        place, largest = names.index("bayesian") + 1, anywhere[names.index("bayesian")][2]
        missed = "" if place == 1 and largest <= AIM else "   MISSED"
        return (
            f"bayesian evaluates {largest:.1%} of a sweep at most (aim {AIM:.0%}) and comes in place {place} of the "
            f"{len(names)} that start anywhere (aim 1){missed}"
        )

    def to_json(self) -> str:
        """All figures, for a record."""
        rows = [asdict(one) | {"share": one.share} for one in self.searches]
        speed = [asdict(figure) for figure in self.speed]
        return json.dumps({"labels": dict(self.labels), "searches": rows, "speed": speed}, indent=2)

    def __str__(self) -> str:
        lines = []
        for name, label in self.labels.items():
            rows = self.of(name)
            lines += [f"{name}: {rows[0].size} configurations", f"  {label}"]
            lines.append(f"  {'strategy':44}{'median share':>13}{'9 in 10':>9}")
            for one in rows:
                note = f"   {one.unfinished} of {len(one.evaluations)} gave up" if one.unfinished else ""
                lines.append(f"  {one.strategy:44}{one.share:>12.1%} {one.worst_tenth:>8.1%}{note}")
        if len(self.labels) > 1:
            lines += ["all sweeps", f"  {'strategy':44}{'mean':>13}{'largest':>9}"]
            lines += [f"  {name:44}{mean:>12.1%} {largest:>8.1%}" for name, mean, largest in self.overall]
        lines += [*filter(None, [self.verdict]), *self.notes, *map(str, self.speed)]
        return "\n".join(lines)


def run(
    sweeps: Sequence[str] | None = None,
    *,
    seeds: int = SEEDS,
    peers: bool = True,
    speed: bool = True,
    strategies: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> TunerBenchmark:
    """Replay sweeps under every strategy, and time the tuner.

    Args:
        sweeps: files or names; default all that come with the package.
        seeds: searches of each strategy on each sweep.
        peers: also Kernel Tuner's strategies, where it is installed.
        speed: also what the tuner itself costs; compiles 200 kernels.
        strategies: only these.
        progress: called with a line about each thing that is begun.
    """
    loaded = [load(name) for name in (shipped() if sweeps is None else sweeps)]
    notes = []
    names = list(strategies or _OURS)
    if peers and strategies is None:
        if kernel_tuner_strategies.available():
            names += [kernel_tuner_strategies.PREFIX + name for name in kernel_tuner_strategies.NAMES]
        else:
            notes.append(
                'Kernel Tuner is not installed: pip install -e ".[kernel-tuner]" to compare with its strategies.'
            )
    searches = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the optimizers behind some strategies overflow
        for sweep in loaded:
            progress(f"searching {sweep.name}, {seeds} times with each of {len(names)} strategies")
            searches += _searched(sweep, names, seeds, loaded)
    if speed:
        progress(f"compiling {tuner_speed.KERNELS} kernels, timing the tuner itself")
    figures = tuner_speed.run() if speed else ()
    return TunerBenchmark({sweep.name: sweep.label for sweep in loaded}, tuple(searches), figures, tuple(notes))


def _is_peer(name: str) -> bool:
    return name.startswith(kernel_tuner_strategies.PREFIX)


def _searched(sweep: Sweep, names: Iterable[str], seeds: int, sweeps: Sequence[Sweep]) -> Iterable[Searched]:
    space = space_of(sweep)
    seconds = {tuple(trial.config.values()): trial.seconds for trial in sweep.trials}
    start = sweep.default_config if sweep.default_config in space else None
    plans: list[tuple[str, search.Strategy, Mapping | None]] = [(name, search.strategy(name), None) for name in names]
    for other in sweeps:
        if (other.op, other.variant) == (sweep.op, sweep.variant) and other.case_name != sweep.case_name:
            plans.append((f"predicted, after scouting {other.case_name}", _ordered_by(other), None))
    if start is not None:
        plans += [
            (f"{name}, from the untuned rule", search.strategy(name), start) for name in names if name in _OURS[1:]
        ]
    for name, plan, where in plans:
        counts = tuple(evaluations(space, seconds, plan, where, random.Random(seed)) for seed in range(seeds))
        yield Searched(sweep.name, name, len(space), counts)


def _ordered_by(scouted: Sweep) -> search.Strategy:
    """The strategy "predicted" with the times of another case's sweep."""
    seconds = {tuple(trial.config.items()): trial.seconds for trial in scouted.trials if trial.seconds is not None}

    def plan(space: Space, start: Mapping | None, rng: random.Random) -> search.Batches:
        space.estimate = lambda config: seconds.get(tuple(config.items()), math.inf)
        return search.predicted(space, start, rng)

    return plan


def evaluations(
    space: Space,
    seconds: Mapping[tuple, float | None],
    plan: search.Strategy,
    start: Mapping | None,
    rng: random.Random,
    tolerance: float = TOLERANCE,
) -> int | None:
    """How many configurations a strategy evaluates until one is within ``tolerance`` of the best; None if it ends."""
    enough = (1 + tolerance) * min(value for value in seconds.values() if value is not None)
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
            batch = batches.send(scores)
    except StopIteration:
        return None
    finally:
        batches.close()
