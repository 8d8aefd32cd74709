"""Views of torch tensors, in memory that has neighbours, and ops that read and write them in both languages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import workbench as wb


class View(NamedTuple):
    """A tensor, and all of the memory that it is in."""

    tensor: torch.Tensor
    memory: torch.Tensor

    def neighbours(self) -> torch.Tensor:
        """The bytes of the memory that are no element's of the tensor."""
        outside = torch.ones_like(self.memory, dtype=torch.bool)
        tensor = self.tensor
        outside.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
        return self.memory[outside]


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


ROWS, COLS = 6, 8

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda m: m[: ROWS * COLS].view(ROWS, COLS),
    "rows from the middle": lambda m: m[: 4 * ROWS * COLS].view(4 * ROWS, COLS)[ROWS : 2 * ROWS],
    "an odd offset": lambda m: m[1 : ROWS * COLS + 1].view(ROWS, COLS),
    "transposed": lambda m: m[: ROWS * COLS].view(COLS, ROWS).t(),
    "sliced columns": lambda m: m[: ROWS * 3 * COLS].view(ROWS, 3 * COLS)[:, COLS : 2 * COLS],
    "every other row": lambda m: m[: 2 * ROWS * COLS].view(2 * ROWS, COLS)[::2],
    "every other column": lambda m: m[: 2 * ROWS * COLS].view(ROWS, 2 * COLS)[:, 1::2],
    "one row expanded": lambda m: m[:COLS].view(1, COLS).expand(ROWS, COLS),
    "one column expanded": lambda m: m[:ROWS].view(ROWS, 1).expand(ROWS, COLS),
    "windows that overlap": lambda m: m.as_strided((ROWS, COLS), (COLS // 2, 1), 3),
    "channels last": lambda m: m[: ROWS * COLS].view(2, 2, 3, 4).permute(0, 3, 1, 2),
    "heads of a fused projection": lambda m: m[: 3 * ROWS * COLS].view(3, 3 * 4, 4)[:, 4:8],
    "diagonal": lambda m: m[: ROWS * ROWS].view(ROWS, ROWS).diagonal(),
    "one element": lambda m: m[: ROWS * COLS].view(ROWS, COLS)[2, 3],
    "one row of a matrix": lambda m: m[: ROWS * 3 * COLS].view(ROWS, 3 * COLS)[2:3, COLS : 2 * COLS],
    "no rows": lambda m: m[: ROWS * COLS].view(ROWS, COLS)[:0],
}

PACKED = {"contiguous", "rows from the middle", "an odd offset", "one element", "one row of a matrix", "no rows"}
"""Views that a kernel without strides computes."""

MEET = {"one row expanded", "one column expanded", "windows that overlap"}
"""Views that nobody can write to."""

BY_ROWS = {*PACKED - {"one element"}, "sliced columns", "every other row", "one row expanded", "windows that overlap"}
"""Views that a kernel with ``x.stride(0)`` computes."""

MATRICES = {*BY_ROWS, "transposed", "every other column", "one column expanded"}
"""Views with two dimensions."""


def view(layout: str, device: str = "cpu") -> View:
    memory = _noise(640).to(device)
    return View(LAYOUTS[layout](memory), memory)


# -- the ops ----------------------------------------------------------------------------------------------------------

FLAT = r"""
extern "C" __global__ void flat_cuda(float *out, const float *x, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) out[i] = 2 * x[i] + 1;
}
"""
BY_STRIDES = r"""
extern "C" __global__ void rows_cuda(float *out, const float *x, int cols, int stride) {
    if (threadIdx.x < cols) out[blockIdx.x * OUT + threadIdx.x] = 2 * x[(size_t)blockIdx.x * stride + threadIdx.x] + 1;
}
extern "C" __global__ void both_cuda(float *out, const float *x, int cols, int row, int col) {
    if (threadIdx.x < cols) out[blockIdx.x * OUT + threadIdx.x] = 2 * x[blockIdx.x * row + threadIdx.x * col] + 1;
}
"""


@triton.jit
def flat_triton(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def rows_triton(out, x, cols, stride, out_stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(out + row * out_stride + i, 2 * tl.load(x + row * stride + i, mask=i < cols) + 1, mask=i < cols)


@wb.op(name="viewed")
def viewed(x):
    return 2 * x + 1


@wb.op(in_place=("x",), name="viewed_in_place")
def viewed_in_place(x):
    x.mul_(2).add_(1)


viewed.case("small", x=wb.randn(ROWS, COLS))
viewed_in_place.case("small", x=wb.randn(ROWS, COLS))

FORMS: dict[str, tuple[Any, dict[str, str]]] = {}
"""Variant -> its op, and how it fares with each layout of as many dimensions as its kernel has."""


def _declare(op: Any, target: str) -> None:
    writes = op is viewed_in_place
    no = MEET if writes else set()
    mark = "_in_place" if writes else ""
    flat: dict[str, Any] = {"sizes": lambda x: {"n": x.numel()}, "grid": "cdiv(n, 32)"}
    rows: dict[str, Any] = {"sizes": lambda x: {"rows": x.shape[0], "cols": x.shape[1]}, "grid": "rows"}
    triton_flat = {**flat, "tune": {"BLOCK": (32,)}, "args": (target, "x", "n")}
    out = f"{target}.stride(0)"
    declared: list[tuple[str, set[str], Callable[..., Any]]] = [
        ("flat", PACKED, lambda name: op.cuda(FLAT, name=name, block=32, args=(target, "x", "n"), **flat)),
        ("flat_triton", PACKED, lambda name: op.triton(flat_triton, name=name, **triton_flat)),
        ("copied", set(LAYOUTS), lambda name: op.cuda(
            FLAT, name=name, block=32, args=(target, "x", "n"), contiguous="x", **flat)),
        ("copied_triton", set(LAYOUTS), lambda name: op.triton(
            flat_triton, name=name, contiguous=True, **triton_flat)),
        ("rows", BY_ROWS, lambda name: op.cuda(
            BY_STRIDES, name=name, kernel="rows_cuda", block=32, macros={"OUT": out},
            args=(target, "x", "cols", "x.stride(0)"), **rows)),
        ("rows_triton", BY_ROWS, lambda name: op.triton(
            rows_triton, name=name, tune={"BLOCK": (32,)}, args=(target, "x", "cols", "x.stride(0)", out), **rows)),
    ]  # fmt: skip
    if not writes:
        declared.append(("both", MATRICES, lambda name: op.cuda(
            BY_STRIDES, name=name, kernel="both_cuda", block=32, macros={"OUT": "cols"},
            args=(target, "x", "cols", lambda x: x.stride()[0], "x.strides[-1]"), **rows)))  # fmt: skip
    for name, right, declare in declared:
        declare(f"{name}{mark}")
        known = LAYOUTS if "flat" in name or "copied" in name else MATRICES
        FORMS[f"{name}{mark}"] = op, {one: "right" if one in right - no else "refused" for one in known}


_declare(viewed, "out")
_declare(viewed_in_place, "x")


def outcome(call: Callable[[torch.Tensor], Any], given: View, *, writes: bool) -> str:
    """How a call fared: "right", "refused", or in words what is wrong."""
    tensor = given.tensor
    expected, before, neighbours = (2 * tensor + 1).cpu(), given.memory.clone(), given.neighbours()
    try:
        found = call(tensor)
    except ValueError as error:  # an ArgumentError, too
        if not str(error).startswith(("x: got strides", "x has strides")):
            return f"refused otherwise: {error}"
        return "refused" if torch.equal(given.memory, before) else "refused, and written"
    if not torch.equal(given.neighbours(), neighbours):
        return "a neighbour was written"
    if not writes and not torch.equal(given.memory, before):
        return "an input was written"
    found = tensor if writes else found
    same = found.shape == expected.shape and torch.allclose(found.cpu(), expected)
    return "right" if same else "wrong values"


EXPORTED = ("flat", "rows_triton", "both", "copied_in_place", "flat_triton_in_place", "rows_in_place")
"""The forms whose exported files are run: each costs a compilation on a GPU."""

PAIR = r"""
extern "C" __global__ void pair_rows(float *x, const float *y, int x_row, int y_row) {
    x[blockIdx.x * x_row + threadIdx.x] += y[blockIdx.x * y_row + threadIdx.x];
}
"""


@wb.op(in_place=("x",), name="viewed_pair")
def pair(x, y):
    x += y


pair.case("small", x=wb.randn(ROWS, COLS), y=wb.randn(ROWS, COLS))
pair.cuda(PAIR, grid="x.shape[0]", block="x.shape[1]", args={"x_row": "x.stride(0)", "y_row": "y.stride(0)"})

PAIRS = {
    "side by side": (slice(0, 8), slice(8, 16), "right"),
    "overlapping": (slice(0, 8), slice(4, 12), "refused"),
    "the same": (slice(0, 8), slice(0, 8), "refused"),
}
"""Two parts of the columns of a matrix, and how an op fares that adds the second to the first."""


def paired(call: Callable[[torch.Tensor, torch.Tensor], Any], columns: str, device: str = "cpu") -> str:
    """How a call fared."""
    first, second, _ = PAIRS[columns]
    fused = _noise(ROWS, 3 * COLS).to(device)
    expected = fused.clone()
    try:
        call(fused[:, first], fused[:, second])
    except ValueError as error:
        told = str(error).startswith(("x: got memory that y has too", "x is written, and shares memory with y"))
        return "refused" if told and torch.equal(fused, expected) else f"refused otherwise: {error}"
    expected[:, first] += expected[:, second]
    return "right" if torch.equal(fused, expected) else "wrong values"
