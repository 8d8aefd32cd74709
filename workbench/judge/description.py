"""Description of a candidate by its own process: kernels as PTX, launches as names and numbers, and nothing that runs.

The record is plain JSON from a process that is not trusted; `Description.of` refuses everything that is not exactly
this. It is made before the seeds of the inputs are drawn, from shapes and dtypes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.base.element_types import ELEMENT_TYPES
from workbench.errors import WorkbenchError
from workbench.ptx.tensor_map import TensorMap

BYTES = {one.name: one.bytes for one in ELEMENT_TYPES.values() if not one.name.startswith("complex")}
"""Bytes of an element by dtype, for all dtypes of a workspace."""
MAX_KERNELS = 64
MAX_SCRATCH = 1 << 16  # bytes per program; a tensor descriptor takes 128


class InvalidDescription(WorkbenchError):
    """A record that is not a description; the message says which part."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel.

    It is a tensor or a tensor map by name, a number, the bytes of a struct or a half, or a null pointer.
    """

    kind: str
    value: Any = None

    @property
    def name(self) -> str | None:
        """Name of the tensor that the argument is, or is a map of; None for any other argument."""
        return self.value.tensor if self.kind == "map" else self.value if self.kind == "tensor" else None


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel with its launch; ``program`` is an index into the description's programs."""

    program: int
    entry: str
    label: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    arguments: tuple[Argument, ...]
    scratch_bytes: int = 0
    """Scratch memory of each block in bytes, for the parameters behind ``arguments``."""
    names: tuple[str, ...] = ()
    """Names of the parameters, which proofs show for numbers."""


@dataclass(frozen=True)
class MapOf:
    """Tensor map of a tensor that is named, with the fields of `workbench.ptx.tensor_map.TensorMap`."""

    tensor: str
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int
    fill: str
    atom: int


@dataclass(frozen=True)
class Workspace:
    """A tensor through which the kernels pass results to each other, with its content before they run.

    ``fill`` is a number for all elements, the bytes themselves, or None for content that may not be read.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: float | bytes | None


@dataclass(frozen=True)
class Description:
    """Everything that runs: PTX texts, launches in their order, workspace, and values of the modules' constants.

    ``text`` and ``macros`` are the source that declares the types of the constants; ``contiguous`` are the arguments
    that are copied for the kernels where they are not. ``views`` has the launches for each view of the inputs that is
    not refused, ``sizes`` those for each other sizes, by name.
    """

    programs: tuple[str, ...]
    launches: tuple[KernelLaunch, ...]
    workspace: tuple[Workspace, ...]
    constants: Mapping[str, Argument]
    text: str
    macros: Mapping[str, Any]
    contiguous: tuple[str, ...] = ()
    views: Mapping[str, Description] = field(default_factory=dict)
    sizes: Mapping[str, Description] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Description:
        """Parse and validate a record. Raises InvalidDescription."""
        found = cls._of_launches(record)
        programs = {"programs": list(found.programs)}
        others: dict[str, Any] = {
            part: {name: cls._of_launches({**one, **programs}) for name, one in _value(record, part, dict).items()}
            for part in ("views", "sizes") if part in record
        }  # fmt: skip
        return replace(found, **others)

    @classmethod
    def _of_launches(cls, record: Mapping[str, Any]) -> Description:
        programs = _list(record, "programs", str)
        launches = tuple(_launch(one, len(programs)) for one in _list(record, "launches", dict))
        if not launches or len(launches) > MAX_KERNELS:
            raise InvalidDescription(f"{len(launches)} launches; 1 to {MAX_KERNELS} are allowed")
        return cls(
            programs,
            launches,
            tuple(_workspace(one) for one in _list(record, "workspace", dict)),
            {name: _argument(one) for name, one in _value(record, "constants", dict).items()},
            _value(record, "text", str),
            {name: one for name, one in _value(record, "macros", dict).items() if isinstance(one, int | float | str)},
            _list(record, "contiguous", str) if "contiguous" in record else (),
        )

    def passed(self) -> list[str]:
        """Return the names of all tensors that kernels take, a name as often as it is passed."""
        every = [one for launch in self.launches for one in launch.arguments]
        return [one.name for one in every if one.name is not None]


def _value(record: Mapping[str, Any], name: str, kind: type) -> Any:
    found = record.get(name) if isinstance(record, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise InvalidDescription(f"{name} is {type(found).__name__}, not {kind.__name__}")
    return found


def _list(record: Mapping[str, Any], name: str, kind: type, check: Callable = lambda one: True) -> tuple:
    found = _value(record, name, list)
    for one in found:
        if not isinstance(one, kind) or isinstance(one, bool) or not check(one):
            raise InvalidDescription(f"{name} has the wrong element {str(one)[:40]!r}")
    return tuple(found)


def _sizes(record: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return _list(record, name, int, lambda one: 0 <= one < 1 << 62)


def _program(record: Mapping[str, Any], programs: int) -> int:
    program = _value(record, "program", int)
    if not 0 <= program < programs:
        raise InvalidDescription(f"program is {program}; 0 to {programs - 1} are allowed")
    return program


def _launch(record: Mapping[str, Any], programs: int) -> KernelLaunch:
    return KernelLaunch(
        _program(record, programs),
        _value(record, "entry", str),
        _value(record, "label", str),
        _sizes(record, "grid"),
        _sizes(record, "block"),
        _value(record, "shared_bytes", int),
        tuple(map(_argument, _list(record, "arguments", list))),
        _scratch(record),
        _list(record, "names", str, _is_short_name) if "names" in record else (),
    )


def _is_short_name(name: str) -> bool:
    return name.isidentifier() and len(name) <= 80


def _scratch(record: Mapping[str, Any]) -> int:
    scratch = _value(record, "scratch_bytes", int)
    if not 0 <= scratch <= MAX_SCRATCH:
        raise InvalidDescription(f"scratch_bytes is {scratch}; 0 to {MAX_SCRATCH} are allowed")
    return scratch


def _workspace(record: Mapping[str, Any]) -> Workspace:
    dtype, fill = _value(record, "dtype", str), record.get("fill")
    if dtype not in BYTES or not isinstance(fill, int | float | list | None):
        raise InvalidDescription(f"workspace has the wrong dtype or fill: {dtype[:40]!r}, {str(fill)[:40]}")
    shape = _sizes(record, "shape")
    if isinstance(fill, list):
        if len(fill) != 1 or not isinstance(fill[0], str):
            raise InvalidDescription(f"workspace has the wrong fill {str(fill)[:40]}")
        fill = _bytes(fill[0])
        if len(fill) != math.prod(shape) * BYTES[dtype]:
            raise InvalidDescription(f"workspace of {dtype}{list(shape)} has a fill of {len(fill)} bytes")
    return Workspace(_value(record, "name", str), dtype, shape, fill)


def _argument(record: Any) -> Argument:
    kinds = {"tensor": str, "number": int | float, "bytes": str, "null": type(None), "map": dict}
    good = isinstance(record, list) and len(record) == 2 and isinstance(record[0], str) and record[0] in kinds
    if not good or not isinstance(record[1], kinds[record[0]]):
        raise InvalidDescription(f"argument has a wrong kind or value: {str(record)[:60]}")
    kind, value = record
    return Argument(kind, _bytes(value) if kind == "bytes" else _map(value) if kind == "map" else value)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidDescription(f"{text[:40]!r} is not hexadecimal") from None


def _map(record: Mapping[str, Any]) -> MapOf:
    tensor, element, fill = (_value(record, name, str) for name in ("tensor", "element", "fill"))
    sizes, strides, box, steps = (_sizes(record, name) for name in ("sizes", "strides", "box", "steps"))
    swizzle, atom = (_value(record, name, int) for name in ("swizzle", "atom"))
    return MapOf(tensor, element, sizes, strides, box, steps, swizzle, fill, atom)


def argument_record(value: Any, name_of: Callable[[Any], str | None]) -> list:
    """Return an argument as it goes into the record.

    ``name_of`` returns the name of the run's tensor that a value is, or None.
    """
    name = name_of(value)
    if name is not None:
        return ["tensor", name]
    if isinstance(value, TensorMap):
        record = {one: getattr(value, one) for one in ("element", "swizzle", "fill", "atom")}
        record |= {one: list(getattr(value, one)) for one in ("sizes", "strides", "box", "steps")}
        return ["map", record | {"tensor": name_of(value.owner)}]
    if value is None:
        return ["null", None]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    value = value.item() if hasattr(value, "item") else value
    return ["number", value if isinstance(value, float) else int(value)]
