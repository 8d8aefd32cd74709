"""Search strategies of Kernel Tuner over our own measurements: ``strategy="kernel_tuner:genetic_algorithm"``.

A strategy of Kernel Tuner calls a runner for the configurations that it wants; our strategies are generators. So the
strategy runs in a thread of its own that waits while its configurations are measured. It draws from the global random
numbers of Python and NumPy; these are swapped for its own while it runs.

Needs the extra ``kernel-tuner``. https://github.com/KernelTuner/kernel_tuner
"""

from __future__ import annotations

import importlib.util
import math
import queue
import random
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import MissingToolError, UnknownNameError, WorkbenchError
from workbench.tuning.search.space import Batches, Space, Strategy

if TYPE_CHECKING:
    from workbench.ops.variant import Config

PREFIX = "kernel_tuner:"

# Left out: brute_force (our exhaustive), those for several objectives, and those that need packages of their own.
NAMES = (
    "random_sample",
    "genetic_algorithm",
    "diff_evo",
    "pso",
    "firefly_algorithm",
    "simulated_annealing",
    "dual_annealing",
    "basinhopping",
    "minimize",
    "mls",
    "greedy_mls",
    "ordered_greedy_mls",
    "greedy_ils",
    "bayes_opt",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
)

_PATIENCE = 1000
"""Known configurations in a row after which a strategy counts as ended, as some go on for ever."""


_FAILED_FOR_BAYES_OPT = 1e20
"""Time by which Kernel Tuner's Bayesian optimiser recognises a failure.

Kernel Tuner 1.5 turns errors into another number, the largest float. That would be fitted as a time, and the process
could not tell any other times apart.
"""


def available() -> bool:
    """Return True if Kernel Tuner is installed."""
    return importlib.util.find_spec("kernel_tuner") is not None


def strategy(name: str) -> Strategy:
    """Return the strategy ``name`` of Kernel Tuner as one of ours.

    Raises MissingToolError without Kernel Tuner, UnknownNameError for a name that is not in `NAMES`.
    """
    if name not in NAMES:
        known = ", ".join(PREFIX + each for each in NAMES)
        raise UnknownNameError("strategy", repr(PREFIX + name), known, "Name one of these.")
    if not available():
        raise MissingToolError(f'strategy {PREFIX}{name} needs Kernel Tuner: pip install -e ".[kernel-tuner]"')

    def run(space: Space, start: Config | None, rng: random.Random) -> Batches:
        thread = _Strategy(name, space, start, rng)
        try:
            batch = thread.resume(None)
            while batch is not None:
                batch = thread.resume((yield batch))
        finally:
            thread.end()

    run.__name__ = name
    return run


class _Stop(Exception):
    """Signal that ends the strategy's thread when its caller needs no further configuration."""


class _Strategy:
    """One run of a strategy in its thread; `resume` passes scores to it and returns the next batch that it wants."""

    def __init__(self, name: str, space: Space, start: Config | None, rng: random.Random):
        self._name, self._space, self._start = name, space, start
        self._known: dict[tuple, float] = {}
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._answered: queue.SimpleQueue = queue.SimpleQueue()
        self._states = random.Random(rng.random()).getstate(), np.random.RandomState(rng.randrange(2**32)).get_state()
        self._thread: threading.Thread | None = None

    def resume(self, scores: list[float] | None) -> list[dict] | None:
        """Return the next batch, or None when the strategy has ended."""
        self._swap_random_numbers()
        try:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._answered.put(scores)
            batch = self._asked.get()
        finally:
            self._swap_random_numbers()
        if isinstance(batch, BaseException):
            raise WorkbenchError(f"Kernel Tuner's {self._name}: {type(batch).__name__}: {batch}") from batch
        return batch

    def end(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._answered.put(_Stop())
            self._thread.join()

    def ask(self, configs: list[tuple]) -> list[float]:
        """Return the scores of these configurations, each measured once; called in the strategy's thread."""
        new = [values for values in dict.fromkeys(configs) if values not in self._known]
        if new:
            self._asked.put([dict(zip(self._space.parameters, values, strict=True)) for values in new])
            scores = self._answered.get()
            if isinstance(scores, _Stop):
                raise scores
            self._known.update(zip(new, scores, strict=True))
        return [self._known[values] for values in configs]

    def _run(self) -> None:
        try:
            _tune(self._name, self._space, self._start, self)
            self._asked.put(None)
        except _Stop:
            pass
        except Exception as error:
            self._asked.put(error)

    def _swap_random_numbers(self) -> None:
        """Exchange the global generators' states for the strategy's own, or back."""
        now = random.getstate(), np.random.get_state()
        random.setstate(self._states[0])
        np.random.set_state(self._states[1])
        self._states = now


def _tune(name: str, space: Space, start: Config | None, asker: _Strategy) -> None:
    from kernel_tuner import interface, util
    from kernel_tuner.runners.runner import Runner

    class AskingRunner(Runner):
        """Runner that measures by asking; like Kernel Tuner's own runners it counts a configuration once."""

        dev = type("Device", (), {"max_threads": 1 << 30, "name": "workbench", "env": {}})()

        def __init__(self) -> None:
            super().__init__()
            self.seen: set[tuple] = set()
            self.repeats = 0

        def get_device_info(self) -> Any:
            return self.dev

        def get_environment(self, tuning_options: Any) -> dict:
            return {}

        def run(self, parameter_space: Iterable[Sequence], tuning_options: Any) -> list[dict | None]:
            wanted = [tuple(values) for values in parameter_space]
            new = [values for values in dict.fromkeys(wanted) if values not in self.seen]
            left = tuning_options.budget.get_evaluations_remaining()
            beyond = set(new[int(left) :]) if left < len(new) else set()
            inside = [values for values in wanted if values not in beyond]
            scores = dict(zip(inside, asker.ask(inside), strict=True))
            tuning_options.budget.add_evaluations(len(set(new) - beyond))
            self.seen.update(inside)
            self.repeats = 0 if new else self.repeats + len(wanted)
            if self.repeats > _PATIENCE:
                raise util.StopCriterionReached("nothing new")
            return [None if values in beyond else _result(values, scores[values]) for values in wanted]

    def _result(values: tuple, seconds: float) -> dict:
        config = dict(zip(space.parameters, values, strict=True))
        times = dict.fromkeys(("compile_time", "verification_time", "benchmark_time"), 0.0)
        if math.isfinite(seconds):
            return config | times | {"time": seconds * 1e3}
        if name == "bayes_opt":
            return config | times | {"time": _FAILED_FOR_BAYES_OPT}
        return config | times | {"time": util.RuntimeFailedConfig(), "__error__": util.RuntimeFailedConfig()}

    options = interface.Options({"max_fevals": len(space)} | ({"fraction": 1.0} if name == "random_sample" else {}))
    if start is not None and name not in _WITHOUT_START:
        options["x0"] = [start[parameter] for parameter in space.parameters]
    tuning_options = interface.Options(
        tune_params={parameter: list(values) for parameter, values in space.parameters.items()},
        objective=["time"],
        objective_higher_is_better=[False],
        strategy_options=options,
        budget=util.TuningBudget(None, len(space)),
        metrics=None,
        restrictions=[],
        verbose=False,
        cache={},
        cachefile=None,
        seed=None,
    )
    interface.strategy_map[name].tune(_searchspace(space), AskingRunner(), tuning_options)


_WITHOUT_START = ("random_sample", "bayes_opt", "adaptive_tabu_greywolf", "hybrid_vndx")
"""Strategies that do not accept a starting point."""


def _searchspace(space: Space) -> Any:
    """Return the space as Kernel Tuner's, whose only rule is membership in ours.

    It is made anew for each run: it remembers what it was asked, which would change the next run.
    """
    from constraint import FunctionConstraint
    from kernel_tuner.searchspace import Searchspace

    held = {tuple(config.values()) for config in space}
    parameters = {name: list(values) for name, values in space.parameters.items()}
    return Searchspace(parameters, [FunctionConstraint(lambda *values: values in held)], 1 << 30)
