"""A problem's file, and the sizes that it is judged at.

A problem meant for a GPU takes gigabytes. Its sizes are integers that the file assigns at its top level, alone or in a
tuple. The largest is halved again and again, rounded up to a multiple of its common divisor with 16 (then with 4),
until an estimate for the reference fits the budget. A halving that the reference refuses, or that saves nothing, is
undone.
"""

from __future__ import annotations

import ast
import copy
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.base.dispatch_mode import DispatchMode
from workbench.errors import ArgumentError
from workbench.judge.kernelbench.seeding import seeded

_FUNCTIONS = ("Model", "get_inputs")
_UNITS = (16, 4)
_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow, ast.LShift: operator.lshift,
}  # fmt: skip
_PER_MULTIPLICATION, _PER_ELEMENT, _ELEMENT_BYTES = 4, 8, 4
"""Thread instructions of a plain kernel for a multiply-add and to read or write an element; bytes of an element."""


OF_PROBLEMS = ("torch._dynamo", "torch._subclasses.fake_tensor", "torch.utils.flop_counter")
"""Modules that `KernelBenchProblem.cost` imports, in seconds."""


@dataclass(frozen=True)
class Cost:
    """An estimate for one call: bytes of inputs, weights and every operator's result, and thread instructions."""

    bytes: int
    instructions: int


BUDGET = Cost(64 << 20, 1 << 28)
"""Largest cost of a problem unless it is judged at its own sizes: seconds on the PTX machine."""

SMALL = Cost(1 << 20, 1 << 23)
"""Largest cost of a problem whose inputs are changed in many ways: each takes a run, and five of the reference."""


@dataclass(frozen=True)
class KernelBenchProblem:
    """A problem's file at its own or smaller sizes, as name -> (size used, size in the file)."""

    path: Path
    text: str
    sizes: Mapping[str, tuple[int, int]]

    @classmethod
    def read(cls, path: Path) -> KernelBenchProblem:
        """Read the file, at its own sizes. Raises ArgumentError for a file that is not a problem."""
        try:
            text = path.read_text()
            tree = ast.parse(text)
        except (OSError, UnicodeDecodeError, SyntaxError) as error:
            raise ArgumentError("problem", f"{path}: {error}", "a Python file", "Check the path.") from error
        found = cls(path, text, {name: (size, size) for name, size, _ in _sizes(tree)})
        namespace = found.namespace()
        missing = [name for name in _FUNCTIONS if not callable(namespace.get(name))]
        if missing:
            allowed = "a file in KernelBench's format: Model, get_inputs(), get_init_inputs()"
            raise ArgumentError("problem", f"{path.name} without {', '.join(missing)}", allowed, "Define them.")
        return found

    @property
    def used(self) -> dict[str, int]:
        """The sizes that are smaller than in the file, as used."""
        return {name: used for name, (used, given) in self.sizes.items() if used != given}

    def at(self, name: str, size: int) -> KernelBenchProblem:
        """Return the problem with one size changed."""
        return KernelBenchProblem(self.path, self.text, {**self.sizes, name: (size, self.sizes[name][1])})

    def namespace(self) -> dict[str, Any]:
        """Run the file at these sizes and return its names. Raises ArgumentError for any exception of the file."""
        tree = ast.parse(self.text)
        for name, _, replace in list(_sizes(tree)):
            replace(self.sizes[name][0])
        names: dict[str, Any] = {"__name__": self.path.stem, "__file__": str(self.path)}
        try:
            exec(compile(ast.fix_missing_locations(tree), str(self.path), "exec", dont_inherit=True), names)
        except (Exception, SystemExit) as error:
            raise _refused(self, error) from error
        return names

    def fitted(self, budget: Cost = BUDGET) -> KernelBenchProblem:
        """Return the problem at sizes whose `cost` is within the budget, or as small as they go."""
        found, share = self, _share(self.cost(), budget)
        for unit in _UNITS:
            kept: set[str] = set()
            while share > 1:
                open_ones = {
                    name: used
                    for name, (used, _) in found.sizes.items()
                    if name not in kept and _half(used, unit) < used
                }
                if not open_ones:
                    break
                name = max(open_ones, key=open_ones.__getitem__)
                smaller = found.at(name, _half(open_ones[name], unit))
                try:
                    new = _share(smaller.cost(), budget)
                except ArgumentError:
                    new = math.inf
                if new < share:
                    found, share = smaller, new
                else:
                    kept.add(name)
        return found

    def cost(self) -> Cost:
        """Estimate one call of the reference from shapes alone.

        Raises ArgumentError for a reference that needs values.
        """
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils.flop_counter import FlopCounterMode

        names, flops, results = self.namespace(), FlopCounterMode(display=False), _Results()
        try:
            with FakeTensorMode(), seeded(0), torch.no_grad():
                model = names["Model"](*init_inputs(names))
                given = names["get_inputs"]()
                with flops, results:
                    model(*given)
        except Exception as error:
            raise _refused(self, error, "full=True (--full) keeps its own sizes.") from error
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        read = sum(map(_bytes, [*tensors, *model.parameters(), *model.buffers()]))
        total = read + results.bytes
        multiplications = flops.get_total_flops() // 2
        elements = total // _ELEMENT_BYTES
        return Cost(total, multiplications * _PER_MULTIPLICATION + elements * _PER_ELEMENT)


class _Results(DispatchMode):
    """Mode that adds up the bytes of the tensors that operators return, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not any(one.alias_info is not None for one in func._schema.returns):
            several = found if isinstance(found, tuple | list) else (found,)
            self.bytes += sum(_bytes(one) for one in several if isinstance(one, torch.Tensor))
        return found


def init_inputs(names: Mapping[str, Any]) -> list:
    """Return the arguments of ``Model``'s constructor; none if the file has no ``get_init_inputs``."""
    given = names.get("get_init_inputs")
    return list(given()) if callable(given) else []


def copied(values: Any) -> list:
    """Return a copy of arguments, with tensors of their own."""
    return copy.deepcopy(list(values))


def _refused(problem: KernelBenchProblem, error: BaseException, remedy: str = "Correct it.") -> ArgumentError:
    said = next(iter(str(error).splitlines()), "")
    return ArgumentError("problem", f"{problem.path.name}: {type(error).__name__}: {said}", "a file that runs", remedy)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _share(cost: Cost, budget: Cost) -> float:
    return max(cost.bytes / budget.bytes, cost.instructions / budget.instructions)


def _half(size: int, unit: int) -> int:
    """Return half of a size, rounded up to a multiple of its common divisor with the unit.

    Returns the size itself if that is less than the unit.
    """
    step = math.gcd(size, unit)
    half = -(-size // (2 * step)) * step
    return half if half >= unit else size


def _sizes(tree: ast.Module) -> Iterator[tuple[str, int, Callable[[int], None]]]:
    """Yield (name, size, function that replaces it) for each integer at the file's top level that is assigned once."""
    found: dict[str, list[tuple[int, Callable[[int], None]]]] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        name, value = targets[0].id, node.value
        if isinstance(value, ast.Tuple | ast.List):
            for index, element in enumerate(value.elts):
                _add(found, f"{name}[{index}]", element, value.elts, index)
        else:
            _add(found, name, value, node, None)
    for name, places in found.items():
        if len(places) == 1:
            yield (name, *places[0])


def _add(found: dict, name: str, value: ast.expr, holder: Any, index: int | None) -> None:
    size = _whole(value)

    def replace(new: int) -> None:
        constant = ast.copy_location(ast.Constant(new), value)
        if index is None:
            holder.value = constant
        else:
            holder[index] = constant

    if size is None:  # the value is not an integer, so the name is not a size
        found.setdefault(name, []).extend([(0, replace)] * 2)
    else:
        found.setdefault(name, []).append((size, replace))


def _whole(value: ast.expr) -> int | None:
    """Return the value of an expression of integers, or None for another expression."""
    if isinstance(value, ast.Constant):
        return value.value if type(value.value) is int else None
    if isinstance(value, ast.BinOp) and (apply := _ARITHMETIC.get(type(value.op))) is not None:
        left, right = _whole(value.left), _whole(value.right)
        if left is None or right is None:
            return None
        try:
            return apply(left, right)
        except (ArithmeticError, ValueError):
            return None
    return None
