"""Signatures of kernels: the shapes that a launch may have, the arguments it takes, and the layout of their bytes.

A `KernelSignature` is made once per kernel and kept with it. A launch only applies it: each argument is checked once,
and its bytes are the same on every device.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from workbench.base.element_types import PTX_FLOAT_LETTERS
from workbench.errors import ArgumentError
from workbench.ptx.parse import Parameter
from workbench.ptx.shapes import BlockRules
from workbench.ptx.tensor_map import TENSOR_MAP_BYTES, TensorMap
from workbench.ptx.tensors import address_of, refuse_without_elements

_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_NUMBERS, _NONE = frozenset((int, float)), frozenset[type]()
_PROMISE = "The kernel was compiled on that promise; compile it with other attributes."


Views: TypeAlias = Literal["contiguous", "resolved", "any"]
"""Tensors that a kernel takes: contiguous ones, all but conjugate and negative views ("resolved"), or any."""


class DeclaredType(NamedTuple):
    """Rule for a parameter whose type the source declares."""

    check: Callable[[str, Any], Any]
    """Function (name for messages, argument) -> the argument, or its bytes. It raises ArgumentError."""
    plain: bool
    """True if numbers need no check."""
    written: bool
    """True if the kernel may write to the array."""


def offsets(parameters: Sequence[Parameter], base: int = 0) -> tuple[list[int], int]:
    """Return the byte offset of each parameter in a buffer that is copied to address ``base``, and its size."""
    found, end = [], base
    for one in parameters:
        end += -end % one.align
        found.append(end - base)
        end += one.size
    return found, end - base


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for the argument of one parameter."""

    position: int
    where: str
    """Name of the argument in messages."""
    parameter: Parameter
    declared: DeclaredType | None
    bits: bool
    """True if any value of the parameter's size stands for its bits, because only the PTX is known."""
    views: Views
    plain: frozenset[type]
    """Classes whose values are packed unchecked: the module struct refuses those that do not fit."""
    any_tensor: bool
    """True if every tensor fits."""
    word: bool
    """True if the parameter takes an address or a 64-bit number, and None as a null pointer."""

    def array(self, value: Any) -> int | None:
        """Check an array; return None if its address is passed, else the bytes of the struct that it holds."""
        if self.views != "any" and hasattr(value, "is_contiguous"):
            self._check_layout(value)
        if self.declared is not None:
            value = self.declared.check(self.where, value)
        parameter, numpy = self.parameter, isinstance(value, np.ndarray)
        if numpy and parameter.type == "b8" and value.dtype.names and value.size == 1:
            return self._struct(value.reshape(())[()])
        if parameter.size != 8 or parameter.type in PTX_FLOAT_LETTERS:  # a struct of one pointer takes it
            raise ArgumentError(self.where, type(value).__name__, self.allowed, "Pass a number, not an array.")
        # A tensor's strides are the kernel's business; a NumPy array may be copied to a GPU, which keeps its elements.
        if numpy and (value.dtype.hasobject or not (self.bits or value.flags.c_contiguous)):
            got = "objects" if value.dtype.hasobject else f"an array with strides {value.strides}"
            raise ArgumentError(self.where, got, "contiguous arrays of numbers", "Use np.ascontiguousarray.")
        if parameter.divisibility > 1:
            address = value.ctypes.data if numpy else address_of(self.where, value)
            if address % parameter.divisibility:
                allowed = f"addresses that are multiples of {parameter.divisibility}"
                raise ArgumentError(self.where, f"an address of {hex(address)}", allowed, _PROMISE)
        return None

    def number(self, value: Any) -> Any:
        """Return the value to pack for an argument that is not an array: a whole number, a float or bytes."""
        if self.declared is not None:
            value = self.declared.check(self.where, value)
        parameter = self.parameter
        if value is None and self.word:
            return 0
        if isinstance(value, bytes) or parameter.type == "b8":
            return self._struct(value)
        if isinstance(value, np.generic):
            value = self._scalar(value)
        if parameter.type in PTX_FLOAT_LETTERS:
            return self._float(value)
        if self.bits and parameter.type == "b16" and isinstance(value, float):
            return int(np.float16(value).view(np.uint16))
        if not isinstance(value, int):
            raise ArgumentError(self.where, type(value).__name__, self.allowed, "Pass a value of that type.")
        bits = 8 * parameter.size
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise ArgumentError(self.where, value, f"a value that fits in {bits} bits", "Pass a smaller number.")
        return value & ((1 << bits) - 1)

    def _check_layout(self, value: Any) -> None:
        where = self.where
        if value.is_conj() or value.is_neg():
            kind = "conjugate" if value.is_conj() else "negative"
            remedy = "Pass .resolve_conj()." if value.is_conj() else "Pass .resolve_neg()."
            raise ArgumentError(where, f"a view that is the {kind} of its memory", "its elements in memory", remedy)
        if self.views == "contiguous" and not value.is_contiguous():
            if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
                refuse_without_elements(where, value)
            got = f"a tensor of shape {tuple(value.shape)} with strides {tuple(value.stride())}"
            remedy = "Pass .contiguous(); or load with strided=True a kernel that knows its tensors' strides."
            raise ArgumentError(where, got, "a contiguous tensor: a kernel only gets its address", remedy)

    def _scalar(self, value: np.generic) -> Any:
        same = value.dtype.itemsize == self.parameter.size
        if not same and value.dtype != np.bool_ and not self.bits:
            got = f"{value.dtype} of {value.dtype.itemsize} bytes"
            raise ArgumentError(self.where, got, self.allowed, "Convert it.")
        if same and self.bits and self.parameter.type[0] == "b":
            return int.from_bytes(value.tobytes(), "little")
        return value.item()

    def _float(self, value: Any) -> float:
        kind = self.parameter.type
        if not isinstance(value, int | float):
            raise ArgumentError(self.where, type(value).__name__, self.allowed, "Pass a number.")
        try:
            struct.pack(f"<{PTX_FLOAT_LETTERS[kind]}", float(value))
        except OverflowError as error:
            raise ArgumentError(self.where, value, f"a value that {kind} can hold", "Pass a smaller number.") from error
        return float(value)

    def _struct(self, value: Any) -> Any:
        """Return the value to pack for a struct: bytes, a NumPy scalar, a ctypes structure or a tensor map."""
        parameter = self.parameter
        if isinstance(value, TensorMap) and parameter.size == TENSOR_MAP_BYTES:
            if getattr(value.owner, "is_meta", False):
                refuse_without_elements(self.where, value.owner)
            return value  # each device has its own bytes for it
        if isinstance(value, bytes | bytearray | memoryview | ctypes.Structure | ctypes.Union | ctypes.Array):
            content = bytes(value)
        elif isinstance(value, np.generic) and not value.dtype.hasobject:
            content = value.tobytes()
        elif self.bits and parameter.size == 1 and isinstance(value, int):
            content = (value & 0xFF).to_bytes(1, "little")
        else:
            remedy = "Pass bytes, a NumPy scalar or a ctypes structure; a pointer in it is a number, tensor.data_ptr()."
            raise ArgumentError(self.where, type(value).__name__, self.allowed, remedy)
        if len(content) != parameter.size or not (self.bits or parameter.type == "b8"):
            raise ArgumentError(self.where, f"{len(content)} bytes", self.allowed, "The sizes must agree.")
        form = _form_of(parameter)
        return content if form[-1] == "s" else struct.unpack(f"<{form}", content)[0]

    @property
    def allowed(self) -> str:
        """Allowed arguments, for messages."""
        parameter = self.parameter
        if parameter.type == "b8":
            return f"a {parameter.kind}"
        if parameter.type in PTX_FLOAT_LETTERS:
            return f"a float ({parameter.type})"
        if parameter.size == 8:
            return f"a tensor, None or an integer ({parameter.kind})"
        return f"an integer ({parameter.type})"


def _form_of(parameter: Parameter) -> str:
    """Return the format of one parameter for the module struct; a struct of one pointer is a number."""
    if parameter.type in PTX_FLOAT_LETTERS:
        return PTX_FLOAT_LETTERS[parameter.type]
    if parameter.type == "b8" and parameter.size != 8:
        return f"{parameter.size}s"
    return _UNSIGNED.get(parameter.size, f"{parameter.size}s")


ArrayArgument: TypeAlias = tuple[Rule, Any]
"""An array among the arguments of a launch, with the rule of its parameter."""


@dataclass(frozen=True, eq=False)
class KernelSignature:
    """Signature of a kernel: its ``blocks``, and a rule for each parameter.

    ``scratch`` parameters at the end belong to the compiler: the first gets ``scratch_bytes`` for every block of the
    grid, the others are null. ``bits`` is True for a kernel of which only the PTX is known, ``repeats`` for one whose
    threads may repeat the work of others (`LaunchOptions.repeats`).
    """

    blocks: BlockRules
    parameters: Sequence[Parameter]
    scratch: int = 0
    scratch_bytes: int = 0
    declared: Sequence[DeclaredType | None] = ()
    views: Views = "any"
    bits: bool = False
    repeats: bool = False
    named: bool = True
    """True if findings call the arguments by the parameters' names."""
    names: tuple[str, ...] = field(init=False)
    rules: tuple[Rule, ...] = field(init=False)
    wide: tuple[int, ...] = field(init=False)
    """Positions of the arguments that may hold an address."""
    maps: tuple[int, ...] = field(init=False)
    """Positions of the arguments that may be tensor maps."""
    _scratch: Rule | None = field(init=False, repr=False)
    _promised: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    _forms: dict[int, struct.Struct] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        passed = self.parameters[: len(self.parameters) - self.scratch]
        declared = self.declared or (None,) * len(passed)
        found: dict[str, Any] = {
            "names": tuple(one.name for one in self.parameters) if self.named else (),
            "rules": tuple(self._rule(at, one, declared[at]) for at, one in enumerate(passed)),
            "_scratch": self._rule(len(passed), self.parameters[len(passed)], None) if self.scratch else None,
            "wide": tuple(at for at, one in enumerate(passed) if one.size >= 8 and one.type not in PTX_FLOAT_LETTERS),
            "maps": tuple(at for at, one in enumerate(passed) if one.type == "b8" and one.size == TENSOR_MAP_BYTES),
            "_promised": tuple((at, one.divisibility) for at, one in enumerate(passed) if one.divisibility > 1),
            "_forms": {},
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _rule(self, at: int, parameter: Parameter, declared: DeclaredType | None) -> Rule:
        where = f"{self.blocks.label}(): argument {at} {parameter.name!r}"
        packed = _form_of(parameter)[-1] != "s" and parameter.type != "b8"
        looked_at = declared is not None and not declared.plain
        half = self.bits and parameter.type == "b16"
        plain = _NUMBERS if packed and not looked_at and not half else _NONE
        address = parameter.size == 8 and parameter.type not in PTX_FLOAT_LETTERS
        any_tensor = address and declared is None and parameter.divisibility == 1 and self.views == "any"
        word = address and parameter.type != "b8"  # a struct of one pointer takes an array, but not None
        return Rule(at, where, parameter, declared, self.bits, self.views, plain, any_tensor, word)

    def declaring(self, declared: Sequence[DeclaredType | None], views: Views) -> KernelSignature:
        """Return the signature with the types that the source declares for the parameters."""
        return replace(self, declared=declared, views=views)

    def scratch_argument(self, memory: Any) -> ArrayArgument:
        """Return the kernel's scratch memory as an array among the arguments."""
        assert self._scratch is not None  # a kernel with scratch_bytes has one
        return self._scratch, memory

    def take(self, args: Sequence[Any]) -> tuple[list[Any], list[ArrayArgument]]:
        """Return a value to pack for every parameter, with 0 for an address, and the arrays among ``args``.

        Raises ArgumentError naming the parameter for a wrong count, a wrong kind of value, or an address or a number
        that is not a multiple of the divisor on which the code relies.
        """
        if len(args) != len(self.rules):
            listing = ", ".join(f"{one.parameter.name} ({one.parameter.kind})" for one in self.rules) or "none"
            where, allowed = f"arguments of {self.blocks.label}", f"{len(self.rules)}: {listing}"
            raise ArgumentError(where, f"{len(args)} values", allowed, "Pass one for each.")
        fields, arrays = list[Any](), list[ArrayArgument]()
        for rule, value in zip(self.rules, args, strict=True):
            if value.__class__ in rule.plain:
                fields.append(value)
            elif rule.any_tensor and hasattr(value, "data_ptr"):
                fields.append(0)
                arrays.append((rule, value))
            elif value is None and rule.word and rule.declared is None:
                fields.append(0)
            elif hasattr(value, "data_ptr") or isinstance(value, np.ndarray):
                try:
                    held = rule.array(value)
                except RuntimeError as error:  # torch's, of a tensor without strides
                    refuse_without_elements(rule.where, value, error)
                fields.append(held or 0)
                if held is None:
                    arrays.append((rule, value))
            else:
                fields.append(rule.number(value))
        for at, multiple in self._promised:
            if fields[at] % multiple:
                raise ArgumentError(self.rules[at].where, fields[at], f"multiples of {multiple}", _PROMISE)
        if self.scratch:
            fields += [0] * self.scratch
        return fields, arrays

    def pack(self, fields: Sequence[Any], base: int = 0) -> bytes:
        """Return the bytes of a launch's parameters; ``base`` is the address that they are copied to.

        Raises ArgumentError naming the parameter for a number that it cannot hold.
        """
        form = self._forms.get(base)
        if form is None:
            form = self._forms[base] = self._form(base)
        try:
            return form.pack(*fields)
        except (struct.error, OverflowError):  # negative numbers, too, which keep their bits
            checked = [
                rule.number(one) if one.__class__ in rule.plain else one
                for rule, one in zip(self.rules, fields, strict=False)
            ]
            return form.pack(*checked, *fields[len(checked) :])

    def _form(self, base: int) -> struct.Struct:
        form, end = "<", 0
        for parameter, offset in zip(self.parameters, offsets(self.parameters, base)[0], strict=True):
            form += f"{offset - end}x{_form_of(parameter)}"
            end = offset + parameter.size
        return struct.Struct(form)
