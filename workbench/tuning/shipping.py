"""Variants, cases and devices on their way to another process.

Variants of the workbench travel by name; others (of a notebook or of one's own module) by value, with `cloudpickle`.
"""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.base import by_value

if TYPE_CHECKING:
    from workbench.launch.devices import Device

_REMEMBERED = 32
"""Values that a process keeps of those that came to it."""


class Shipped:
    """A variant, case or device on its way to another process; pickled only if it really leaves this one.

    A variant that an op of the workbench has goes by name, a case as its record, the simulator as its architecture;
    the GPU as such; everything else by value. It is made again when its ``value`` is asked for, so that what fails then
    does not fail where a message is read; the same content is the same value, with the kernels or the reference that it
    has come to hold. Raises WorkbenchError for what cannot be sent.
    """

    def __init__(self, value: Any = None, content: bytes = b""):
        self._value, self._content = value, content

    @property
    def value(self) -> Any:
        """The variant, case or device."""
        return self._value if self._value is not None else _made(self._content)

    def packed(self) -> Shipped:
        """The same, pickled now: what cannot be sent raises here."""
        if not self._content:
            self._content = pickle.dumps(_recipe(self._value))
        return self

    def __reduce__(self) -> tuple:
        return Shipped, (None, self.packed()._content)


class Shipments:
    """One `Shipped` for each value, however often it is sent: what is packed is kept."""

    def __init__(self) -> None:
        self._by_id: dict[int, Shipped] = {}  # an id stays that of its value, which is kept with it

    def of(self, value: object) -> Shipped:
        """The value, to be sent."""
        return self._by_id.setdefault(id(value), Shipped(value))


@functools.lru_cache(maxsize=_REMEMBERED)
def _made(content: bytes) -> Any:
    function, arguments = pickle.loads(content)
    return function(*arguments)


def _recipe(value: Any) -> tuple:
    """A function and the arguments that make the value again."""
    from workbench import ops
    from workbench.ops import registry
    from workbench.ops.variant import Variant

    op = registry.installed(getattr(value, "op", ""))
    if op is not None and any(value is known for known in op.variants):
        return ops.variant, (value.op, value.name)
    if getattr(value, "name", None) == "sim":
        return _simulator, (value.arch,)
    if getattr(value, "name", None) == "cuda":
        return _gpu, ()
    if isinstance(value, Variant):
        value = replace(value)  # without the kernels that it remembers
    return by_value.loads, (by_value.dumps(value),)


def _simulator(arch: str) -> Device:
    from workbench.launch.sim import Simulator

    return Simulator(arch=arch)


def _gpu() -> Device:
    from workbench.launch import devices

    return devices.get("cuda")
