"""Facts about the elements of an op's arguments, such as ``"0 <= v < x.shape[0], distinct or -1"``, checked on tensors.

``v`` is an element, ``i`` its index in the flat tensor; other names are the op's arguments. `workbench.proof` uses the
same facts for all sizes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.expressions import Expression
from workbench.ops.tensors.tensor_type import TensorType

DISTINCT = re.compile(r"distinct(?:\s+or\s+(-?\d+))?")
"""The part of a fact by which no two elements are alike, except those of one value."""
APART = re.compile(r"apart\s+by\s+(\w+)")
"""The part of a fact by which v at i is the start of ``lengths[i]`` places, and no place is that of two elements."""


def parts_of(text: str) -> Iterator[str]:
    """Yield the parts of a fact."""
    return filter(None, map(str.strip, text.split(",")))


def check_facts(facts: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Raise ArgumentError for the first element of which a fact does not hold."""
    types = {name: TensorType.of(one) if isinstance(one, torch.Tensor) else one for name, one in arguments.items()}
    for name, text in facts.items():
        tensor = arguments.get(name)
        if not isinstance(tensor, torch.Tensor):
            continue
        values = tensor.detach().cpu().flatten()
        for part in parts_of(text):
            where = f"facts[{name!r}]"
            by = APART.fullmatch(part)
            if by:
                wrong = _overlapping(values, _lengths(where, part, by[1], len(values), arguments))
            else:
                wrong = _wrong(where, part, values, types)
            if len(wrong):
                got = f"element {int(wrong[0])} is {values[int(wrong[0])].item()}"
                raise ArgumentError(name, got, f"elements v with {part}, as the op's facts say", "Correct either one.")


def _lengths(where: str, part: str, name: str, count: int, arguments: Mapping[str, Any]) -> torch.Tensor:
    lengths = arguments.get(name)
    if not isinstance(lengths, torch.Tensor) or lengths.numel() != count:
        raise ArgumentError(where, repr(part), f"the name of a tensor of {count} elements", "Name the lengths.")
    return lengths.detach().cpu().flatten().to(torch.int64)


def _overlapping(starts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the indices of the elements that start before one ends that starts no later."""
    order = sorted(range(len(starts)), key=lambda i: (int(starts[i]), int(lengths[i])))
    ends = (starts + lengths)[order].cummax(0).values if order else starts
    wrong = [order[place] for place in range(1, len(order)) if ends[place - 1] > starts[order[place]]]
    return torch.tensor(sorted(wrong), dtype=torch.int64)


def _wrong(where: str, part: str, values: torch.Tensor, types: Mapping[str, Any]) -> torch.Tensor:
    """Return the indices of the elements of which a part of a fact does not hold."""
    found = DISTINCT.fullmatch(part)
    if found:
        _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
        several = counts[inverse] > 1
        return (several & (values != int(found[1])) if found[1] else several).nonzero().flatten()
    names = {**types, "v": values.to(torch.int64), "i": torch.arange(len(values))}
    holds = Expression.of(where, _for_tensors(where, part))(names)
    return (~torch.as_tensor(holds).expand(len(values))).nonzero().flatten()


def _for_tensors(where: str, part: str) -> str:
    """Return a condition in which ``and``, ``or`` and chains of comparisons work on tensors."""
    try:
        tree = ast.parse(part, mode="eval")
    except SyntaxError as error:
        allowed = f'"distinct", or a condition such as "0 <= v < x.shape[0]" ({error.msg})'
        raise ArgumentError(where, repr(part), allowed, "Correct it.") from error
    return ast.unparse(ast.fix_missing_locations(_Elementwise().visit(tree)))


class _Elementwise(ast.NodeTransformer):
    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        pairs: list[ast.expr] = [
            ast.Compare(one, [operator], [other])
            for one, operator, other in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return _joined(pairs, ast.BitAnd())

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return _joined([self.visit(one) for one in node.values], operator)


def _joined(several: list[ast.expr], operator: ast.operator) -> ast.expr:
    found = several[0]
    for one in several[1:]:
        found = ast.BinOp(found, operator, one)
    return found
