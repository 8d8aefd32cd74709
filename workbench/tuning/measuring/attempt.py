"""Attempts of a tuning run, their setting, the protocol of their executor, and the progress of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from workbench.analysis.device_models import DeviceModel
from workbench.base.trials.store import Identity
from workbench.base.trials.trial import Trial, canonical
from workbench.tuning.measuring.measure import Limits

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant

ISOLATION = ("auto", "process", "none")


@dataclass(frozen=True)
class Setting:
    """Device, model, limits and process in which configurations are measured; ``isolation`` is one of `ISOLATION`."""

    device: Device
    model: DeviceModel
    """Device model for which times are predicted, or the one nearest to the GPU."""
    limits: Limits | None
    isolation: str
    gpu: int | None = None
    """Number of the GPU, if the device is one."""


@dataclass(frozen=True)
class Progress:
    """Progress of a tuning run. An attempt is one configuration on one case; ``total`` is None if it is unknown.

    During scouting, ``scouting`` names the variant and its case, and all figures are those of the scouting.
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
    """Number of its configuration in the order in which this run starts them; workers may end them in another."""


Tried = tuple[Attempt, Trial, bool]
"""An attempt, its trial, and True if it left this process's GPU context unusable."""


class Executor(Protocol):
    """Protocol of an executor that tries attempts."""

    @property
    def working(self) -> bool:
        """True if some attempts are not done."""

    def room(self, hurried: bool) -> int:
        """Return how many more attempts the executor takes now.

        ``hurried`` is True under a deadline, when no attempt should be claimed that may not be tried.
        """

    def put(self, attempt: Attempt) -> None:
        """Take one attempt."""

    def take(self) -> Iterator[Tried]:
        """Yield the attempts that are done, each once; wait a little for them."""

    def withdraw(self) -> list[Attempt]:
        """Cancel and return the attempts that have not begun."""

    def close(self) -> list[Tried]:
        """End all work at once; return the attempts that are done and that `take` has not yielded."""


def trial_key(trial: Trial) -> tuple[str, str, str]:
    """Return the key of a trial within one run: variant, case and configuration."""
    return trial.variant, trial.case, canonical(dict(trial.config))
