"""A launch with all that it takes: checked and packed once, run as often as one likes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from workbench.ptx.options import LaunchOptions
from workbench.ptx.shapes import Dimensions
from workbench.ptx.signature import KernelSignature


class Runner(Protocol):
    """What runs a bound launch: a kernel of the PTX machine, a GPU."""

    def run(self, launch: Any) -> Any:
        """Run it; return its report, if there is one."""
        ...


RunnerType = TypeVar("RunnerType", bound=Runner)
Memory = TypeVar("Memory")


@dataclass(slots=True)
class BoundLaunch(Generic[RunnerType, Memory]):
    """Grid, block, dynamic shared memory, packed parameters and options of one launch on one device.

    ``signature`` has checked and packed the ``values``, those of the caller and the kernel's scratch memory; the
    ``parameters`` are their bytes. ``memory`` is what they point to, as the ``runner`` takes it.
    """

    runner: RunnerType
    signature: KernelSignature
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    parameters: bytes
    memory: Memory
    options: LaunchOptions
    values: Sequence[Any] = ()

    def run(self, **options: Any) -> Any:
        """Run it, with these fields of its options in the place of their own; return the report, if there is one."""
        return self.runner.run(replace(self, options=replace(self.options, **options)) if options else self)

    @property
    def repeats(self) -> bool:
        """Threads may do again what others do."""
        return self.options.repeats or self.signature.repeats

    @property
    def names(self) -> Sequence[str]:
        """What findings call the arguments."""
        return self.options.names or self.signature.names
