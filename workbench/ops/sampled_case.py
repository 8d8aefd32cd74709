"""A large case of which the simulator runs a sample of blocks, with a small one on which values are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from workbench.errors import ArgumentError, UnknownNameError
from workbench.launch import devices
from workbench.ptx.sample import Sampled

if TYPE_CHECKING:
    from workbench.base.trials.trial import Trial
    from workbench.launch.devices import Device
    from workbench.ops.op import Op
    from workbench.ops.values import Case, Check, Config
    from workbench.ops.variant import Variant


@dataclass(frozen=True)
class SampledCase:
    """A case that is counted by a sample of its blocks, with a small case on which values are judged.

    ``whole`` is counted by about ``blocks`` blocks of each launch; values are judged on ``judged_on``, which runs in
    full. The record, and so the key in a store, has all three. The reference and verdicts are the small case's,
    everything else is the whole case's.
    """

    whole: Case
    judged_on: Case
    blocks: int

    @classmethod
    def of(cls, op: Op, whole: Case, blocks: int, judged_on: str | Case | None = None) -> Self:
        """Return the sampled case of an op; ``judged_on`` is by default the op's quick case.

        Raises ArgumentError for fewer than one block, and where the case would judge itself, UnknownNameError for a
        ``judged_on`` that there is not.
        """
        check_blocks(blocks)
        if isinstance(judged_on, str) and judged_on not in op.cases:
            raise UnknownNameError("judged_on", repr(judged_on), ", ".join(op.cases), "Name a small case.")
        small = op.case(judged_on)
        if small.to_dict() == whole.to_dict():
            others = ", ".join(name for name, case in op.cases.items() if case.to_dict() != whole.to_dict())
            remedy = "Values are judged on a small case in full, and a sample of blocks of a larger one is counted."
            if judged_on is None:
                what = f"{whole.name!r}, which values would be judged on"
                raise ArgumentError("case", what, others or "a larger case; declare one", remedy)
            raise ArgumentError("judged_on", repr(small.name), "another case than the sampled one", remedy)
        return cls(whole, small, blocks)

    def device(self, variant: Variant, arch: str) -> Device:
        """Return the simulator on which the whole case runs."""
        return simulator_of(variant, arch, self.blocks)

    def sampled(self, counts: Mapping[str, Any]) -> Sampled:
        """Return which sample of blocks a run's counts are of."""
        if "parts" in counts:
            blocks = sum(part["grid_blocks"] for part in counts["parts"])
            return Sampled(blocks, blocks, because="one of several kernels reads what another wrote")
        return Sampled(**counts["sample"])

    def touched(self, trial: Trial) -> float:
        """Return the distinct bytes that a counted trial reads and writes, as a multiple of the case's minimum."""
        least = self.minimum_bytes(self.problem(trial.config, arch=trial.arch))
        return (trial.counts["unique_bytes_read"] + trial.counts["unique_bytes_written"]) / least

    @property
    def name(self) -> str:
        """Name of the whole case."""
        return self.whole.name

    @property
    def label(self) -> str:
        """Label of the whole case, with `how` it is run."""
        return f"{self.whole.label} ({self.how})"

    @property
    def how(self) -> str:
        """Short description of the sample, with the case that values are judged on."""
        return f"about {self.blocks} blocks; values judged on {self.judged_on.name}"

    def override(self, **changes: Any) -> Self:
        """Return a sampled case with fields of the whole case changed."""
        return type(self)(self.whole.override(**changes), self.judged_on, self.blocks)

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Any:
        """Return the whole case's problem."""
        return self.whole.problem(config, arch=arch)

    def inputs(self, problem: Any, device: str = "cpu") -> Any:
        """Return the whole case's inputs."""
        return self.whole.inputs(problem, device)

    def reference(self) -> Any:
        """Return the small case's reference, by which values are judged."""
        return self.judged_on.reference()

    def check(self, out: Any) -> Check:
        """Return the small case's verdict on its output."""
        return self.judged_on.check(out)

    def minimum_bytes(self, problem: Any) -> int:
        """Return the bytes that must cross memory once for the whole case."""
        return self.whole.minimum_bytes(problem)

    def to_dict(self) -> dict:
        """Return plain values, those of both cases and the number of blocks."""
        return {"whole": self.whole.to_dict(), "judged_on": self.judged_on.to_dict(), "sample": self.blocks}


def check_blocks(blocks: int) -> None:
    """Raise ArgumentError for a ``sample`` of fewer than one block."""
    if blocks < 1:
        raise ArgumentError("sample", blocks, "a number of blocks, 1 or more", "Leave it out to run all of them.")


def simulator_of(variant: Variant, arch: str, blocks: int) -> Device:
    """Return the simulator that runs about ``blocks`` blocks of a variant, or all if it has several kernels.

    Each of several kernels may read what another wrote, so that none of them may run in part.
    """
    return devices.simulator(arch, blocks if len(variant.steps) == 1 else 0)


def sampled(
    op: Op, cases: Sequence[Case], device: Device, blocks: int | None, judged_on: str | Case | None
) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return cases as they run on a device, and the small case that values are judged on.

    On the simulator ``blocks`` of each case run, and the second tuple has the small case. On a GPU, and without
    ``blocks``, the cases are returned as they are, and the second tuple is empty. Raises ArgumentError as
    `SampledCase.of` does, and for ``judged_on`` without ``blocks``.
    """
    if blocks is None and judged_on is not None:
        raise ArgumentError("judged_on", repr(judged_on), "None without sample", "sample= says how many blocks to run.")
    if blocks is None or not device.counts:
        return tuple(cases), ()
    found = tuple(SampledCase.of(op, case, blocks, judged_on) for case in cases)
    return found, tuple(case.judged_on for case in found[:1])
