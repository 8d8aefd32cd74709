"""A session of Triton's simulated device as its driver, its clocks and Inductor see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel


class TritonSession(Protocol):
    """The part of `workbench.driver.triton_driver.SimulatedTriton` that what it is made of needs."""

    model: DeviceModel
    arch: str
    cleared: int
    inductor: bool
    previous: Any
    driver: Any

    @property
    def shipped_model(self) -> str:
        """The key of a shipped device model that stands in for attributes which the model lacks."""

    @property
    def checked(self) -> bool:
        """True where launches run with checks."""

    def launch(
        self, function: Any, launcher: Any, grid: Any, block: int, values: list[Any], shared: int, cluster: Any
    ) -> None:
        """Run one launch."""

    def note(self, label: str, text: str) -> None:
        """Add a note to the latest launch of a kernel."""

    def unseen(self) -> AbstractContextManager[None]:
        """Open a block whose launches nobody checks, times or keeps."""

    def now(self) -> float:
        """Return the predicted seconds of all launches up to here."""

    def predicted(self, work: Callable[[], Any]) -> float:
        """Return the predicted seconds of what ``work`` launches."""
