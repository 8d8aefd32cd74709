"""Options of the simulated devices of a run, which the program and its child processes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from workbench.driver.attributes import DEFAULT_MODEL, device_facts


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of the simulated devices of a run.

    * ``arch``: the architecture that kernels are compiled for (default: the model's).
    * ``model``: the key of the GPU that the devices stand for (default: an H200; for Triton an A100).
    * ``check``: watch every launch and report findings.
    * ``strict``: also report violations of rules that GPUs tolerate; implies ``check``.
    * ``trace``: record the counts of every launch, line by line.
    * ``seconds_limit``: the time limit of a launch in seconds (default: see `Watch`).
    * ``inductor``: make ``torch.compile`` generate Triton kernels for CPU tensors, in the program's own process.
    * ``first_config``: let a Triton autotuner take its first configuration that runs.
    * ``devices``: the number of devices.
    * ``memory_gib``: the memory of each device in GiB (default: half of this machine's).
    * ``exact_name``: leave "(simulated)" out of the devices' name.
    * ``counts``: keep launches even without checks and without a trace.
    * ``fmad``: contract products and sums to FMA.
    * ``schedules``: run each launch first in this many other orders of its blocks and warps; implies ``check``.
    * ``first_schedule``: the seed of the first of these orders, or of that of ``late``.
    * ``late``: run copies and launches as late as the order of streams allows; without ``check``.
    * ``prove``: keep what proofs need of the launches.
    * ``exact``: compute on elements of a ring in place of floats, and keep the launches.
    * ``numerics``: follow infinities and NaN to their birth, count what conversions lose, and report both.
    * ``errors``: the same, and compare each float with float64; implies ``numerics``.
    * ``debug_on_finding``: stop a launch at its first finding and read commands; implies ``check``.
    * ``force``: simulate even if there is a real GPU.
    """

    arch: str | None = None
    model: str | None = None
    check: bool = False
    strict: bool = False
    trace: bool = False
    seconds_limit: float | None = None
    inductor: bool = False
    first_config: bool = False
    devices: int = 1
    memory_gib: float | None = None
    exact_name: bool = False
    counts: bool = False
    fmad: bool = True
    schedules: int = 0
    first_schedule: int = 0
    late: bool = False
    prove: bool = False
    exact: bool = False
    numerics: bool = False
    errors: bool = False
    debug_on_finding: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", self.check or self.strict or self.schedules > 0 or self.debug_on_finding)
        object.__setattr__(self, "numerics", self.numerics or self.errors)

    @property
    def model_key(self) -> str:
        """Key of the device model: the given one, or the one of ``arch``.

        Raises ArgumentError if no model has ``arch``, or if ``model`` is of another architecture.
        """
        if self.arch is None:
            return self.model or DEFAULT_MODEL
        from workbench.driver.triton.driver import checked_model

        return checked_model(self.arch, self.model).key

    @property
    def code_arch(self) -> str:
        """Architecture to compile for: ``arch``, which may have a letter, or the model's.

        Raises ArgumentError like `model_key`, and UnknownNameError for a model that does not exist.
        """
        facts = device_facts(self.model_key)
        return self.arch or facts.arch

    @property
    def memory_bytes(self) -> int | None:
        """Memory of each device in bytes, or None for the default."""
        return None if self.memory_gib is None else int(self.memory_gib * 2**30)

    def asks_for_simulation(self) -> bool:
        """Return True if an option is set that a real GPU cannot serve."""
        chosen = self.arch, self.model, self.check, self.trace, self.seconds_limit, self.inductor, self.prove
        return any((*chosen, self.late, self.numerics))

    def to_dict(self) -> dict[str, Any]:
        """Return the options of a child process, ready for JSON: without ``inductor``."""
        return asdict(replace(self, inductor=False))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> DeviceOptions:
        """Return the options that `to_dict` wrote."""
        return cls(**record)
