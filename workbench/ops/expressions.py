"""The values in a declaration of a launch or a rule: numbers, expressions as text, and functions of named values.

``"cdiv(cols, BLOCK)"``, ``lambda cols, BLOCK: -(-cols // BLOCK)`` and ``4`` are three ways to declare a grid. The names
are the tunables, the named sizes, the op's arguments (described, see `TensorType`) and its outputs; for a built-in op
they are the fields of its problem. Expressions also have the functions of `FUNCTIONS`.
"""

from __future__ import annotations

import ast
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.element_types import ELEMENT_TYPES
from workbench.errors import ArgumentError
from workbench.ops.identity import stated


def cdiv(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


def next_power_of_2(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << max(int(number) - 1, 0).bit_length()


def is_power_of_two(number: int) -> bool:
    """Return True if a number is 1, 2, 4, ..."""
    return number > 0 and number & (number - 1) == 0


def _ctype(value: Any) -> str:
    dtype = getattr(value, "dtype", value)
    return ELEMENT_TYPES[str(dtype)].cpp


FUNCTIONS: Mapping[str, Callable] = {
    "abs": abs, "bool": bool, "ceil": math.ceil, "cdiv": cdiv, "ctype": _ctype, "float": float, "int": int,
    "is_power_of_two": is_power_of_two, "len": len, "log2": math.log2, "max": max, "min": min,
    "next_power_of_2": next_power_of_2, "prod": math.prod, "round": round, "sqrt": math.sqrt, "sum": sum,
}  # fmt: skip
"""Functions that an expression may call; ``ctype(x)`` is the C++ type of a tensor's elements, ``cdiv`` rounds up."""

_NODES = (
    ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Attribute,
    ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.expr_context, ast.boolop, ast.operator,
    ast.unaryop, ast.cmpop,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Expression:
    """A number, an expression or a function, and the names that it reads."""

    where: str
    """The argument of the declaration, for messages: ``"where[0]"``."""
    given: Any
    names: tuple[str, ...]
    _compute: Callable[[Mapping[str, Any]], Any]

    @classmethod
    def of(cls, where: str, given: Any) -> Expression:
        """Parse a value of a declaration. Raises ArgumentError for text that is no expression, and for other types."""
        if isinstance(given, Expression):
            return given
        if isinstance(given, str):
            return cls(where, given, *_parsed(where, given))
        if callable(given):
            parameters = tuple(inspect.signature(given).parameters)
            return cls(where, given, parameters, lambda names: given(**{name: names[name] for name in parameters}))
        if given is None or isinstance(given, bool | int | float):
            return cls(where, given, (), lambda names: given)
        remedy = 'Write it as text, such as "cdiv(cols, BLOCK)", or as a function of the names.'
        raise ArgumentError(where, repr(given), "a number, an expression or a function", remedy)

    @property
    def is_name(self) -> bool:
        """True if it is one name and nothing else: the argument or output of that name is then passed as such."""
        return isinstance(self.given, str) and self.names == (self.given.strip(),)

    @property
    def text(self) -> str:
        """The text as it was written; for a function its source."""
        return self.given if isinstance(self.given, str) else stated(self.given)

    def whole(self, names: Mapping[str, Any]) -> int:
        """Return the value, which has to be an integer of 0 or more. Raises ArgumentError for another one."""
        value = self(names)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            what = repr(value) + (f" of {self.text!r}" if self.names else "")
            raise ArgumentError(self.where, what, "a whole number, 0 or more", "Use // or cdiv().")
        return value

    def __call__(self, names: Mapping[str, Any]) -> Any:
        """Compute the value. Raises ArgumentError, with the expression, if that fails."""
        try:
            return self._compute(names)
        except ArgumentError:
            raise
        except Exception as error:
            if isinstance(error, KeyError) and error.args[:1] and error.args[0] in self.names:
                known = (", ".join(names) or "none") if isinstance(names, Mapping) else "the names of the declaration"
                got = f"{self.text!r}, which names {error.args[0]!r}"
                raise ArgumentError(self.where, got, known, "Correct the name.") from error
            what = f"{self.text!r}: {type(error).__name__}: {error}"
            raise ArgumentError(self.where, what, "an expression that has a value", "Correct it.") from error


# CPython 3.11 counts the depth of the trees of all threads together, and raises SystemError where it then differs.
_ONE_TREE_AT_A_TIME = threading.RLock()


def _parsed(where: str, text: str) -> tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]:
    with _ONE_TREE_AT_A_TIME:
        return _compiled(where, text)


def _compiled(where: str, text: str) -> tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise ArgumentError(where, repr(text), f"a Python expression ({error.msg})", "Correct it.") from error
    for node in ast.walk(tree):
        private = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if private or not isinstance(node, _NODES):
            what = f"{text!r}, which has {type(node).__name__}"
            raise ArgumentError(where, what, "arithmetic, comparisons, attributes and calls", "Write a function.")
    found = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    names = tuple(name for name in found if name not in FUNCTIONS)
    arguments = ast.arguments([], [ast.arg(name) for name in names], defaults=[], kwonlyargs=[], kw_defaults=[])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, tree.body)))
    # A pickler looks for a function that names no module in each that is imported.
    known = {"__builtins__": {}, "__name__": __name__, **FUNCTIONS}
    compute = eval(compile(function, f"<{where}>", "eval"), known)
    return names, lambda values: compute(*[values[name] for name in names])


class Names(Mapping[str, Any]):
    """The values of all names of one launch: tunables before sizes before arguments and outputs.

    A tunable is read from the configuration only on access, so that a space finds out which tunables a rule depends on.
    """

    def __init__(self, config: Mapping[str, Any], tunables: Iterable[str], fixed: Mapping[str, Any]):
        self._config, self._tunables, self._fixed = config, tuple(tunables), fixed

    def __getitem__(self, name: str) -> Any:
        return self._config[name] if name in self._tunables else self._fixed[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._tunables
        yield from (name for name in self._fixed if name not in self._tunables)

    def __len__(self) -> int:
        return len({*self._tunables, *self._fixed})
