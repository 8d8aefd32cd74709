"""An attempt of a tuning run, the setting of its run, the protocol of its executor, and the progress of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from workbench.analysis.device_models import DeviceModel
from workbench.base.trials.store import Identity
from workbench.base.trials.trial import Trial, canonical
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.ops.variant import Case, Config, Variant
    from workbench.ptx import LaunchReport
    from workbench.toolchain import CompiledKernel

ISOLATION = ("auto", "process", "none")


@dataclass(frozen=True)
class Limits:
    """Limits of a run and of a compilation.

    Raises ArgumentError for a limit that is not above 0.
    """

    seconds: float | None = 120.0
    """Wall-clock seconds of a run; None for no limit.

    On a GPU the limit holds where a process of its own measures (:mod:`workbench.tuning.measuring.isolation`).
    """
    instructions: int | None = None
    """Warp instructions of a run on the simulator; None for no limit."""
    compile_seconds: float = 120.0
    """Seconds of a compilation."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not value > 0:
                raise ArgumentError(f"limits.{name}", value, "a number above 0", "Leave it out for the default.")


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


@dataclass(frozen=True)
class Attempt:
    """One configuration on one case, and everything that is known of it so far.

    Each stage of a measurer (`workbench.tuning.measuring.measure`) takes an attempt and returns the next one.
    """

    variant: Variant
    config: Config
    case: Case
    device: Device
    trial: Trial
    """The row that will be stored; its outcome holds once the attempt has ``ended``."""
    ended: bool = False
    judging: bool = False
    """True for the small case on which the values of a sampled case are judged: it is neither counted nor timed."""
    problem: Any = None
    kernels: tuple[CompiledKernel, ...] = ()
    tensors: Any = None
    report: LaunchReport | None = None
    identity: Identity | None = None
    """Identity of its row in the store, if it was claimed there."""
    number: int = -1
    """Number of its configuration in the order in which this run starts them; workers may end them in another."""
    lost: bool = False
    """True if it left this process's GPU context unusable."""

    @classmethod
    def of(cls, variant: Variant, config: Config, case: Case, device: Device, **facts: Any) -> Attempt:
        """Return an attempt of which nothing is known; ``facts`` are further fields."""
        return cls(variant, config, case, device, attempted(variant, config, case, device), **facts)

    @property
    def key(self) -> str:
        """Key of its row in the store."""
        assert self.identity is not None
        return self.identity.key

    def ending(self, outcome: str, message: str) -> Attempt:
        """Return the attempt ended with an outcome."""
        return replace(self, trial=replace(self.trial, outcome=outcome, message=message), ended=True)


def attempted(
    variant: Variant, config: Config, case: Case, device: Device, outcome: str = "crash", **facts: Any
) -> Trial:
    """Return the trial of an attempt with its outcome; ``facts`` are further fields of `Trial`."""
    return Trial(
        op=variant.op,
        variant=variant.name,
        language=variant.language,
        case=case.name,
        config=dict(config),
        device=device.name,
        arch=device.arch,
        outcome=outcome,
        **facts,
    )


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

    def take(self) -> Iterator[Attempt]:
        """Yield the attempts that are done, each once; wait a little for them."""

    def withdraw(self) -> list[Attempt]:
        """Cancel and return the attempts that have not begun."""

    def close(self) -> list[Attempt]:
        """End all work at once; return the attempts that are done and that `take` has not yielded."""


def trial_key(trial: Trial) -> tuple[str, str, str]:
    """Return the key of a trial within one run: variant, case and configuration."""
    return trial.variant, trial.case, canonical(dict(trial.config))
