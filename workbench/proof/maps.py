"""Tensor maps of a launch, whose tensors have symbols as sizes."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import ArgumentError
from workbench.proof.conditions import Predicate, at_most, both, zero
from workbench.proof.tensors import TensorArgument, bytes_of
from workbench.proof.terms import Term, remainder

MAP_BYTES, _ROW_UNIT, _MOST = 128, 16, 1 << 32
_OPTIONS = ("swizzle", "fill", "atom")
_EXAMPLE = "TensorMap(float16[m, k], [64, 64], swizzle=128)"


@dataclass(frozen=True)
class MapText:
    """A tensor map as it stands in the text of an argument: ``shape`` are formulas."""

    dtype: str
    shape: tuple[str, ...]
    box: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def of(self, name: str, number: Callable[[str, str], Term]) -> TensorMapArgument:
        """Return the map with the shape as terms; ``number`` reads a formula."""
        where = f"args[{name!r}]"
        shape = tuple(number(where, one) for one in self.shape)
        tensor = TensorArgument(name, self.dtype, shape, bytes_of(where, self.dtype))
        return TensorMapArgument(tensor, self.shape, self.box, self.options)


@dataclass(frozen=True)
class TensorMapArgument:
    """A map of a contiguous tensor, in boxes of ``box`` elements in the order of its shape; see `wb.TensorMap.of`."""

    tensor: TensorArgument
    words: tuple[str, ...]
    box: tuple[int, ...]
    options: dict[str, Any]

    @property
    def box_bytes(self) -> int:
        """Bytes of a box."""
        return math.prod(self.box) * self.tensor.element

    def facts(self) -> list[tuple[str, Predicate]]:
        """Return, with their words, what has to hold of the tensor so that there is such a map."""
        found = [
            (f"{text} <= 2**32", both(at_most(1, size), at_most(size, _MOST)))
            for text, size in zip(self.words, self.tensor.shape, strict=True)
        ]
        if len(self.words) > 1:
            unit = _ROW_UNIT // math.gcd(_ROW_UNIT, self.tensor.element)
            row = self.words[-1] if self.words[-1].isidentifier() else f"({self.words[-1]})"
            found.append((f"{row} % {unit} == 0", zero(remainder(self.tensor.shape[-1], unit))))
        return [(words, one) for words, one in found if one.kind != "true"]


def map_text(where: str, given: Any) -> MapText | None:
    """Read text such as ``TensorMap(float16[m, k], [64, 64])``; None for anything else. Raises ArgumentError."""
    if not isinstance(given, str) or not given.strip().startswith("TensorMap("):
        return None
    try:
        call = ast.parse(given.strip(), mode="eval").body
        assert isinstance(call, ast.Call)
        tensor, box = call.args
        assert isinstance(tensor, ast.Subscript)
        sizes = tensor.slice.elts if isinstance(tensor.slice, ast.Tuple) else [tensor.slice]
        extents = ast.literal_eval(box)
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        assert isinstance(extents, list | tuple)
        assert len(extents) == len(sizes)
        assert all(isinstance(one, int) and 1 <= one <= 256 for one in extents)
        assert set(options) <= set(_OPTIONS)
    except (SyntaxError, ValueError, AssertionError) as error:
        allowed = "a tensor and the extents of a box, 1 to 256 each"
        raise ArgumentError(where, repr(given), allowed, f'Write it as "{_EXAMPLE}".') from error
    return MapText(ast.unparse(tensor.value), tuple(map(ast.unparse, sizes)), tuple(extents), options)
