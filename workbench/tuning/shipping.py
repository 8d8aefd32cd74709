"""Variants, cases and devices on their way to another process.

Variants of the workbench travel by name; others (of a notebook or of one's own module) by value, with `cloudpickle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workbench.tuning import by_value


class Shipped:
    """A variant, case or device on its way to another process; pickled only if it really leaves this one.

    A variant that an op of the workbench has goes by name, a case as its record, the simulator as its architecture;
    the GPU as such; everything else by value. Raises WorkbenchError for what cannot be sent.
    """

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        from workbench import ops
        from workbench.ops.variant import Variant

        value = self.value
        op = ops.OPS.get(getattr(value, "op", None))
        if op is not None and any(value is known for known in op.variants):
            return _named_variant, (value.op, value.name)
        if hasattr(value, "from_dict"):
            return _restored_case, (by_value.dumps(type(value)), value.to_dict())
        if getattr(value, "name", None) == "sim":
            return _simulator, (value.arch,)
        if getattr(value, "name", None) == "cuda":
            return _gpu, ()
        if isinstance(value, Variant):
            value = replace(value)  # without the kernels that it remembers
        return _unpacked, (by_value.dumps(value),)


def _named_variant(op: str, name: str) -> Shipped:
    from workbench import ops

    return Shipped(ops.variant(op, name))


def _restored_case(kind: bytes, record: Mapping) -> Shipped:
    return Shipped(by_value.loads(kind).from_dict(record))


def _simulator(arch: str) -> Shipped:
    from workbench.devices.sim import Simulator

    return Shipped(Simulator(arch=arch))


def _gpu() -> Shipped:
    from workbench import devices

    return Shipped(devices.get("cuda"))


def _unpacked(content: bytes) -> Shipped:
    return Shipped(by_value.loads(content))
