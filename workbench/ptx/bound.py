"""A bound launch: checked and packed once, and run any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from workbench.ptx.options import LaunchOptions
from workbench.ptx.shapes import Dimensions
from workbench.ptx.signature import KernelSignature


class Runner(Protocol):
    """Protocol of an object that runs bound launches: a kernel of the PTX machine, or a GPU."""

    def run(self, launch: Any) -> Any:
        """Run a bound launch; return its report, if there is one."""
        ...


RunnerType = TypeVar("RunnerType", bound=Runner)
Memory = TypeVar("Memory")


@dataclass(slots=True)
class BoundLaunch(Generic[RunnerType, Memory]):
    """Grid, block, dynamic shared memory, packed parameters and options of one launch on one device.

    ``signature`` has checked and packed the ``values``: the caller's arguments, then the kernel's scratch memory.
    ``parameters`` are their bytes. ``memory`` is the memory that they point to, in the form that the ``runner`` takes.
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
        """Run the launch, with the given fields of its options replaced; return the report, if there is one."""
        return self.runner.run(replace(self, options=replace(self.options, **options)) if options else self)

    @property
    def repeats(self) -> bool:
        """True if threads may repeat the work of others (`LaunchOptions.repeats`)."""
        return self.options.repeats or self.signature.repeats

    @property
    def names(self) -> Sequence[str]:
        """Names of the arguments in findings."""
        return self.options.names or self.signature.names
