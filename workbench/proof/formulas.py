"""Formulas of sizes, such as ``"cdiv(cols, 32)"`` and ``"rows * cols < 2**31"``, read as terms and conditions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import ArgumentError
from workbench.proof.conditions import (
    Predicate,
    at_most,
    below,
    both,
    choice,
    either,
    equal,
    negation,
)
from workbench.proof.terms import Number, Term, quotient, ratio, term


def formula(where: str, text: Any, names: Mapping[str, Any]) -> Any:
    """Return the term or the condition of a text; a number is its own term.

    ``names`` are terms, numbers or objects whose attributes and elements are. Raises ArgumentError for text that is no
    such formula and for other names.
    """
    if isinstance(text, Term | Predicate):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        return term(text)
    if not isinstance(text, str):
        raise ArgumentError(where, repr(text), 'a number or a formula such as "cdiv(cols, 32)"', "Write it as text.")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ArgumentError(where, repr(text), f"a Python expression ({error.msg})", "Correct it.") from error
    return _Reader(where, text, names).read(tree)


class _Reader:
    def __init__(self, where: str, text: str, names: Mapping[str, Any]):
        self.where, self.text, self.names = where, text, names

    def refuse(self, what: str) -> ArgumentError:
        allowed = "names, whole numbers, + - * // % **, comparisons, and, or, not, cdiv, min, max"
        return ArgumentError(self.where, f"{self.text!r}, which has {what}", allowed, "Write it with these.")

    def read(self, node: ast.expr) -> Any:
        found = _READERS.get(type(node))
        if found is None:
            raise self.refuse(type(node).__name__)
        return found(self, node)

    def number(self, node: ast.expr) -> Number:
        value = self.read(node)
        if isinstance(value, bool) or not isinstance(value, int | Term):
            raise self.refuse(f"{ast.unparse(node)}, which is not a whole number")
        return value

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def name(self, node: ast.Name) -> Any:
        if node.id not in self.names:
            known = ", ".join(self.names) or "none"
            raise ArgumentError(self.where, f"{self.text!r}, which names {node.id!r}", known, "Correct the name.")
        return self.names[node.id]

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.read(node.value)
        if node.attr.startswith("_") or not hasattr(owner, node.attr):
            raise self.refuse(ast.unparse(node))
        return getattr(owner, node.attr)

    def subscript(self, node: ast.Subscript) -> Any:
        owner, index = self.read(node.value), self.read(node.slice)
        try:
            return owner[index]
        except (TypeError, IndexError, KeyError) as error:
            raise self.refuse(ast.unparse(node)) from error

    def several(self, node: ast.Tuple) -> Any:
        return tuple(map(self.read, node.elts))

    def unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return negation(self.condition(node.operand))
        if isinstance(node.op, ast.USub):
            return -self.number(node.operand)
        raise self.refuse(ast.unparse(node))

    def binary(self, node: ast.BinOp) -> Any:
        operation = _OPERATIONS.get(type(node.op))
        if operation is None:
            raise self.refuse(ast.unparse(node))
        left, right = self.number(node.left), self.number(node.right)
        try:
            return operation(left, right)
        except ValueError as error:
            raise self.refuse(f"{ast.unparse(node)}: {error}") from error

    def condition(self, node: ast.expr) -> Predicate:
        value = self.read(node)
        if not isinstance(value, Predicate):
            raise self.refuse(f"{ast.unparse(node)}, which is not a comparison")
        return value

    def comparison(self, node: ast.Compare) -> Predicate:
        sides = [self.number(one) for one in (node.left, *node.comparators)]
        found = []
        for one, operator, other in zip(sides, node.ops, sides[1:], strict=False):
            relation = _RELATIONS.get(type(operator))
            if relation is None:
                raise self.refuse(ast.unparse(node))
            found.append(relation(one, other))
        return both(*found)

    def combination(self, node: ast.BoolOp) -> Predicate:
        parts = map(self.condition, node.values)
        return both(*parts) if isinstance(node.op, ast.And) else either(*parts)

    def conditional(self, node: ast.IfExp) -> Term:
        return choice(self.condition(node.test), self.number(node.body), self.number(node.orelse))

    def call(self, node: ast.Call) -> Any:
        function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if function is not None and not node.keywords:
            return function(*map(self.number, node.args))
        owner = self.read(node.func) if isinstance(node.func, ast.Attribute) else None
        if callable(owner):
            return owner(*map(self.read, node.args))
        raise self.refuse(ast.unparse(node.func))


_READERS: Mapping[type[ast.expr], Callable[[_Reader, Any], Any]] = {
    ast.Constant: _Reader.constant,
    ast.Name: _Reader.name,
    ast.Attribute: _Reader.attribute,
    ast.Subscript: _Reader.subscript,
    ast.Tuple: _Reader.several,
    ast.UnaryOp: _Reader.unary,
    ast.BinOp: _Reader.binary,
    ast.Compare: _Reader.comparison,
    ast.BoolOp: _Reader.combination,
    ast.IfExp: _Reader.conditional,
    ast.Call: _Reader.call,
}


def floor(one: Number, other: Number) -> Number:
    """Return ``one // other``; of symbols both are taken to be at least 0 and 1. Raises ValueError for others."""
    divisor = term(other).constant
    if divisor is not None:
        if divisor < 1:
            raise ValueError("a divisor below 1")
        return quotient(one, divisor)
    low, least = term(one).bounds[0], term(other).bounds[0]
    if low is None or low < 0 or least is None or least < 1:
        raise ValueError("a quotient of sizes that may be negative, or 0")
    return ratio(term(one), term(other))


def rounded_up(one: Number, other: Number) -> Number:
    """Return the quotient, rounded up."""
    return floor(term(one) + other - 1, other)


def least(*several: Number) -> Term:
    """Return the smallest of several terms."""
    found = term(several[0])
    for one in several[1:]:
        found = choice(at_most(found, one), found, one)
    return found


def most(*several: Number) -> Term:
    """Return the largest of several terms."""
    return -least(*(-term(one) for one in several))


def _power(one: Number, other: Number) -> Number:
    exponent = term(other).constant
    if exponent is None or not 0 <= exponent <= 128:
        raise ValueError("an exponent that is not a small number")
    found: Number = 1
    for _ in range(exponent):
        found = found * one
    return found


def _next_power_of_2(one: Number) -> int:
    value = term(one).constant
    if value is None:
        raise ValueError("next_power_of_2 of a symbol")
    return 1 << max(value - 1, 0).bit_length()


_OPERATIONS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: lambda one, other: one + other, ast.Sub: lambda one, other: term(one) - other,
    ast.Mult: lambda one, other: one * other, ast.FloorDiv: floor, ast.Pow: _power,
    ast.Mod: lambda one, other: term(one) - floor(one, other) * other,
    ast.LShift: lambda one, other: one * _power(2, other),
}  # fmt: skip
_RELATIONS: Mapping[type[ast.cmpop], Callable[[Number, Number], Predicate]] = {
    ast.Lt: below, ast.LtE: at_most, ast.Gt: lambda one, other: below(other, one),
    ast.GtE: lambda one, other: at_most(other, one), ast.Eq: equal,
    ast.NotEq: lambda one, other: negation(equal(one, other)),
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "cdiv": rounded_up, "min": least, "max": most, "next_power_of_2": _next_power_of_2,
}  # fmt: skip
