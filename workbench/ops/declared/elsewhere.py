"""Cases of a declared op at other values than they declare: of other magnitudes, and of other structures.

A kernel may be right on every drawn input and wrong on one that occurs: an exponential overflows, a masked lane of 0
wins over a row of negative numbers, two equal maxima are both counted, a variance cancels for a large mean, two threads
add to the same index. An op may not be meant for such values, so its results are judged leniently. What the reference,
computed in the inputs' own types, does not give either is not compared, and neither is an input or answer that is not
finite in its type, unless the change is about these. An element may also be wrong by a multiple of how far the exact
answer moves when inputs change in their last place, of the error of the reference in the inputs' own types, and of the
smallest normal number, so that a kernel may flush what is smaller to zero.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.tensors.checks import real_parts
from workbench.ops.tensors.data_facts import check_facts
from workbench.ops.tensors.inputs import Input
from workbench.ops.values import Check


@dataclass(frozen=True)
class InputChange:
    """A change of all inputs of a case.

    ``words`` end the sentence "the same inputs, made ...". ``floats`` changes the elements of a floating-point input,
    given in float64 with the limits of its type; ``integers`` those of an input of `workbench.randint`, given with the
    least and the largest that it may have. Rows are along the last dimension; what is about rows leaves complex inputs
    as they are. With ``special`` answers that are NaN or infinite are compared, too.
    """

    words: str
    floats: Callable[[torch.Tensor, torch.finfo], torch.Tensor] | None = None
    integers: Callable[[torch.Tensor, int, int], torch.Tensor] | None = None
    rows: bool = True
    special: bool = False


def _constant(values: torch.Tensor) -> torch.Tensor:
    """Return rows that have their first element everywhere."""
    return values[..., :1].expand_as(values) if values.dim() else values


def _tied(values: torch.Tensor) -> torch.Tensor:
    """Return rows whose upper half is the median, so that each maximum occurs several times."""
    return values.minimum(values.median(-1, keepdim=True).values) if values.dim() and values.numel() else values


def _one_hot(values: torch.Tensor) -> torch.Tensor:
    """Return rows of zeros but for one element, in another column of each row."""
    if not values.dim() or not values.numel():
        return values
    columns = torch.arange(values[..., 0].numel()) * 7 % values.shape[-1]
    kept = torch.zeros(values.shape, dtype=torch.bool).reshape(-1, values.shape[-1])
    kept[torch.arange(len(columns)), columns] = True
    return values.where(kept.reshape(values.shape), 0.0)


def _with(values: torch.Tensor, number: float) -> torch.Tensor:
    """Return rows with a number in the place of one element, in every second row."""
    changed = values.clone()
    if values.dim() and values.numel():
        flat = changed.view(-1, values.shape[-1])
        flat[::2, values.shape[-1] // 2] = number
    return changed


def _first_row(values: torch.Tensor, number: float) -> torch.Tensor:
    """Return the values with the first row, of a vector the first half, of one number."""
    changed = values.clone()
    if values.dim() > 1 and values.numel():
        changed.view(-1, values.shape[-1])[0] = number
    elif values.dim():
        changed[: len(values) // 2] = number
    return changed


def _denormal(values: torch.Tensor, limits: torch.finfo) -> torch.Tensor:
    """Return values below the smallest normal number of the type, every fourth of them -0."""
    changed = values.clamp(-4, 4) * (limits.tiny / 8)
    changed.view(-1)[::4] = -0.0
    return changed


CHANGES: Mapping[str, InputChange] = {
    "x100": InputChange("100 times as large", lambda values, _: values * 100, rows=False),
    "x10000": InputChange("10,000 times as large", lambda values, _: values * 10_000, rows=False),
    "negative": InputChange("negative", lambda values, _: -values.abs(), rows=False),
    "zero": InputChange("zero", lambda values, _: torch.zeros_like(values), rows=False),
    "constant": InputChange("equal along each row", lambda values, _: _constant(values)),
    "tied": InputChange("tied, the upper half of each row equal", lambda values, _: _tied(values)),
    "sorted": InputChange("sorted along each row", lambda values, _: values.sort(-1).values),
    "one_hot": InputChange("zero but for one element of each row", lambda values, _: _one_hot(values)),
    "large_mean": InputChange("large with a small spread", lambda values, _: values + 1000 * values.std()),
    "heavy_tails": InputChange("heavy-tailed", lambda values, _: values**5, rows=False),
    "denormal": InputChange("denormal, some of them -0", lambda values, limits: _denormal(values.contiguous(), limits)),
    "nan": InputChange("NaN in a place of every second row", lambda values, _: _with(values, torch.nan), special=True),
    "inf": InputChange("infinite in a place of every second row", lambda v, _: _with(v, torch.inf), special=True),
    "minus_inf": InputChange("-inf in the whole first row", lambda v, _: _first_row(v, -torch.inf), special=True),
    "repeated": InputChange("one index again and again", None, lambda i, *_: i.flatten()[:1].expand(i.shape).clone()),
    "skewed": InputChange("few of the indices most of the time", None, lambda i, low, _: low + _skewed(i - low)),
    "extreme": InputChange("the least and the largest index", None, lambda i, low, high: _extremes(i, low, high)),
}
"""Changes of inputs by name."""

_NUDGES = 3
_SLACK = 16.0


def _skewed(indices: torch.Tensor) -> torch.Tensor:
    """Return indices from 0 on of which the small ones occur most, about as by Zipf's law."""
    most = int(indices.max()) if indices.numel() else 0
    drawn = torch.linspace(0, 1, max(indices.numel(), 1), dtype=torch.float64)[: indices.numel()]
    ranks = torch.exp(drawn * torch.log(torch.tensor(most + 1.0, dtype=torch.float64))) - 1
    mixed = torch.arange(indices.numel()) * 7919 % max(indices.numel(), 1)
    return ranks.floor().to(indices.dtype)[mixed].reshape(indices.shape)


def _extremes(indices: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """Return the least and the largest index in turns."""
    changed = torch.full_like(indices, high)
    changed.view(-1)[::2] = low
    return changed


class Meaningless(Exception):
    """Error of changed inputs for which the reference has no answer to compare a kernel with."""


@dataclass(frozen=True)
class _Comparison:
    """One output's exact answer, the elements that are compared, and the error that each may have.

    The parts of complex numbers are apart, in a further dimension.
    """

    exact: torch.Tensor
    comparable: torch.Tensor | None
    """The elements that are compared; None for all."""
    error: torch.Tensor
    """The largest error that each element may have where all are compared, else what it may have beyond its bound."""
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return self.exact.nbytes + self.error.nbytes + (0 if self.comparable is None else self.comparable.nbytes)


class Elsewhere:
    """A case of a declared op whose inputs are changed by one of `CHANGES`; its answers are computed once."""

    def __init__(self, case: Any, change: str):
        self.contract, self.seed = case.contract, case.seed
        self._case, self._change = case, CHANGES[change]

    def arguments(self) -> dict[str, Any]:
        """Return a copy of the op's changed arguments, with the same values each time."""
        return copy.deepcopy(self._arguments)

    def inputs(self, problem: DeclaredProblem, device: str = "cpu") -> DeclaredTensors:
        """Make fresh tensors for a run."""
        return problem.tensors(self.arguments(), self.contract.in_place, device)

    def require_meaning(self) -> None:
        """Raise `Meaningless` if no comparison with the reference makes sense on the changed inputs."""
        before, after = self._case.arguments(), self._arguments
        if all(_same(before[name], after[name]) for name in before):
            raise Meaningless("no input changes")
        try:
            check_facts(self.contract.facts, after)
        except ArgumentError as error:
            raise Meaningless(f"its facts exclude it: {error}") from error
        if not self._change.special and any(_finite(before[name]) and not _finite(after[name]) for name in before):
            raise Meaningless("an input is too large for its type")
        try:
            comparisons, usual = self._comparisons, self._case.reference()
        except Exception as error:
            raise Meaningless(f"the reference raises {type(error).__name__}") from error
        for name, one in comparisons.items() if not self._change.special else ():
            if _finite(usual[name]) and bool(one.exact.isnan().any()):
                raise Meaningless("the reference is not a number")
            if one.dtype.is_floating_point and not bool(one.exact.isfinite().any()):
                raise Meaningless("the reference is infinite")

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the inputs and answers that are kept."""
        tensors = [one for one in self._arguments.values() if isinstance(one, torch.Tensor)]
        return sum(one.nbytes for one in (*tensors, *self._comparisons.values()))

    def check(self, out: Mapping[str, torch.Tensor]) -> Check:
        """Compare elements for which the reference has an answer, within the ordinary bounds plus a slack.

        That is an answer that is finite in the output's type, where the reference in the inputs' own types is finite,
        too; of a special change also one that is NaN or infinite in both.
        """
        expected, slack, bounds = {}, {}, {}
        for name, one in self._comparisons.items():
            if one.comparable is None:
                expected[name], bounds[name] = one.exact, one.error
                continue
            got = real_parts(out[name].detach().cpu()).to(torch.float64)
            parts = torch.where(one.comparable, one.exact, got)
            expected[name] = torch.view_as_complex(parts.contiguous()) if one.dtype.is_complex else parts
            slack[name] = one.error
        return self.contract.check(out, expected, self._case.arithmetic, slack, bounds)

    @functools.cached_property
    def _arguments(self) -> dict[str, Any]:
        return self._made_from(self._case.arguments())

    @functools.cached_property
    def _comparisons(self) -> dict[str, _Comparison]:
        """Return the comparison of each output with the exact answer, and with those of inputs moved a little."""
        arguments = self.arguments()
        generator = torch.Generator().manual_seed(self.seed)
        nudged = [{n: _nudged(v, generator) for n, v in arguments.items()} for _ in range(_NUDGES)]
        answer, *moved = [self.contract.answer(arguments), *map(self.contract.answer, nudged)]
        native, dtypes = self._native(), self._case.result_types()
        found = {
            name: self._comparison(
                wanted, None if native is None else native[name], [m[name] for m in moved], dtypes[name]
            )
            for name, wanted in answer.items()
        }
        return {name: self._bounded(name, one, dtypes[name]) for name, one in found.items()}

    def _bounded(self, name: str, one: _Comparison, dtype: torch.dtype) -> _Comparison:
        """Return the comparison with the bound of each element, if it depends on no result; many results have it."""
        if one.dtype.is_complex or one.comparable is None or not bool(one.comparable.all()):
            return one
        bound = self.contract.allowed_error(name, dtype, one.exact, self._case.arithmetic, one.error)
        return replace(one, comparable=None, error=bound)

    def _comparison(
        self, wanted: torch.Tensor, native: torch.Tensor | None, moved: list[torch.Tensor], dtype: torch.dtype
    ) -> _Comparison:
        exact = real_parts(wanted.to(torch.complex128 if wanted.is_complex() else torch.float64))
        known = exact if native is None else real_parts(native).double()
        # Beyond the output's type the answer is infinite; what a kernel has there is as good as anything else.
        comparable = real_parts(wanted.to(dtype)).isfinite() & known.isfinite()
        if self._change.special:
            same = torch.where(exact.isnan(), known.isnan(), exact == known)
            comparable |= ~exact.isfinite() & same
        slack = torch.zeros_like(exact)
        for one in (*moved, known):
            slack = slack.maximum((real_parts(one).double() - exact).abs().nan_to_num(0.0, 0.0))
        flushed = torch.finfo(dtype).tiny if dtype.is_floating_point or dtype.is_complex else 0.0
        return _Comparison(exact, comparable, _SLACK * slack.clamp_min(flushed), wanted.dtype)

    def _native(self) -> dict[str, torch.Tensor] | None:
        """Return answers of the reference in the inputs' own types; None where it cannot compute in them here."""
        try:
            return self.contract.answer(self.arguments(), exact=False)
        except Exception:
            return None

    def _made_from(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._changed(name, value) for name, value in arguments.items()}

    def _changed(self, name: str, value: Any) -> Any:
        change, given = self._change, self._case.given[name]
        if not isinstance(value, torch.Tensor) or (isinstance(given, Input) and given.kind == "full"):
            return value
        if change.integers is not None and isinstance(given, Input) and given.kind == "randint":
            low, high = map(int, given.bounds)
            return change.integers(value, low, high - 1).contiguous()
        if change.floats is None or not (value.is_floating_point() or (value.is_complex() and not change.rows)):
            return value
        wide = torch.view_as_complex if value.is_complex() else lambda parts: parts
        changed = change.floats(real_parts(value).double(), torch.finfo(value.dtype))
        return wide(changed.contiguous()).to(value.dtype)


def _nudged(value: Any, generator: torch.Generator) -> Any:
    """Return a tensor in float64, each element moved up or down by the relative spacing of its dtype."""
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    parts = real_parts(value).double()
    signs = torch.randint(0, 2, parts.shape, generator=generator) * 2 - 1
    moved = parts * (1 + signs * torch.finfo(value.dtype).eps)
    return torch.view_as_complex(moved) if value.is_complex() else moved


def _same(one: Any, other: Any) -> bool:
    """Return True for equal values; a NaN makes tensors different, as no case declares one."""
    return not isinstance(one, torch.Tensor) or torch.equal(real_parts(one).double(), real_parts(other).double())


def _finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(real_parts(value).double().isfinite().all())
