"""One attempt of a tuning run: where it is made, what tries it, how far the run is with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workbench.analysis.device_models import DeviceModel
from workbench.base.trials.store import Identity
from workbench.base.trials.trial import Trial, canonical
from workbench.tuning.measure import Limits

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant

ISOLATION = ("auto", "process", "none")


@dataclass(frozen=True)
class Setting:
    """Where configurations are measured, and how; ``isolation`` is one of `ISOLATION`."""

    device: Device
    model: DeviceModel
    """What is predicted for, or stands nearest to the GPU."""
    limits: Limits | None
    isolation: str
    gpu: int | None = None
    """The number of the GPU, if the device is one."""


@dataclass(frozen=True)
class Progress:
    """How far a tuning run is. An attempt is one configuration on one case; ``total`` is None where it is not known.

    While a run scouts, ``scouting`` says what and on which case, and the figures are those of the scouting alone.
    """

    done: int
    total: int | None
    new: int
    reused: int
    latest: Trial
    best: Trial | None
    scouting: str = ""


@dataclass
class Attempt:
    """One configuration on one case, from its claim in the store to its row."""

    variant: Variant
    config: Config
    case: Case
    identity: Identity
    number: int = -1
    """That of its configuration in the order in which this run takes them up: workers may end them in another."""


Tried = tuple[Attempt, Trial, bool]
"""An attempt, what it came to, and whether it left this process's GPU context unusable."""


class Executor(Protocol):
    """What tries attempts."""

    @property
    def working(self) -> bool:
        """Whether it has some that are not done."""

    def room(self, hurried: bool) -> int:
        """How many more it takes now; ``hurried`` under a deadline, when nothing is to be claimed that may not be
        tried."""

    def put(self, attempt: Attempt) -> None:
        """Take one."""

    def take(self) -> Iterator[Tried]:
        """What has been done, each once; waits a little for it."""

    def withdraw(self) -> list[Attempt]:
        """Give back those that nobody has begun."""

    def close(self) -> list[Tried]:
        """End, whatever is being done; what has been done and not been taken."""


def trial_key(trial: Trial) -> tuple[str, str, str]:
    """What tells the trials of one run apart: variant, case and configuration."""
    return trial.variant, trial.case, canonical(dict(trial.config))
