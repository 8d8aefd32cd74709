"""Interface of a session of simulated Triton, as its driver, its timing and its autotuning use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel


class TritonSession(Protocol):
    """A session: the device model that it simulates, and its clock. `SimulatedTriton` implements it."""

    model: DeviceModel
    arch: str
    inductor: bool
    driver: Any
    previous: Any
    """Driver that Triton had before the session."""
    cleared: int
    """Number of requests for clean caches by benchmarks."""

    @property
    def shipped_model(self) -> str:
        """Key of the shipped device model whose attributes complete ``model``."""
        ...

    @property
    def checked(self) -> bool:
        """True if launches run with checks."""
        ...

    def launch(
        self, function: Any, launcher: Any, grid: Any, block: int, values: list[Any], shared: int, cluster: Any
    ) -> None:
        """Run one launch; check, trace, time and keep it as the session's options ask."""
        ...

    def note(self, label: str, text: str) -> None:
        """Add a note to the latest launch of a kernel, and show it."""
        ...

    def unseen(self) -> AbstractContextManager[None]:
        """Return a block whose launches in this thread are neither checked, timed nor kept."""
        ...

    def now(self) -> float:
        """Return the predicted seconds of all launches since the first call."""
        ...

    def predicted(self, work: Callable[[], Any]) -> float:
        """Return the predicted seconds of the launches of ``work`` in this thread; nan without a launch."""
        ...
