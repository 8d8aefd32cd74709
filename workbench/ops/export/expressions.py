"""Expressions of a declaration, as ordinary Python code over local variables."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.declared.launching import Declaration, LaunchSize
from workbench.ops.export.code import Collected, is_lambda
from workbench.ops.export.layout import INDENT, quoted, unparsed
from workbench.ops.expressions import FUNCTIONS, Expression

_OF_MATH = ("ceil", "log2", "prod", "sqrt")


class Code:
    """Python code of one variant: its expressions, and the lines that give their names values.

    ``helpers`` has the text of the user's lambdas that the code calls by name.
    """

    def __init__(self, declared: Declaration, collected: Collected, outputs: Iterable[str], sizes: Iterable[str]):
        self.declared, self.collected = declared, collected
        self.parameters, self.outputs = declared.contract.parameters, tuple(outputs)
        self.sizes = tuple(sizes)
        self.helpers: list[str] = []
        self._named: dict[str, str] = {}
        self._inline = self._inline_sizes()

    def of(self, expression: Expression, *, operand: bool = False) -> str:
        """Return an expression's text, in brackets if it is an ``operand`` and needs them."""
        given = expression.given
        if not isinstance(given, str) and not callable(given):
            return repr(given)
        if isinstance(given, str):
            node = ast.parse(given.strip(), mode="eval").body
            node = _Functions().visit(node)
        else:
            if not is_lambda(given):
                name = self._helper(given, expression.where)
                return f"{name}({', '.join(f'{one}={one}' for one in expression.names)})"
            _, node = self.collected.expression(given, expression.where)
            clash = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - set(expression.names)
            self._check_clash(clash, expression.where)
        node = _Tensors({*self.parameters, *self.outputs}, expression.where).visit(node)
        text = unparsed(ast.fix_missing_locations(node))
        loose = isinstance(node, ast.IfExp | ast.Lambda | ast.Tuple) or (
            isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
        )
        return f"({text})" if operand and loose else text

    def shape(self, shape: LaunchSize, values: tuple[int, ...]) -> str:
        """Return the text of a grid or block as a tuple of three; ``values`` are its numbers for some problem."""
        parts = [self.of(part) for part in shape.parts]
        if len(parts) == len(values):
            return f"({', '.join([*parts, '1', '1'][:3])})"
        several = ", ".join(f"*{text}" if part.names else text for part, text in zip(shape.parts, parts, strict=True))
        return f"({several}, 1, 1)[:3]"

    def locals(self, names: Iterable[str]) -> list[str]:
        """Return lines that give the tunables and sizes among ``names`` their values."""
        names = set(names)
        lines = [f"{INDENT}{name} = config[{quoted(name)}]" for name in self.declared.space if name in names]
        wanted = [name for name in self.sizes if name in names and name not in self.declared.space]
        if self._inline is not None:
            return lines + [f"{INDENT}{name} = {self._inline[name]}" for name in wanted]
        if wanted and self.declared.sizes is not None:
            name = self._helper(self.declared.sizes, "sizes")
            parameters = inspect.signature(self.declared.sizes).parameters
            lines.append(f"{INDENT}named = {name}({', '.join(f'{one}={one}' for one in parameters)})")
            lines += [f"{INDENT}{one} = named[{quoted(one)}]" for one in wanted]
        return lines

    def needs(self, names: Iterable[str]) -> set[str]:
        """Return the op's arguments and outputs from which ``names``, and the sizes among them, are computed."""
        names = set(names)
        if self.declared.sizes is not None and names & set(self.sizes):
            names |= set(inspect.signature(self.declared.sizes).parameters)
        return names & {*self.parameters, *self.outputs}

    def _inline_sizes(self) -> dict[str, str] | None:
        """Return each size's own expression if the function of the sizes is a lambda that lists them, else None."""
        function = self.declared.sizes
        if function is None or not is_lambda(function):
            return None
        parameters, node = self.collected.expression(function, "sizes")
        found: list[tuple[ast.expr | None, ast.expr]]
        if isinstance(node, ast.Dict):
            found = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict" and not node.args:
            found = [(ast.Constant(one.arg) if one.arg else None, one.value) for one in node.keywords]
        else:
            return None
        pairs = [(str(key.value), value) for key, value in found if isinstance(key, ast.Constant)]
        if len(pairs) < len(found):
            return None
        for _, value in pairs:
            clash = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} - set(parameters)
            self._check_clash(clash, "sizes")
        rewrite = _Tensors(set(parameters), "sizes")
        return {name: unparsed(ast.fix_missing_locations(rewrite.visit(value))) for name, value in pairs}

    def _helper(self, function: Any, where: str) -> str:
        """Write a user's function into the file, and return its name."""
        if not inspect.isfunction(function):
            raise ArgumentError(
                where, type(function).__name__, "a Python function or an expression", "Write it as text."
            )
        if not is_lambda(function):
            return self.collected.helper(function)
        name = where.split("[")[0]
        text = self.collected.written_out(function, where, name)
        if self._named.setdefault(name, text) != text:
            raise ArgumentError(where, f"another function called {name}", "different names", "Rename one of them.")
        if text not in self.helpers:
            self.helpers.append(text)
        return name

    def _check_clash(self, outside: set[str], where: str) -> None:
        local = {*self.declared.space, *self.sizes, *self.parameters, *self.outputs, *self.declared.workspace}
        for name in sorted(outside & local):
            what = f"a global {name!r}, a name that the launch uses too"
            raise ArgumentError(f"export: {where}", what, "other names", "Rename the global.")


class _Functions(ast.NodeTransformer):
    """Rewriter that puts ``math.`` before its functions; Python or the file itself has all others by their names."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _OF_MATH and node.id in FUNCTIONS:
            return ast.Attribute(ast.Name("math", ast.Load()), node.id, ast.Load())
        return node


class _Tensors(ast.NodeTransformer):
    """Rewriter of attributes that torch's tensors have in another form than described ones: dtype, strides."""

    def __init__(self, tensors: set[str], where: str):
        self._tensors, self._where = tensors, where

    def _is_dtype(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and self._tensor(node) is not None and node.attr == "dtype"

    def _tensor(self, node: ast.Attribute) -> str | None:
        """Return the name of the tensor whose attribute it is; None if it is not a tensor's."""
        return node.value.id if isinstance(node.value, ast.Name) and node.value.id in self._tensors else None

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "ctype" and all(map(self._is_dtype, node.args)):
            return node
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [node.left, *node.comparators]
        if not any(map(self._is_dtype, sides)) or not all(self._is_dtype(one) or _is_text(one) for one in sides):
            return self.generic_visit(node)
        left, *others = [one if self._is_dtype(one) else _as_dtype(one) for one in sides]
        return ast.Compare(left, node.ops, others)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        tensor = self._tensor(node)
        if tensor is None:
            return self.generic_visit(node)
        if node.attr == "dtype":
            return ast.parse(f"str({tensor}.dtype).removeprefix('torch.')", mode="eval").body
        if node.attr == "strides":
            return ast.parse(f"{tensor}.stride()", mode="eval").body
        if node.attr == "aligned":
            remedy = "It is known only in a call: write the kernel for any address, or copy unaligned tensors."
            raise ArgumentError(f"export: {self._where}", f"{tensor}.aligned", "shapes, strides, dtypes", remedy)
        return node


def _is_text(node: ast.expr) -> bool:
    """Return True if an expression is a string, or a tuple or list of strings."""
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(_is_text, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _as_dtype(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Tuple | ast.List):
        return ast.Tuple([_as_dtype(one) for one in node.elts], ast.Load())
    return ast.Attribute(ast.Name("torch", ast.Load()), ast.literal_eval(node), ast.Load())
