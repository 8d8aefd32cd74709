"""Predicted times in place of those that Triton and ``triton.testing`` would measure."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from triton.runtime import driver

from workbench.errors import PredictedTimeWarning

if TYPE_CHECKING:
    from workbench.driver.triton.session import TritonSession


class Event:
    """A point on the predicted time line: the time that all launches before it would take."""

    def __init__(self, session: TritonSession, enable_timing: bool = False, **options: Any):
        self._session, self._at, self._cleared = session, 0.0, 0

    def record(self, stream: Any = None) -> None:
        """Place the event behind all launches so far."""
        self._at, self._cleared = self._session.now(), self._session.cleared

    def wait(self, stream: Any = None) -> None:
        """Do nothing: launches are complete when they return."""

    def query(self) -> bool:
        """Return True: the launches before the event are always complete."""
        return True

    synchronize = wait

    def elapsed_time(self, end: Event) -> float:
        """Return the predicted milliseconds up to ``end``; infinite if caches were cleared in between.

        Triton's ``do_bench`` repeats for 100 ms by an estimate, the only interval in which it clears caches: thousands
        of simulated launches that all have the same predicted time. An infinite estimate makes it a single one.
        """
        if end._cleared > self._cleared:
            return math.inf
        return 1e3 * (end._at - self._at) or math.nan


def benchmark(
    fn: Callable[[], Any], warmup: int = 25, rep: int = 100, grad_to_none: Any = None, quantiles: Any = None,
    return_mode: str = "mean",
) -> Any:  # fmt: skip
    """Run ``fn`` once and return its predicted milliseconds, in the place of ``triton.testing.do_bench``.

    Returns nan if it launches nothing on the simulated device: torch's work on the CPU says nothing about a GPU.
    """
    active = driver.active
    if not hasattr(active, "session"):
        return active.get_benchmarker()(fn, quantiles=quantiles)
    for tensor in grad_to_none or ():
        tensor.grad = None
    milliseconds = 1e3 * active.session.predicted(fn)
    return answered(milliseconds, quantiles, return_mode)


def warn_of_prediction(model: object, stacklevel: int) -> None:
    """Warn that the times of Triton's benchmarks are predicted."""
    warnings.warn(
        f"Triton's benchmarks give times predicted for {model}, not measured ones.",
        PredictedTimeWarning,
        stacklevel=stacklevel + 1,
    )


def answered(milliseconds: float, quantiles: Any, return_mode: str) -> Any:
    """Return one time in the form that ``do_bench`` returns: a list for several quantiles or for ``"all"``."""
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) > 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds


def benchmark_graph(
    fn: Callable[[], Any], rep: int = 20, grad_to_none: Any = None, quantiles: Any = None, return_mode: str = "mean"
) -> Any:
    """Run ``benchmark`` in the place of ``triton.testing.do_bench_cudagraph``."""
    return benchmark(fn, 0, rep, grad_to_none, quantiles, return_mode)
