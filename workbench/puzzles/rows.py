"""The puzzles about whole rows: softmax, and softmax in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workbench.ops.tensors.inputs import randn
from workbench.puzzles.drawing import BLANK, FACES, SHARED, Drawing, arrow, cells, label
from workbench.puzzles.elements import COALESCE, FAR_APART
from workbench.puzzles.signs import computes, wrong_only
from workbench.puzzles.task import Goal, Mistake, Puzzle, PuzzleLaunch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_THREADS = 128
_LANES = 32


# -- softmax ----------------------------------------------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    """Compute the softmax of every row."""
    return torch.softmax(x, dim=1)


def rows_at(*means: float) -> Callable:
    """Return a function that makes a matrix with a row around each mean."""

    def make(cols: int, generator: torch.Generator) -> Tensor:
        return torch.randn(len(means), cols, generator=generator) + torch.tensor(means)[:, None]

    return make


def _draw_softmax() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 4, 0.2, [98, 99, 101, 100], FACES[0], "x[r]")
        label(ax, 9, 0.7, "maximum 101", side="left")
        cells(ax, 4, 2.2, ["-3", "-2", "0", "-1"], SHARED, "x - max")
        label(ax, 9, 2.7, "exp(101) would be infinite, exp(0) is 1", side="left")
        cells(ax, 4, 4.2, [".05", ".14", "1", ".37"], SHARED, "exp")
        label(ax, 9, 4.7, "sum 1.55", side="left")
        cells(ax, 4, 6.2, [".03", ".09", ".64", ".24"], FACES[2], "out[r]")
        for top in (1.2, 3.2, 5.2):
            for at in range(4):
                arrow(ax, (4.5 + at, top), (4.5 + at, top + 1))

    return Drawing("softmax of a row", "Two reductions over the row: the maximum first, then the sum.", 19, 7.5, paint)


SOFTMAX = Puzzle(
    name="softmax",
    claim="out[r, c] = exp(x[r, c] - max(x[r])) / sum of them over the row",
    spec=softmax,
    parameters=("out", "x", "cols"),
    inputs={"x": rows_at(100.0, -200.0, 0.0)},
    sizes=({"cols": 100}, {"cols": 300}),
    launches={
        "CUDA": PuzzleLaunch(("3",), (128,)),
        "Triton": PuzzleLaunch(("3",), constants={"BLOCK": "512"}),
    },
    goals=(
        Goal("global_sectors", 520, FAR_APART, COALESCE, ("CUDA",)),
        Goal("global_sectors", 260, FAR_APART, COALESCE, ("Triton",)),
    ),
    mistakes=(
        Mistake(
            "maximum not subtracted",
            computes(
                lambda x: x.exp() / x.exp().sum(1, keepdim=True),
                lambda x: x.exp() / (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True),
            ),
            "exp(100) is infinite in float32 and exp(-200) is 0, so that the quotient is NaN. Subtract the row's "
            "maximum first: the quotient is the same, and no exponential is above 1.",
        ),
        Mistake(
            "not divided by the sum",
            computes(lambda x: (x - x.amax(1, keepdim=True)).exp()),
            "A row adds up to more than 1: divide each exponential by the sum of the row's.",
        ),
        Mistake(
            "maximum that starts at 0",
            wrong_only(lambda x: x.amax(1, keepdim=True) < 0),
            "Only a row of negative numbers is wrong: its maximum is below 0. Begin the maximum with -INFINITY, and in "
            "Triton let the masked elements be other=-float('inf').",
        ),
        Mistake(
            "masked columns counted",
            computes(lambda x, cols: torch.softmax(torch.nn.functional.pad(x, (0, 512 - cols)), 1)[:, :cols]),
            "The masked elements are 0 and take part in maximum and sum, with exp(0 - maximum). Load them with "
            "other=-float('inf'): exp makes 0 of that.",
        ),
        Mistake(
            "only the last 128 columns in the sum",
            computes(lambda x: (x - _top(x)).exp() / (x[:, -_THREADS:] - _top(x)).exp().sum(1, keepdim=True)),
            "Each step of the loop replaces the sum of those before: add with +=.",
        ),
        Mistake(
            "columns after the first 128 left out of the sum",
            computes(lambda x: _over(x, x[:, :128])),
            "The sum and the maximum have to go over all columns of the row, in steps of 128 threads.",
        ),
    ),
    hints=(
        "First the maximum of the row, then the sum of exp(x - maximum), then the quotients. Both are reductions, as "
        "in puzzle 5: each thread over its columns, then the threads in shared memory.",
        "Begin the maximum with -INFINITY, not 0: a row may be negative throughout. In Triton masked elements take "
        "part in tl.max and tl.sum: other=-float('inf') makes them 0 after exp.",
        "If one array in shared memory serves both reductions, a barrier has to stand between the last read of the "
        "maximum and the first write of the sums.",
    ),
    draw=_draw_softmax,
)


def _top(x: Tensor) -> Tensor:
    return x.amax(1, keepdim=True)


def _over(x: Tensor, part: Tensor) -> Tensor:
    """Return the exponentials of ``x`` over the sum of those of ``part``."""
    top = part.amax(1, keepdim=True)
    return (x - top).exp() / (part - top).exp().sum(1, keepdim=True)


# -- online softmax ---------------------------------------------------------------------------------------------


def weighted_mean(x: Tensor, v: Tensor) -> Tensor:
    """Compute the mean of v, weighted by the softmax of every row."""
    return torch.softmax(x, dim=1) @ v


def _four_rows(cols: int, generator: torch.Generator) -> Tensor:
    """Return a row that falls, one that rises, one far below zero and a random one."""
    noise = torch.randn(2, cols, generator=generator)
    slope = torch.linspace(0, 40, cols)
    return torch.stack([40 - slope, slope, noise[0] - 200, noise[1]])


def _lanes_unscaled(x: Tensor, v: Tensor) -> Tensor:
    """Compute the mean with lanes that are added without regard to their maxima."""
    x = torch.nn.functional.pad(x, (0, -x.shape[1] % _LANES), value=-torch.inf)
    v = torch.nn.functional.pad(v, (0, -len(v) % _LANES))
    lanes = x.view(len(x), -1, _LANES)
    weights = (lanes - lanes.amax(1, keepdim=True)).exp()
    return (weights * v.view(-1, _LANES)).sum((1, 2)) / weights.sum((1, 2))


def _unscaled(width: int, together: bool, keeps_sum: bool, keeps_weighted: bool) -> Callable:
    """Return the mistaken pass that does not rescale the sum, the weighted sum, or both.

    A step has ``width`` columns. With ``together`` they have one maximum, as in Triton; else each has its own, and
    rightly added up at the end.
    """

    def mean(x: Tensor, v: Tensor) -> Tensor:
        more = -x.shape[1] % width
        steps = torch.nn.functional.pad(x, (0, more), value=-torch.inf).view(len(x), -1, width)
        values = torch.nn.functional.pad(v, (0, more)).view(-1, width)
        top = torch.full((len(x), 1 if together else width), -torch.inf)
        total, weighted = torch.zeros_like(top), torch.zeros_like(top)
        for now, value in zip(steps.unbind(1), values, strict=True):
            larger = torch.maximum(top, _top(now) if together else now)
            shrink, weights = (top - larger).exp(), (now - larger).exp()
            gained = [weights, weights * value]
            if together:
                gained = [one.sum(1, keepdim=True) for one in gained]
            total = total * (1 if keeps_sum else shrink) + gained[0]
            weighted = weighted * (1 if keeps_weighted else shrink) + gained[1]
            top = larger
        factor = (top - _top(top)).exp()
        return (weighted * factor).sum(1) / (total * factor).sum(1)

    return mean


def _every(step: int) -> Callable:
    """Return the mean of every ``step``-th column alone."""
    return lambda x, v: weighted_mean(x[:, ::step], v[::step])


def _from_column(first: int, x: Tensor, v: Tensor) -> Tensor:
    """Return the mean of the columns from ``first`` on."""
    return weighted_mean(x[:, first:], v[first:])


def _padded_mean(x: Tensor, v: Tensor, more: int) -> Tensor:
    """Return the mean with columns of zeros behind the others."""
    return weighted_mean(torch.nn.functional.pad(x, (0, more)), torch.nn.functional.pad(v, (0, more)))


def _draw_online() -> Drawing:
    def paint(ax: Axes) -> None:
        cells(ax, 4, 0.2, [1, 3, 2, 5], [BLANK, BLANK, BLANK, FACES[1]], "x[r]")
        rows = [("max", ["1", "3", "3", "5"]), ("sum", ["1", "1.14", "1.50", "1.20"])]
        for top, (name, values) in zip((2.2, 3.7), rows, strict=True):
            cells(ax, 4, top, values, [SHARED, SHARED, SHARED, FACES[1]], name)
        arrow(ax, (7.5, 1.2), (7.5, 2.2))
        label(ax, 9, 0.7, "5 is larger than every number before:", side="left")
        label(ax, 9, 2.7, "the maximum grows from 3 to 5,", side="left")
        label(ax, 9, 4.2, "the old sum shrinks by exp(3 - 5) before 1 is added:", side="left")
        label(ax, 9, 5, "1.50 * 0.135 + 1 = 1.20", side="left")

    return Drawing("softmax in one pass", "The sum always belongs to the largest number so far.", 25, 5.8, paint)


ONLINE = Puzzle(
    name="online_softmax",
    claim="out[r] = softmax(x[r]) . v, each x read once",
    spec=weighted_mean,
    parameters=("out", "x", "v", "cols"),
    inputs={"x": _four_rows, "v": randn("cols", mean=2.0)},
    sizes=({"cols": 100}, {"cols": 1000}),
    launches={
        "CUDA": PuzzleLaunch(("4",), (_LANES,)),
        "Triton": PuzzleLaunch(("4",), constants={"BLOCK": "128"}),
    },
    goals=(
        Goal(
            "global_load_sectors",
            1100,
            "row read more than once",
            "The goal allows one pass over x and one over v. Keep maximum, sum and weighted sum together, and correct "
            "the two sums when the maximum grows.",
        ),
    ),
    mistakes=(
        Mistake(
            "old sums not rescaled",
            computes(
                *(
                    _unscaled(width, together, *kept)
                    for width, together in ((_LANES, False), (_THREADS, True), (1, False))
                    for kept in ((True, True), (True, False), (False, True))
                )
            ),
            "What was added under a smaller maximum is too large. Multiply both sums by exp(old maximum - new maximum) "
            "before the next number is added.",
        ),
        Mistake(
            "weights not multiplied by v",
            computes(lambda x: torch.ones(len(x))),
            "Both sums are the same, and their quotient is 1: the weighted sum adds exp(x - maximum) * v.",
        ),
        Mistake(
            "value of the lane, not of the column",
            computes(lambda x, v, cols: torch.softmax(x, 1) @ v[torch.arange(cols) % _LANES]),
            "The weight of column c belongs to v[c], not to v[threadIdx.x].",
        ),
        Mistake(
            "masked columns counted",
            computes(lambda x, v, cols: _padded_mean(x, v, -cols % _THREADS)),
            "The masked elements are 0 and take part in maximum and sum: load them with other=-float('inf').",
        ),
        Mistake(
            "maximum not kept",
            computes(lambda x, v, cols: _from_column((cols - 1) // _THREADS * _THREADS, x, v)),
            "The result is that of the last 128 columns: keep the larger maximum for the next step.",
        ),
        Mistake(
            "lanes left out",
            computes(*(_every(step) for step in (2, 4, 8, 16, 32))),
            "Not all 32 lanes are in the sum: exchange with the lanes 16, 8, 4, 2 and 1 away.",
        ),
        Mistake(
            "maximum that starts at 0",
            wrong_only(lambda x: x.amax(1) < 0),
            "Only a row far below zero is wrong. Begin the maximum with -INFINITY.",
        ),
        Mistake(
            "lanes added without rescaling",
            computes(_lanes_unscaled),
            "Each lane's sums belong to that lane's maximum. Bring both lanes to the larger maximum before you add.",
        ),
        Mistake(
            "not divided by the sum",
            computes(lambda x, v: (x - x.amax(1, keepdim=True)).exp() @ v),
            "Divide the weighted sum by the sum of the weights, at the end.",
        ),
    ),
    hints=(
        "A thread keeps three numbers: the maximum so far, the sum of exp(x - maximum), and the sum of "
        "exp(x - maximum) * v.",
        "For the next x: larger = max(maximum, x). Both sums are multiplied by exp(maximum - larger), then "
        "exp(x - larger), and that times v, are added. In Triton x is a block of 128 columns, and the sums are those "
        "of the block.",
        "CUDA: a warp has 32 such triples at the end. Two of them become one by the same rule: __shfl_xor_sync brings "
        "the other lane's three numbers, in steps of 16, 8, 4, 2, 1.",
    ),
    draw=_draw_online,
)


PUZZLES = (SOFTMAX, ONLINE)
