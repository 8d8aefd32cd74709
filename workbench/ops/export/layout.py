"""Layout of generated Python, as ``ruff format`` leaves it at 120 characters."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

WIDTH = 120
INDENT = "    "


_STRING = re.compile(r"""("|')(?:\\.|(?!\1).)*\1""")


def fitted(text: str) -> str:
    """Break generated statements that are longer than a line at their brackets."""
    return "\n".join(map(_fitted, text.splitlines()))


def _fitted(line: str) -> str:
    """Break a long line at its last outer bracket that fits (a ``def`` at the first), and its items in the same way."""
    indent = line[: len(line) - len(line.lstrip())]
    if len(line) <= WIDTH or line.startswith(f"{indent}#"):
        return line
    brackets = [found.span() for found in re.finditer(r"[(\[{]_+[)\]}]", _flat(line))]
    of_definition = line.startswith(f"{indent}def ")
    fitting = [(start, end) for start, end in brackets if len(line[: start + 1]) <= WIDTH]
    if not fitting:
        return line
    start, end = fitting[0 if of_definition else -1]
    head, inside, tail = line[: start + 1], line[start + 1 : end - 1], line[end - 1 :]
    flat = _flat(inside)
    is_call = re.search(r"[\w\])]\($", head) is not None
    whole = indent + INDENT + inside
    if (is_call and len(whole) <= WIDTH) or " for " in flat or (head[-1] == "(" and not is_call and "," not in flat):
        lines = [_fitted(whole)]
    else:
        ends = [index for index, character in enumerate(flat) if character == ","]
        items = (inside[i:j].strip() for i, j in itertools.pairwise([0, *(end + 1 for end in ends), len(inside) + 1]))
        lines = [_fitted(f"{indent}{INDENT}{item.rstrip(',')},") for item in items if item]
    return "\n".join([head, *lines, indent + tail])


def _flat(text: str) -> str:
    """Return the text with underscores in place of everything in strings and brackets."""
    flat, depth = "", 0
    for character in _STRING.sub(lambda found: "_" * len(found[0]), text):
        depth -= character in ")]}"
        flat += "_" if depth else character
        depth += character in "([{"
    return flat


def literal(value: Any) -> str:
    """Return a value of Python's plain types, or a torch dtype, as source text. Raises TypeError for anything else."""
    import torch

    if isinstance(value, torch.dtype) or value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f'float("{value}")'
    if isinstance(value, str):
        return quoted(value)
    if type(value) is tuple:
        return f"({in_tuple(map(literal, value))})"
    if type(value) is list:
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(key)}: {literal(one)}" for key, one in value.items()) + "}"
    raise TypeError(type(value).__name__)


def in_tuple(names: Iterable[str]) -> str:
    """Return the text between the brackets of a tuple: ``a, b``, or ``a,`` for one item."""
    names = list(names)
    return ", ".join(names) + "," * (len(names) == 1)


def quoted(text: str) -> str:
    """Return a string as a literal, in double quotes unless it has some itself."""
    written = repr(text)
    if written[0] == "'" and '"' not in text:
        return '"' + written[1:-1].replace("\\'", "'") + '"'
    return written


_MIRRORED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}


class _Compared(ast.NodeTransformer):
    """Rewriter of comparisons that puts operands that look constant on the right."""

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
    """Return an expression on one line, as ``ruff format`` writes it and ``ruff check`` accepts it."""
    node = ast.fix_missing_locations(_Compared().visit(node))
    text = ast.unparse(node)
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            text = text.replace(repr(one.value), quoted(one.value))
    simple = r"(?:[\w.]+|-\d+)"
    return re.sub(rf"(?<![\w.)\]])({simple}) \*\* ({simple})(?![\w.(\[])", r"\1**\2", text)


def raw_block(head: str, text: str) -> str:
    """Return ``head`` and a longer text as a raw string, without trailing spaces.

    A text that no raw string can hold becomes an ordinary one.
    """
    text = "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"
    quotes = '"""' if '"""' not in text else "'''"
    wide = "  # noqa: E501" if any(len(line) > WIDTH for line in text.splitlines()) else ""
    if quotes in text:
        return f"{head}{quoted(text)}  # noqa: E501"
    return f"{head}r{quotes}\n{text}{quotes}{wide}"
