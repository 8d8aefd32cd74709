"""Serialization of attempts, with their variants, cases and devices, for another process.

Variants of installed ops are sent by name; others (of a notebook or of one's own module) by value, with `cloudpickle`.
"""

from __future__ import annotations

import functools
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.base import by_value
from workbench.base.trials.trial import Trial
from workbench.tuning.measuring.attempt import Attempt

if TYPE_CHECKING:
    from workbench.launch.devices import Device
    from workbench.toolchain import CompiledKernel

_REMEMBERED = 32
"""Received values that a process keeps."""


class Shipped:
    """A variant, case or device to send to another process; it is pickled only if it really leaves this one.

    A variant that an installed op has is sent by name, a case as its record, the simulator as its architecture, the GPU
    as such, and everything else by value. The receiver restores it when its ``value`` is asked for, so that an error
    does not arise where a message is read. The same content gives the same object, with the kernels or the reference
    that it has come to hold. Raises WorkbenchError for a value that cannot be sent.
    """

    def __init__(self, value: Any = None, content: bytes = b""):
        self._value, self._content = value, content

    @property
    def value(self) -> Any:
        """The variant, case or device."""
        return self._value if self._value is not None else _made(self._content)

    def packed(self) -> Shipped:
        """Pickle the value now and return self: a value that cannot be sent raises here."""
        if not self._content:
            self._content = pickle.dumps(_recipe(self._value))
        return self

    def __reduce__(self) -> tuple:
        return Shipped, (None, self.packed()._content)


class Shipments:
    """Cache with one `Shipped` for each value, so that it is pickled once however often it is sent."""

    def __init__(self) -> None:
        self._by_id: dict[int, Shipped] = {}  # an id stays valid, as its value is kept alive here

    def of(self, value: object) -> Shipped:
        """Return the `Shipped` of a value."""
        return self._by_id.setdefault(id(value), Shipped(value))


@dataclass(frozen=True)
class SentAttempt:
    """An attempt on its way to another process."""

    variant: Shipped
    case: Shipped
    device: Shipped
    config: dict[str, Any]
    trial: Trial
    ended: bool
    kernels: tuple[CompiledKernel, ...]
    problem: bytes

    @classmethod
    def of(cls, attempt: Attempt, shipments: Shipments) -> SentAttempt:
        """Return the part of an attempt that is sent."""
        return cls(
            shipments.of(attempt.variant),
            shipments.of(attempt.case),
            shipments.of(attempt.device),
            dict(attempt.config),
            attempt.trial,
            attempt.ended,
            attempt.kernels,
            by_value.dumps(attempt.problem),
        )

    def packed(self) -> SentAttempt:
        """Pickle the values now and return self: one that cannot be sent raises here."""
        for value in (self.variant, self.case, self.device):
            value.packed()
        return self

    def restored(self) -> Attempt:
        """Return the attempt, in the process that received it."""
        return Attempt(
            self.variant.value,
            self.config,
            self.case.value,
            self.device.value,
            self.trial,
            self.ended,
            problem=by_value.loads(self.problem),
            kernels=self.kernels,
        )


@functools.lru_cache(maxsize=_REMEMBERED)
def _made(content: bytes) -> Any:
    function, arguments = pickle.loads(content)
    return function(*arguments)


def _recipe(value: Any) -> tuple:
    """Return a function and the arguments that make the value again."""
    from workbench.ops import variant
    from workbench.ops.installed import installed
    from workbench.ops.variant import Variant

    op = installed(getattr(value, "op", ""))
    if op is not None and any(value is known for known in op.variants):
        return variant, (value.op, value.name)
    if getattr(value, "name", None) == "sim":
        return _simulator, (value.arch,)
    if getattr(value, "name", None) == "cuda":
        return _gpu, ()
    if isinstance(value, Variant):
        value = replace(value)  # the copy leaves out the kernels that it remembers
    return by_value.loads, (by_value.dumps(value),)


def _simulator(arch: str) -> Device:
    from workbench.launch.sim import Simulator

    return Simulator(arch=arch)


def _gpu() -> Device:
    from workbench.launch import devices

    return devices.get("cuda")
