"""What a candidate's process says about itself: kernels as PTX, launches as names and numbers, and nothing that runs.

The record is plain JSON from a process that is not trusted; `Description.of` refuses everything that is not exactly
this. It is made before the seeds of the inputs are drawn, from shapes and dtypes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.errors import WorkbenchError

DTYPES = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16")
) | {"float32", "float64", "float8_e4m3fn", "float8_e5m2"}  # fmt: skip
MAX_KERNELS = 64
MAX_SCRATCH = 1 << 16  # bytes per program; a tensor descriptor takes 128


class InvalidDescription(WorkbenchError):
    """A record that is no description; the message says which part."""


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel: a tensor by name, a number, bytes of a struct or a half, or a null pointer."""

    kind: str
    value: Any = None


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel with its launch; ``program`` counts the description's programs."""

    program: int
    entry: str
    label: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Workspace:
    """A tensor that the kernels leave something for each other in, and what it is filled with."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: float


@dataclass(frozen=True)
class Description:
    """Everything that runs: PTX texts, launches in their order, workspace, and values of the modules' constants.

    ``text`` and ``macros`` are the source that declares the types of the constants; ``contiguous`` are the arguments
    that are copied for the kernels where they are not, ``views`` what runs for views of the inputs that are not
    refused, by name.
    """

    programs: tuple[str, ...]
    launches: tuple[KernelLaunch, ...]
    workspace: tuple[Workspace, ...]
    constants: Mapping[str, Argument]
    text: str
    macros: Mapping[str, Any]
    contiguous: tuple[str, ...] = ()
    views: Mapping[str, Description] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Description:
        """The description of a record. Raises InvalidDescription."""
        found = cls._of_launches(record)
        views = _value(record, "views", dict) if "views" in record else {}
        programs = {"programs": list(found.programs)}
        return replace(found, views={name: cls._of_launches({**one, **programs}) for name, one in views.items()})

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
        """The names of all tensors that kernels are given, one for each time."""
        return [one.value for launch in self.launches for one in launch.arguments if one.kind == "tensor"]


@dataclass(frozen=True)
class CodeKernel:
    """A compiled kernel, with the names of the parameters that a launch passes, the shared memory that it adds, and the
    scratch memory of each program."""

    program: int
    entry: str
    label: str
    parameters: tuple[str, ...]
    shared_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Code:
    """What was compiled of a variant whose launches the other side declares: PTX texts, and the kernels in them."""

    programs: tuple[str, ...]
    kernels: tuple[CodeKernel, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Code:
        """The code of a record. Raises InvalidDescription."""
        programs = _list(record, "programs", str)
        return cls(programs, tuple(_code_kernel(one, len(programs)) for one in _list(record, "kernels", dict)))


def _value(record: Mapping[str, Any], name: str, kind: type) -> Any:
    found = record.get(name) if isinstance(record, dict) else None
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise InvalidDescription(f"{name} is {type(found).__name__}, not {kind.__name__}")
    return found


def _list(record: Mapping[str, Any], name: str, kind: type, check: Callable = lambda one: True) -> tuple:
    found = _value(record, name, list)
    for one in found:
        if not isinstance(one, kind) or isinstance(one, bool) or not check(one):
            raise InvalidDescription(f"{name} has {str(one)[:40]!r}")
    return tuple(found)


def _sizes(record: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return _list(record, name, int, lambda one: 0 <= one < 1 << 62)


def _program(record: Mapping[str, Any], programs: int) -> int:
    program = _value(record, "program", int)
    if not 0 <= program < programs:
        raise InvalidDescription(f"program {program} of {programs}")
    return program


def _code_kernel(record: Mapping[str, Any], programs: int) -> CodeKernel:
    scratch = _value(record, "scratch_bytes", int)
    if not 0 <= scratch <= MAX_SCRATCH:
        raise InvalidDescription(f"scratch_bytes is {scratch}; 0 to {MAX_SCRATCH} are allowed")
    return CodeKernel(
        _program(record, programs),
        _value(record, "entry", str),
        _value(record, "label", str),
        _list(record, "parameters", str, bool),
        _value(record, "shared_bytes", int),
        scratch,
    )


def _launch(record: Mapping[str, Any], programs: int) -> KernelLaunch:
    return KernelLaunch(
        _program(record, programs),
        _value(record, "entry", str),
        _value(record, "label", str),
        _sizes(record, "grid"),
        _sizes(record, "block"),
        _value(record, "shared_bytes", int),
        tuple(map(_argument, _list(record, "arguments", list))),
    )


def _workspace(record: Mapping[str, Any]) -> Workspace:
    dtype, fill = _value(record, "dtype", str), record.get("fill")
    if dtype not in DTYPES or not isinstance(fill, int | float):
        raise InvalidDescription(f"workspace of {dtype[:40]!r} filled with {str(fill)[:40]}")
    return Workspace(_value(record, "name", str), dtype, _sizes(record, "shape"), fill)


def _argument(record: Any) -> Argument:
    kinds = {"tensor": str, "number": int | float, "bytes": str, "null": type(None)}
    good = isinstance(record, list) and len(record) == 2 and isinstance(record[0], str) and record[0] in kinds
    if not good or not isinstance(record[1], kinds[record[0]]):
        raise InvalidDescription(f"argument {str(record)[:60]}")
    kind, value = record
    if kind != "bytes":
        return Argument(kind, value)
    try:
        return Argument(kind, bytes.fromhex(value))
    except ValueError:
        raise InvalidDescription(f"argument {value[:40]!r} is not hexadecimal") from None


def argument_record(value: Any, name_of: Callable[[Any], str | None]) -> list:
    """An argument as it goes into the record; ``name_of`` says which tensor of the run a value is, if any."""
    name = name_of(value)
    if name is not None:
        return ["tensor", name]
    if value is None:
        return ["null", None]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    value = value.item() if hasattr(value, "item") else value
    return ["number", value if isinstance(value, float) else int(value)]
