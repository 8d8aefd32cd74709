"""A family of launches, for all sizes: grid, arguments and facts of a compiled kernel, given as text."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from workbench.errors import ArgumentError
from workbench.proof.conditions import Predicate, at_most, between, zero
from workbench.proof.facts import DataFact, split_facts
from workbench.proof.formulas import formula
from workbench.proof.maps import MAP_BYTES, MapText, map_text
from workbench.proof.specification import Specification
from workbench.proof.tensors import TensorArgument, bytes_of
from workbench.proof.terms import Arena, Term, remainder, term
from workbench.ptx.parse import Parameter, ParsedModule, parse
from workbench.toolchain import CompiledKernel

_TENSOR = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*", re.S)
_FIELD = re.compile(r"(\w+)\.(shape|strides)\[(\d)\]")
_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = (-(1 << 63), (1 << 63) - 1)
SCRATCH = "scratch memory"
MOST_BLOCKS = ((1 << 31) - 1, 65535, 65535)
"""Largest grid."""
Further = Callable[[Specification], Iterable[tuple[str, Predicate]]]
"""A function that returns further facts about launches, with their words."""
_WORDS = ("cdiv", "min", "max", "next_power_of_2")


@dataclass(frozen=True)
class Launched:
    """A launch in terms: see `Family`. ``facts`` come with their words; ``grid_text`` is the grid in words."""

    grid: Any
    block: Any
    args: Mapping[str, Any]
    shared_bytes: Any
    facts: Sequence[tuple[str, Predicate]]
    names: Mapping[str, Any]
    grid_text: str


@dataclass(frozen=True)
class Family:
    """Launches of one kernel: ``args`` by position or by the parameter's name.

    An argument is a tensor as ``"float32[rows, cols]"``, a tensor map as ``"TensorMap(float16[m, k], [64, 64])"``, a
    number as a formula of sizes, or a tensor or number itself.
    Formulas may name tensors, ``x.shape[0]``, and the grid may be a function of sizes and tensors by their names.
    The name of another parameter that is a tensor stands for the same memory. A parameter without an argument is a size
    of its own name, or any value if it is not a whole number. Instead of all that,
    ``later`` makes the launch of ``symbols``, which are sizes with their least values. ``aligned`` has the multiples of
    bytes at which tensors begin, where these are below 16.
    """

    kernel: CompiledKernel
    grid: Any
    block: Any = None
    args: Any = None
    facts: Any = ()
    shared_bytes: Any = 0
    symbols: Mapping[str, int | None] = field(default_factory=dict)
    later: Callable[[Mapping[str, Term]], Launched] | None = None
    aligned: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def module(self) -> ParsedModule:
        """PTX of the kernel, parsed once for all attempts."""
        return parse(self.kernel.ptx)

    def specification(self, further: Further | None = None) -> Specification:
        """Return the launches as terms; ``further`` adds facts with their words. Raises ArgumentError."""
        return _Reader(self).specification(further)


class _Reader:
    def __init__(self, family: Family):
        self.kernel, self.arena, self.aligned = family.kernel, Arena(), family.aligned
        self.size_facts, self.data_facts = split_facts(family.facts)
        self.sizes: dict[str, Term] = {}
        if family.later is not None:
            for name, least in family.symbols.items():
                self._symbol(name, least, _INT64)
            self.launched = family.later(self.sizes)
            self.given = dict(self.launched.args)
        else:
            self.given = self._arguments(family.args)
            self._fields()
            self._symbols(family)
            self.names: Mapping[str, Any] = self.sizes
            tensors = {name: self._tensor(name, one) for name, one in self.given.items() if self._is_tensor(name)}
            shapes: dict[str, Any] = {name: _shaped(one) for name, one in tensors.items() if one is not None}
            self.names = {**self.sizes, **shapes}
            grid = self._called("grid", family.grid)
            text = ", ".join(map(str, _listed(grid)))
            self.launched = Launched(grid, family.block, self.given, family.shared_bytes, (), self.names, text)
        self.names = self.launched.names

    def _called(self, where: str, given: Any) -> Any:
        """Return what a function of sizes and tensors, by their names, returns; any other value as it is."""
        if not callable(given):
            return given
        names = inspect.signature(given).parameters
        if unknown := [name for name in names if name not in self.names]:
            known = ", ".join(self.names) or "none"
            raise ArgumentError(where, f"a function of {unknown[0]!r}", known, "Name sizes and tensors.")
        try:
            return given(*(self.names[name] for name in names))
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            got = f"a function that does not take symbols ({error})"
            raise ArgumentError(where, got, "sums, products and quotients of sizes", "Write it as text.") from error

    def _symbol(self, name: str, least: int | None, limits: tuple[int, int]) -> None:
        low, high = limits
        self.sizes[name] = self.arena.atom("param", name, (), low if least is None else least, high)

    def _arguments(self, args: Any) -> dict[str, Any]:
        """Return the given argument of each parameter, by name."""
        names = self.kernel.parameter_names
        if args is None:
            return {}
        if isinstance(args, Mapping):
            for name in args:
                if name not in names:
                    listed = ", ".join(names) or "none"
                    raise ArgumentError(f"args[{name!r}]", f"a parameter {name!r}", listed, "Correct the name.")
            return dict(args)
        if len(args) != len(names):
            listed = f"{len(names)}: {', '.join(names)}"
            raise ArgumentError("args", f"{len(args)} arguments", listed, "Give one for each parameter, or by name.")
        return dict(zip(names, args, strict=True))

    def _fields(self) -> None:
        """Give the fields of a descriptor of Triton, parameters of their own, as its tensor map has them."""
        for one in self.kernel.parameters:
            found = _FIELD.fullmatch(one.name)
            mapped = map_text("args", self.given.get(found[1])) if found and one.name not in self.given else None
            if found and mapped is not None:
                further = mapped.shape[int(found[3]) + 1 :]
                text = mapped.shape[int(found[3])] if found[2] == "shape" else "*".join(f"({size})" for size in further)
                self.given[one.name] = text or 1

    def _symbols(self, family: Family) -> None:
        """Make a symbol of each name in the formulas; those of shapes and of the grid are at least 1."""
        shapes = [one for one in _listed(family.grid) if isinstance(one, str)]
        numbers = [*self.size_facts, *(one for one in _listed(family.shared_bytes) if isinstance(one, str))]
        for value in self.given.values():
            found = _TENSOR.fullmatch(value) if isinstance(value, str) else None
            mapped = map_text("args", value)
            if mapped:
                shapes += mapped.shape
            elif found:
                shapes.append(found[2])
            elif isinstance(value, str) and not self._is_tensor(value):
                numbers.append(value)
        narrow = {one.name for one in self.kernel.parameters if one.size == 4}
        narrow |= {value.strip() for name, value in self.given.items() if isinstance(value, str) and name in narrow}
        integers = [one.name for one in self._integers() if one.name not in self.given]
        for least, names in ((1, _names(shapes)), (None, [*_names(numbers), *integers])):
            for name in names:
                if name not in self.sizes and not self._is_tensor(name):
                    self._symbol(name, least, _INT32 if name in narrow else _INT64)

    def _is_tensor(self, name: str) -> bool:
        """Return True for the name of a parameter whose argument is given as a tensor's dtype and shape."""
        given = self.given.get(name)
        return isinstance(given, str) and _TENSOR.fullmatch(given) is not None

    def _integers(self) -> list[Parameter]:
        """Return the parameters that may be whole numbers."""
        plain = [one for one in self.kernel.parameters if not one.scratch and not one.pointer]
        return [one for one in plain if one.type[0] in "usb" and one.size in (1, 2, 4, 8) and one.type != "b8"]

    def specification(self, further: Further | None) -> Specification:
        """Return the launches as terms."""
        launched = self.launched
        grid = [self._number(f"grid[{i}]", one) for i, one in enumerate(_listed(launched.grid))]
        block = launched.block if launched.block is not None else self.kernel.threads_per_block
        if block is None:
            raise ArgumentError("block", None, "the threads of a block", "Only Triton's kernels set their own.")
        threads = [self._number(f"block[{i}]", one).constant for i, one in enumerate(_listed(block))]
        if not 1 <= len(threads) <= 3 or any(one is None or one < 1 for one in threads):
            raise ArgumentError("block", repr(block), "one to three numbers", "A proof is for one block size.")
        x, y, z = ([one or 1 for one in threads] + [1, 1])[:3]
        if not 1 <= len(grid) <= 3:
            raise ArgumentError("grid", repr(launched.grid), "one to three numbers or formulas", 'grid="cdiv(n, 256)"')
        blocks = ([*grid, term(1), term(1)])[:3]
        shared = self._number("shared_bytes", launched.shared_bytes) + self.kernel.dynamic_shared_bytes
        made = Specification(self.arena, (x, y, z), (blocks[0], blocks[1], blocks[2]), (), {}, shared, dict(self.sizes))
        made.repeats = self.kernel.signature.repeats
        made.launches = f"grid ({launched.grid_text}), block ({', '.join(map(str, _listed(block)))})"
        for text, condition in launched.facts:
            made.facts.append(condition)
            made.stated.append(text)
        self._fill(made)
        for text in self.size_facts:
            found = formula("facts", text, self.names)
            if not isinstance(found, Predicate):
                raise ArgumentError("facts", repr(text), "a comparison", 'Write "rows * cols < 2**31".')
            made.facts.append(found)
            made.stated.append(" ".join(text.split()))
        for size, most, axis in zip(blocks, MOST_BLOCKS, "xyz", strict=True):
            if size.constant is None:
                made.facts.append(between(1, size, most))
                if axis != "x":
                    made.stated.append(f"gridDim.{axis} <= {most:,}")
        for text, condition in further(made) if further is not None else ():
            made.facts.append(condition)
            made.stated.append(text)
        for name, text in self.data_facts.items():
            if name not in made.tensors:
                known = ", ".join(made.tensors) or "none"
                raise ArgumentError(f"facts[{name!r}]", f"a tensor {name!r}", known, "Name one of the kernel's.")
            made.data[name] = DataFact.of(made.tensors[name], text, self.names, self.arena, made.tensors)
        return made

    def _fill(self, made: Specification) -> None:
        """Fill in the arguments, the tensors among them, and what their types promise."""
        values: list[Term | None] = []
        passed = [one for one in self.kernel.parameters if not one.scratch]
        made.stand_ins = tuple(self._stand_in(one, self.given.get(one.name)) for one in passed)
        for one in self.kernel.parameters:
            if one.scratch:
                values.append(self._scratch(made))
                continue
            given = self.given.get(one.name)
            mapped = map_text(f"args[{one.name!r}]", given)
            tensor = self._tensor(one.name, given)
            if mapped is not None:
                values.append(self._map(made, one, mapped))
            elif tensor is not None:
                align = self.aligned.get(tensor.name, tensor.align)
                made.tensors[tensor.name] = replace(tensor, align=align)  # two parameters may get one tensor
                values.append(self.arena.atom("pointer", tensor.name))
            elif one.pointer or (given is None and one.name in self.given):
                values.append(term(0) if one.name in self.given else self.arena.atom("pointer", one.name))
            elif one in self._integers() and not isinstance(given, float | bytes):
                values.append(self._integer(made, one, one.name if given is None else given))
            else:
                values.append(None)
        made.arguments = tuple(values)

    def _scratch(self, made: Specification) -> Term:
        """Return the address of the memory that Triton's launcher allocates for each block; 0 where there is none.

        Triton uses it for tensor maps and asks its allocator for their alignment.
        """
        size = self.kernel.scratch_bytes
        if not size or SCRATCH in made.tensors:
            return term(0)
        blocks = made.grid[0] * made.grid[1] * made.grid[2]
        made.tensors[SCRATCH] = TensorArgument(SCRATCH, "uint8", (blocks * size,), 1, align=MAP_BYTES)
        return self.arena.atom("pointer", SCRATCH)

    def _stand_in(self, one: Parameter, given: Any) -> Any:
        """Return a value for a parameter of which a proof knows nothing."""
        if isinstance(given, int | float | bytes):
            return given
        return 1.0 if one.type in ("f16", "f32", "f64") else bytes(one.size) if one.type == "b8" else None

    def _integer(self, made: Specification, one: Parameter, given: Any) -> Term:
        value = self._number(f"args[{one.name!r}]", int(given) if isinstance(given, bool) else given)
        low, high = (-(1 << 8 * one.size - 1), (1 << 8 * one.size - 1) - 1)
        if value.constant is None:
            fits = between(low, value, high)
            if fits.kind != "true":
                made.facts.append(fits)
                made.stated.append(f"{given} < 2**{8 * one.size - 1}")
            if one.divisibility > 1:
                made.facts.append(zero(remainder(value, one.divisibility)))
                made.stated.append(f"{given} % {one.divisibility} == 0")
        return value

    def _map(self, made: Specification, one: Parameter, mapped: MapText) -> Term:
        """Add a tensor map; return the address of the parameter that holds it."""
        found = mapped.of(one.name, self._number)
        if one.size != MAP_BYTES:
            raise ArgumentError(
                f"args[{one.name!r}]", "a tensor map", f"an argument of {one.size} bytes", "A map has 128."
            )
        made.tensors[one.name] = found.tensor
        made.maps[f"&{one.name}"] = found
        for text, condition in found.facts():
            made.facts.append(condition)
            made.stated.append(text)
        return self.arena.atom("pointer", f"&{one.name}")

    def _tensor(self, name: str, given: Any) -> TensorArgument | None:
        where = f"args[{name!r}]"
        if isinstance(given, str):
            if self._is_tensor(given):
                return self._tensor(given, self.given[given])
            found = _TENSOR.fullmatch(given)
            if found is None:
                return None
            sizes = [self._number(where, one) for one in _split(found[2])]
            return TensorArgument(name, found[1], tuple(sizes), bytes_of(where, found[1]))
        if isinstance(given, TensorArgument):
            return given
        if hasattr(given, "shape") and hasattr(given, "dtype"):
            dtype = str(given.dtype).rpartition(".")[2]
            return TensorArgument(name, dtype, tuple(map(term, given.shape)), int(given.dtype.itemsize))
        return None

    def _number(self, where: str, given: Any) -> Term:
        found = formula(where, given, self.names)
        if isinstance(found, int) and not isinstance(found, bool):
            return term(found)
        if not isinstance(found, Term):
            raise ArgumentError(where, repr(given), "a whole number or a formula of sizes", "Correct it.")
        return found


def _shaped(tensor: TensorArgument) -> SimpleNamespace:
    """Return what formulas and functions may ask of a tensor."""
    return SimpleNamespace(shape=tensor.shape, ndim=len(tensor.shape), numel=lambda: tensor.count)


def _listed(given: Any) -> Sequence[Any]:
    return list(given) if isinstance(given, tuple | list) else [given]


def _split(text: str) -> list[str]:
    """Split the sizes of a shape at its commas."""
    tree = ast.parse(f"[{text}]", mode="eval").body
    assert isinstance(tree, ast.List)
    return [ast.unparse(one) for one in tree.elts]


def _names(texts: Iterable[str]) -> list[str]:
    """Return the names in formulas, in order; text that is none is refused later."""
    found: dict[str, None] = {}
    for text in texts:
        try:
            nodes = list(ast.walk(ast.parse(f"({text.strip()},)", mode="eval")))
        except SyntaxError:
            continue
        found |= {one.id: None for one in nodes if isinstance(one, ast.Name) and one.id not in _WORDS}
    return list(found)


def size_limits(level: int) -> Further:
    """Return facts that keep the arithmetic of 32 bits from wrapping; a higher level has more of them.

    1: no tensor has 2**31 elements; 2: no size is within 65,536 of 2**31; 3: sizes and the grid's threads are below
    2**30.
    """

    def facts(made: Specification) -> Iterable[tuple[str, Predicate]]:
        if level >= 1:
            counts = {one.count: one for one in made.tensors.values() if one.count.constant is None}
            for count, tensor in counts.items():
                if count.atom is None:
                    yield f"elements of {tensor.name} < 2**31", at_most(count, _INT32[1])
        if level == 2:
            for name, size in made.sizes.items():
                yield f"{name} <= 2**31 - 2**16", at_most(size, (1 << 31) - (1 << 16))
        if level >= 3:
            for name, size in made.sizes.items():
                yield f"{name} < 2**30", at_most(size, (1 << 30) - 1)
            for size, threads, axis in zip(made.grid, made.block, "xyz", strict=True):
                if size.constant is None:
                    yield f"gridDim.{axis} * blockDim.{axis} < 2**30", at_most(size * threads, (1 << 30) - 1)

    return facts
