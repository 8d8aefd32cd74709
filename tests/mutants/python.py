"""Mutation operators on Python: slips of the hand in a module's syntax tree, at lines that a test executes.

Like those on PTX (tests/mutants/ptx_operators.py) they know nothing of how the module is written.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib.util
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from unittest import mock

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}


def _comparison(node: ast.AST) -> ast.AST | None:
    """Move a bound by one, or turn a comparison the other way round."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    return None


def _condition(node: ast.AST) -> ast.AST | None:
    """Let a condition always hold."""
    if isinstance(node, ast.If | ast.IfExp):
        return type(node)(**{**dict(ast.iter_fields(node)), "test": ast.Constant(True)})
    return None


def _operand(node: ast.AST) -> ast.AST | None:
    """Keep one of two conditions; drop a product's or quotient's second operand; take ``-x`` and ``not x`` as ``x``."""
    if isinstance(node, ast.BoolOp):
        return node.values[0]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return node.left
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        return node.operand
    return None


def _arithmetic(node: ast.AST) -> ast.AST | None:
    """Take a sum for a difference, and the reverse."""
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    return None


def _number(node: ast.AST) -> ast.AST | None:
    """Add one to a whole number."""
    return ast.Constant(node.value + 1) if isinstance(node, ast.Constant) and type(node.value) is int else None


def _statement(node: ast.AST) -> ast.AST | None:
    """Leave out a call, or a change of something that exists."""
    stores = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if stores or isinstance(node, ast.AugAssign | ast.Delete) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):  # fmt: skip
        return ast.Pass()
    return None


def _arguments(node: ast.AST) -> ast.AST | None:
    """Exchange the first two arguments of a call, or the items of a pair."""
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        return ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) == 2:
        return ast.Tuple(node.elts[::-1], node.ctx)
    return None


OPERATORS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "comparison changed": _comparison,
    "condition always true": _condition,
    "operand dropped": _operand,
    "sum for difference": _arithmetic,
    "number one larger": _number,
    "statement dropped": _statement,
    "operands exchanged": _arguments,
}


@dataclass(frozen=True)
class PythonMutant:
    """A module with one slip in it."""

    operator: str
    module: str
    line: int
    before: str
    after: str
    code: CodeType = field(repr=False)

    def __str__(self) -> str:
        return f"{self.operator}: {self.module}, line {self.line}: {self.before} -> {self.after}"


class _Replace(ast.NodeTransformer):
    def __init__(self, at: ast.AST, by: ast.AST):
        self.at, self.by = at, by

    def visit(self, node: ast.AST) -> ast.AST:
        return self.by if node is self.at else self.generic_visit(node)


def _annotation(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a type that a node declares, which nothing evaluates."""
    for field_name in ("annotation", "returns"):
        if (declared := getattr(node, field_name, None)) is not None:
            yield from ast.walk(declared)


def mutants(operator: str, module: str, lines: set[int]) -> Iterator[PythonMutant]:
    """Yield all mutants that an operator makes of some lines of a module, in random order."""
    source = source_of(module)
    nodes = list(enumerate(ast.walk(ast.parse(source))))
    types = {id(part) for _, node in nodes for part in _annotation(node)}
    random.Random(f"{operator} {module}").shuffle(nodes)
    for at, node in nodes:
        if id(node) in types or getattr(node, "lineno", None) not in lines or OPERATORS[operator](node) is None:
            continue
        tree = ast.parse(source)
        old = list(ast.walk(tree))[at]
        new = ast.copy_location(OPERATORS[operator](copy.deepcopy(old)), old)
        before, after = (ast.unparse(one).splitlines()[0] for one in (old, new))
        tree = ast.fix_missing_locations(_Replace(old, new).visit(tree))
        yield PythonMutant(operator, module, node.lineno, before, after, compile(tree, _file(module), "exec"))


def _file(module: str) -> str:
    return f"<{module}>"


@functools.cache
def source_of(module: str) -> str:
    """Return the source of a module."""
    return importlib.util.find_spec(module).loader.get_source(module)  # type: ignore[union-attr]


def loaded(modules: Sequence[str], codes: Mapping[str, CodeType]) -> ModuleType:
    """Make modules anew in this order, some of other code, and return the last; what is imported stays as it is."""
    right = {name: compile(source_of(name), _file(name), "exec") for name in modules}
    with mock.patch.dict(sys.modules):
        for name in modules:
            sys.modules.pop(name, None)
        for name in modules:
            sys.modules[name] = made = ModuleType(name)
            exec(codes.get(name, right[name]), made.__dict__)
    return made


@contextmanager
def executed_lines(*modules: str) -> Iterator[dict[str, set[int]]]:
    """Yield by module the lines of functions that are executed within the block; the modules are `loaded` ones."""
    lines: dict[str, set[int]] = {_file(module): set() for module in modules}

    def line(frame: FrameType, event: str, argument: object) -> object:
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return line

    def call(frame: FrameType, event: str, argument: object) -> object:
        return line if frame.f_code.co_filename in lines else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield {module: lines[_file(module)] for module in modules}
    finally:
        sys.settrace(before)


class OutOfTimeError(Exception):
    """Error for a mutant that goes on for ever."""


@contextmanager
def cpu_seconds(most: float) -> Iterator[None]:
    """Raise OutOfTimeError in a block that takes more seconds of the processor."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
