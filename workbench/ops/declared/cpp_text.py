"""C++ in a declaration: values of macros and arguments of templates, as expressions or verbatim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.expressions import FUNCTIONS, Expression, Names
from workbench.toolchain.source import split_at_commas


@dataclass(frozen=True, eq=False)
class CppText:
    """A macro's value or a template's argument: an expression if all of its names are known, else verbatim C++."""

    given: Any
    expression: Expression | None

    @classmethod
    def of(cls, where: str, given: Any) -> CppText:
        """Parse a declared value; text that is not an expression, or is a function's name such as ``float``, is C++."""
        if isinstance(given, str) and given.strip() in FUNCTIONS:
            return cls(given, None)
        try:
            return cls(given, Expression.of(where, given))
        except ArgumentError:
            if isinstance(given, str):
                return cls(given, None)
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the expression reads; none for verbatim C++."""
        return () if self.expression is None else self.expression.names

    def is_text(self, names: Mapping[str, Any]) -> bool:
        """Return True if it is verbatim C++: no expression, or one with names that are not among ``names``."""
        return self.expression is None or not set(self.names) <= set(names)

    def __call__(self, names: Mapping[str, Any]) -> str | int | float:
        if self.expression is None or self.is_text(names):
            return self.given.strip()
        return macro_value(self.expression(names))


def instance_of(kernel: str, names: Names) -> str:
    """Return a kernel's name such as ``"softmax<VEC, ctype(x)>"`` with the values of its names; C++ types stay."""
    arguments = (CppText.of("kernel", one)(names) for one in template_arguments(kernel))
    return f"{kernel.partition('<')[0]}<{', '.join(map(str, arguments))}>"


def template_arguments(kernel: str) -> list[str]:
    """Return the texts between the angle brackets of a name expression; none for a plain name."""
    inside = kernel.partition("<")[2].rpartition(">")[0]
    return split_at_commas(inside) if inside else []


def macro_value(value: Any) -> str | int | float:
    """Return the value of a macro as C++ has it: 1 for True."""
    return int(value) if isinstance(value, bool) else value
