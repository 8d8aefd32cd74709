"""Operands of a kernel body: registers with their scopes, constants, symbols, addresses."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import NamedTuple

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.machine import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, core
from workbench.ptx.parse import (
    Function,
    Parameter,
    Prototype,
    PtxDeclaration,
    PtxEntry,
    PtxSyntaxError,
    PtxVariable,
)

__all__ = [
    "LOCAL_WINDOW",
    "PARAM_WINDOW",
    "SHARED_WINDOW",
    "Address",
    "Constant",
    "Operand",
    "Refused",
    "Register",
    "Special",
    "Symbols",
]


class Refused(Exception):
    """Reason why one instruction cannot be decoded; the kernel's decoder adds the lines and raises the public error."""


@dataclass(slots=True, eq=False)
class Register:
    """A virtual register of ``width`` bytes per lane (0 for a predicate)."""

    name: str
    width: int
    number: int


class Constant(NamedTuple):
    """A value known at decode time, the same in every lane."""

    width: int
    value: int


@dataclass(frozen=True, slots=True)
class DynamicShared:
    """Offset in ``extern .shared`` memory, whose start is known only once all static shared memory is."""

    width: int
    offset: int


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``tid.x``; always 32 bits."""

    name: str
    width: int = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """The register that holds, per lane, the start of the running function's local memory."""

    width: int = 8


Operand = Register | Constant | DynamicShared | Special | Frame
SPECIALS: dict[str, int] = {name: number for number, name in enumerate(core.SPECIALS)}


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``parameter`` is the kernel's parameter that the base stands for, if any."""

    base: Operand
    offset: int
    parameter: Parameter | None = None


MOST_REGISTERS = 1 << 20  # in one declaration
MOST_LOCAL_BYTES = 512 << 10  # CUDA's limit

_ADDRESS = re.compile(r"\[\s*([^\s+\-\]]+)\s*(?:([+-])\s*(-?\w+)\s*)?\]")
_FAMILY = re.compile(r"(%?[\w$]*?)<(\d+)>")
_DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")


def _halves(name: str) -> tuple[str, str]:
    """Return the names of the two halves of a 128-bit register, or of a family; no PTX name begins like these."""
    return f"%low${name.lstrip('%')}", f"%high${name.lstrip('%')}"


@dataclass
class Symbols:
    """Names that the body of one kernel or function can see.

    Shared and local variables get their offsets as they are declared. A kernel's local memory begins at 0; a function's
    moves with its frame, so that its variables are registers which hold ``frame + offset`` (see calls.py).
    """

    entry: PtxEntry | Function
    module_variables: dict[str, PtxVariable]
    global_address: Callable[[str], int]
    names: dict[str, Register] = field(default_factory=dict)
    registers: list[Register] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)
    shared_sizes: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local_bytes: int = 0
    # Labels by the name of the .branchtargets that lists them.
    branch_targets: dict[str, list[str]] = field(default_factory=dict)
    # Prototypes of calls through a register, by their labels.
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    # True if registers whose names differ only in their final digits all have the same width.
    alike: bool = True
    _carry: Register | None = None
    frame_addresses: list[tuple[Register, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters: dict[str, Parameter] = {}
        self.addresses: dict[str, Register] = {}
        self._widths: dict[str, int] = {}  # by a name without the digits at its end
        self._hidden: list[dict[str, Register | None]] = []  # per open scope: the outer meaning of its names
        self._stand_ins: dict[tuple[int, int], Register] = {}
        self.in_function = isinstance(self.entry, Function)
        if isinstance(self.entry, Function):
            for parameter in (*self.entry.parameters, *self.entry.results):
                self.reserve_local(parameter.name, parameter.size, parameter.align)
        else:
            self.parameters = {parameter.name: parameter for parameter in self.entry.parameters}

    def declare_registers(self, declaration: PtxDeclaration) -> None:
        """Declare the names of a ``.reg`` line; raise Refused for a type that registers lack, or for too many names."""
        if declaration.type == "b128":
            names = [half for name in declaration.names.split(",") for half in _halves(name.strip())]
            declaration = PtxDeclaration("b64", ", ".join(names))
        if declaration.type not in PTX_BYTES:
            raise Refused(f"registers of type .{declaration.type}")
        width = PTX_BYTES[declaration.type]
        width = 2 if width == 1 else width
        for name in declaration.names.split(","):
            family = _FAMILY.match(name.strip())
            if family and int(family[2]) > MOST_REGISTERS:
                raise Refused(f"{family[2]} registers, where the most is {MOST_REGISTERS}")
            names = [f"{family[1]}{i}" for i in range(int(family[2]))] if family else [name.strip()]
            made = list(map(Register, names, repeat(width), count(len(self.registers))))
            stem = (family[1] if family else names[0]).rstrip("0123456789")
            self.alike &= self._widths.setdefault(stem, width) == width
            if self._hidden:
                for each in names:
                    self._hidden[-1].setdefault(each, self.names.get(each))
            self.names.update(zip(names, made, strict=True))
            self.registers += made

    def halves(self, name: str) -> tuple[str, str]:
        """Return the names of the two 64-bit registers that make up a 128-bit register."""
        low, high = _halves(name)
        if low not in self.names:
            raise Refused(f"the operand {name}, which is no 128-bit register")
        return low, high

    def open_scope(self) -> None:
        """Open a scope at a brace: later declarations hide outer names."""
        self._hidden.append({})

    def close_scope(self) -> None:
        """Close a scope at a brace: names mean again what they meant before it."""
        if not self._hidden:
            raise PtxSyntaxError(f"{self.entry.name}: a closing brace inside the body has no opening one")
        for name, outside in self._hidden.pop().items():
            if outside is None:
                del self.names[name]
            else:
                self.names[name] = outside

    def stand_in(self, place: int, width: int) -> Register:
        """Return the stand-in for the register in a place of a shape. No PTX name begins like its name."""
        key = place, width
        if key not in self._stand_ins:
            name = f"%{place}/{width}"
            self._stand_ins[key] = self.names[name] = Register(name, width, ~place)
        return self._stand_ins[key]

    def declare_variable(self, variable: PtxVariable) -> None:
        """Give a variable in shared or local memory its place there."""
        if variable.space == "shared":
            self.shared_bytes = _align(self.shared_bytes, variable.align)
            self.shared[variable.name] = self.shared_bytes
            self.shared_sizes[variable.name] = variable.size
            self.shared_bytes += variable.size
        elif variable.space in ("local", "param"):
            self.reserve_local(variable.name, variable.size, variable.align)
        else:
            raise Refused(f"the machine does not support a .{variable.space} variable inside a kernel")

    def reserve_local(self, name: str, size: int, align: int) -> None:
        """Reserve local memory; a name that is declared again, as param0 is for every call, gets a new place."""
        if size > MOST_LOCAL_BYTES:
            raise Refused(f"{size} bytes of local memory, of which a thread has at most {MOST_LOCAL_BYTES}")
        self.local_bytes = _align(self.local_bytes, max(align, 1))
        self.local[name] = self.local_bytes
        self.local_bytes += size
        if self.in_function:
            self.addresses[name] = register = Register(name, 8, len(self.registers))
            self.registers.append(register)
            self.frame_addresses.append((register, self.local[name]))

    def register(self, token: str) -> Register | None:
        """Return the register of that name, or None for any other operand."""
        return self.names.get(token)

    def symbol(self, name: str, width: int) -> Operand | None:
        """Return the address of a variable within its own state space (global and const: the full address)."""
        if name in self.shared:
            return Constant(width, self.shared[name])
        if name in self.local:
            return self.addresses[name] if self.in_function else Constant(width, self.local[name])
        if name in self.parameters:
            return Constant(width, self.parameters[name].offset)
        variable = self.module_variables.get(name)
        if variable is None:
            try:
                return Constant(width, self.global_address(name))  # a function's address
            except KeyError:
                return None
        if variable.space == "shared":
            if variable.external:
                return DynamicShared(width, 0)
            self.declare_variable(variable)
            return Constant(width, self.shared[name])
        return Constant(width, self.global_address(name))

    def temporary(self, width: int) -> Register:
        """Return a new register that no name of the kernel leads to."""
        register = Register("temporary", width, len(self.registers))
        self.registers.append(register)
        return register

    @contextmanager
    def named(self, name: str, register: Register) -> Iterator[None]:
        """Let ``name`` stand for a register within the context."""
        self.names[name] = register
        try:
            yield
        finally:
            del self.names[name]

    def carry(self) -> Register:
        """Return the carry flag, which the carry forms of add, sub and mad share."""
        if self._carry is None:
            self._carry = Register("carry flag", 0, len(self.registers))
            self.registers.append(self._carry)
        return self._carry

    def space_of(self, name: str) -> str | None:
        """Return the state space of a variable or parameter, or None for other names."""
        if name in self.shared:
            return "shared"
        if name in self.local:
            return "local"
        if name in self.parameters:
            return "param"
        variable = self.module_variables.get(name)
        return variable.space if variable else None

    def operand(self, token: str, type_name: str) -> Operand:
        """Return a source operand of PTX type ``type_name``."""
        found = self.names.get(token)
        if found is not None:
            return found
        if token[0] == "%":
            if token[1:] in SPECIALS:
                return Special(token[1:])
            if token[1:].startswith("envreg"):
                return Constant(4, 0)  # the driver sets these registers; here they read 0
            raise Refused(f"the register {token}, which is not declared or not supported")
        constant = self.literal(token, type_name)
        return constant if constant is not None else self._symbol(token, type_name)

    def _symbol(self, token: str, type_name: str) -> Operand:
        found = self.symbol(token, PTX_BYTES[type_name])
        if found is None:
            raise Refused(f"the operand {token}, which is neither declared nor a number")
        return found

    def literal(self, token: str, type_name: str) -> Constant | None:
        """Return the bits of a number as an operand of that type, or None for a token that is not a number."""
        size = PTX_BYTES[type_name]
        prefix = token[:2]
        if prefix in ("0f", "0F"):
            return Constant(size, int(token[2:], 16))
        if prefix in ("0d", "0D"):
            bits = int(token[2:], 16)
            if size == 4:
                value = struct.unpack("<d", struct.pack("<Q", bits))[0]
                bits = struct.unpack("<I", struct.pack("<f", value))[0]
            return Constant(size, bits)
        if token == "WARP_SZ":
            return Constant(size, 32)
        if not (token[0].isdigit() or token[0] in "+-."):
            return None
        is_float = type_name in ("f32", "f64")
        try:
            value = int(token.rstrip("U"), 0)
        except ValueError:
            if not _DECIMAL.fullmatch(token):
                return None
            if not is_float:
                raise Refused(f"the decimal {token}, which .{type_name} cannot hold") from None
            value = float(token)
        if is_float:
            return Constant(size, int.from_bytes(struct.pack("<f" if size == 4 else "<d", float(value)), "little"))
        if size == 0:
            return Constant(0, 1 if value else 0)
        return Constant(size, value & ((1 << 8 * size) - 1))

    def address(self, token: str) -> Address:
        """Return the address in the brackets of a memory operand."""
        match = _ADDRESS.fullmatch(token)
        if not match:
            raise Refused(f"the address {token}, which cannot be parsed")
        base, sign, digits = match.groups()
        offset = int(digits, 0) * (-1 if sign == "-" else 1) if digits else 0
        register = self.register(base)
        if register is not None:
            return Address(register, offset)
        if base in self.parameters:
            parameter = self.parameters[base]
            return Address(Constant(8, parameter.offset), offset, parameter)
        if base[0].isdigit():
            return Address(Constant(8, int(base, 0)), offset)
        space = self.space_of(base)
        found = self.symbol(base, 4 if space in ("shared", "local") else 8)
        if found is None:
            raise Refused(f"the address of {base}, which is not declared")
        return Address(found, offset)


def _align(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment
