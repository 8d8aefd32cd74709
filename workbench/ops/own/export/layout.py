"""Python text as ``ruff format`` leaves it, at 120 characters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

WIDTH = 120
INDENT = "    "


@dataclass(frozen=True)
class Bracketed:
    """``open item, item close``; an item is text or bracketed itself, ``"name": {...}`` one with a longer opening."""

    open: str
    items: tuple[Any, ...]
    close: str

    def __str__(self) -> str:
        single = "," if self.open.endswith("(") and self.close == ")" and self.is_tuple and len(self.items) == 1 else ""
        return f"{self.open}{', '.join(map(str, self.items))}{single}{self.close}"

    is_tuple: bool = False


def laid_out(node: Any, indent: str = "", head: str = "", tail: str = "") -> str:
    """``head node tail`` on one line where it fits, else broken at its brackets."""
    line = f"{indent}{head}{node}{tail}"
    if len(line) <= WIDTH or not isinstance(node, Bracketed) or not node.items:
        return line
    inner = indent + INDENT
    whole = inner + ", ".join(map(str, node.items))
    if len(whole) <= WIDTH and node.open.endswith("(") and not node.is_tuple:  # a call
        lines = [whole]
    else:
        lines = [laid_out(item, inner, "", ",") for item in node.items]
    return "\n".join([f"{indent}{head}{node.open}", *lines, f"{indent}{node.close}{tail}"])


def one_per_line(node: Bracketed, head: str, comments: Iterable[str] = ()) -> str:
    """Broken at its brackets in any case, with a comment above each item."""
    notes = list(comments) or [""] * len(node.items)
    lines = []
    for item, note in zip(node.items, notes, strict=True):
        lines += [f"{INDENT}# {note}"] if note else []
        lines.append(laid_out(item, INDENT, "", ","))
    return "\n".join([head + node.open, *lines, node.close])


def call(name: str, items: Iterable[Any]) -> Bracketed:
    """A call, or anything else in round brackets."""
    return Bracketed(name + "(", tuple(items), ")")


def literal(value: Any) -> Any:
    """A value of Python's plain types, or a dtype of torch, as it is written. Raises TypeError for anything else."""
    import torch

    if isinstance(value, torch.dtype) or value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f'float("{value}")'
    if isinstance(value, str):
        return quoted(value)
    if type(value) is tuple:
        return Bracketed("(", tuple(map(literal, value)), ")", is_tuple=True)
    if type(value) is list:
        return Bracketed("[", tuple(map(literal, value)), "]")
    if isinstance(value, Mapping):
        return Bracketed("{", tuple(_pair(key, one) for key, one in value.items()), "}")
    raise TypeError(type(value).__name__)


def _pair(key: Any, value: Any) -> Any:
    written = literal(value)
    if isinstance(written, Bracketed):
        return Bracketed(f"{literal(key)}: {written.open}", written.items, written.close, written.is_tuple)
    return f"{literal(key)}: {written}"


def in_tuple(names: Iterable[str]) -> str:
    """``a, b`` or ``a,``: what stands between the brackets of a tuple."""
    names = list(names)
    return ", ".join(names) + "," * (len(names) == 1)


def quoted(text: str) -> str:
    """A string in double quotes, where it has none itself."""
    written = repr(text)
    if written[0] == "'" and '"' not in text:
        return '"' + written[1:-1].replace("\\'", "'") + '"'
    return written


_MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}


class _Compared(ast.NodeTransformer):
    """Comparisons with what looks constant on the right."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        mirrored = _MIRRORED.get(type(node.ops[0]))
        if len(node.ops) > 1 or mirrored is None or not _constant(node.left) or _constant(node.comparators[0]):
            return node
        return ast.Compare(node.comparators[0], [mirrored()], [node.left])


def _constant(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _constant(node.left) and _constant(node.right)
    if isinstance(node, ast.UnaryOp):
        return _constant(node.operand)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Constant) or name.isupper()


def unparsed(node: ast.AST) -> str:
    """An expression as ``ruff format`` writes it and ``ruff check`` likes it, on one line."""
    node = ast.fix_missing_locations(_Compared().visit(node))
    text = ast.unparse(node)
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            text = text.replace(repr(one.value), quoted(one.value))
    simple = r"(?:[\w.]+|-\d+)"
    return re.sub(rf"(?<![\w.)\]])({simple}) \*\* ({simple})(?![\w.(\[])", r"\1**\2", text)


def raw_block(head: str, text: str) -> str:
    """``head r\"\"\"`` with a longer text; no trailing spaces. As an ordinary string where a raw one cannot hold it."""
    text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"
    quotes = '"""' if '"""' not in text else "'''"
    wide = "  # noqa: E501" if any(len(line) > WIDTH for line in text.splitlines()) else ""
    if quotes in text:
        return f"{head}{quoted(text)}  # noqa: E501"
    return f"{head}r{quotes}\n{text}{quotes}{wide}"
