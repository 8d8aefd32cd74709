"""Kernel Tuner's search strategies over our own measurements: ``strategy="kernel_tuner:genetic_algorithm"``.

A strategy of Kernel Tuner calls a runner for the configurations that it wants; ours is asked with a generator. So the
strategy runs in a thread of its own that waits while its configurations are measured. It draws from the global random
numbers of Python and NumPy, which are its own for as long as it runs and given back in between.

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
from workbench.tuning.space import Space

if TYPE_CHECKING:
    from workbench.ops.variant import Config
    from workbench.tuning.search import Batches, Strategy

PREFIX = "kernel_tuner:"

# Not here: brute_force is our exhaustive; those for several objectives; those that need packages of their own.
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
"""A strategy that asks for so many configurations in a row that it knows already has ended: some go on for ever."""


_FAILED_FOR_BAYES_OPT = 1e20
"""The time by which its Bayesian optimiser tells a failure. What Kernel Tuner 1.5 turns errors into, the largest float,
is not that one: it would be fitted as a time, and the process could tell nothing else apart."""


def available() -> bool:
    """Whether Kernel Tuner is installed."""
    return importlib.util.find_spec("kernel_tuner") is not None


def strategy(name: str) -> Strategy:
    """The strategy ``name`` of Kernel Tuner as one of ours.

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
    """Ends the strategy's thread: nobody asks it any more."""


class _Strategy:
    """One run of a strategy in its thread; `resume` gives it scores and returns what it wants to know next."""

    def __init__(self, name: str, space: Space, start: Config | None, rng: random.Random):
        self._name, self._space, self._start = name, space, start
        self._known: dict[tuple, float] = {}
        self._asked: queue.SimpleQueue = queue.SimpleQueue()
        self._answered: queue.SimpleQueue = queue.SimpleQueue()
        self._states = random.Random(rng.random()).getstate(), np.random.RandomState(rng.randrange(2**32)).get_state()
        self._thread: threading.Thread | None = None

    def resume(self, scores: list[float] | None) -> list[dict] | None:
        """The next batch, or None when the strategy has ended."""
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
        """Called in the strategy's thread: the scores of these configurations, each measured once."""
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
        """Measures by asking; like Kernel Tuner's own runners it counts a configuration once."""

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
"""Strategies that refuse to be told where to start."""


def _searchspace(space: Space) -> Any:
    """The space as Kernel Tuner's; what is legal has been found out already.

    Made anew for each run: it remembers what it was asked, which would make the next run another one.
    """
    from constraint import FunctionConstraint
    from kernel_tuner.searchspace import Searchspace

    held = {tuple(config.values()) for config in space}
    parameters = {name: list(values) for name, values in space.parameters.items()}
    return Searchspace(parameters, [FunctionConstraint(lambda *values: values in held)], 1 << 30)
