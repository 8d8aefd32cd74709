"""Contract of a declared op: its reference, the names of its arguments and outputs, the tolerance of its results."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from workbench.errors import ArgumentError
from workbench.ops.declared.arithmetic import NARROW, Arithmetic, Recorded, Rounded, beyond_rounding, unit
from workbench.ops.identity import stated
from workbench.ops.tensors.checks import dtype_name, element_name, real_parts
from workbench.ops.tensors.inputs import Input
from workbench.ops.tensors.tensor_type import TensorType
from workbench.ops.values import Check

TOLERANCE: Mapping[str, float] = {
    "float64": 1e-10, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "float8_e4m3fn": 0.13, "float8_e5m2": 0.26,
    "complex64": 2e-5, "complex128": 1e-10,
}  # fmt: skip
"""Largest relative error that counts as rounding, by the dtype of an output.

It is relative to the sum of an element's size and the output's root mean square: twice the rounding of one element, and
more for float32, whose sums round too. Integers must be exact. In complex numbers it holds for each part. Where the
sums of a reference are known, `workbench.ops.declared.arithmetic` adapts the bound to them.
"""


class Remade:
    """A dataclass that is pickled by its init fields alone, without values that it has cached since."""

    def __reduce__(self) -> tuple:
        given: Any = self
        return type(self), tuple(getattr(self, one.name) for one in fields(given) if one.init)


@dataclass(frozen=True, eq=False)
class Contract(Remade):
    """Reference of a declared op, with everything that its variants are judged by.

    Attributes:
        name: name of the op.
        function: the reference in plain torch; with float64 arguments it gives the known answer.
        outputs: names of the values that the reference returns; None for ``out``, or ``out0``, ``out1``, ...
        in_place: names of the arguments that the reference writes.
        tolerance: relative error that counts as rounding, one number or by dtype; None or a dtype left out stands for
            that of `TOLERANCE`.
        minimum_bytes: function of the arguments that returns the bytes that must cross memory; None counts inputs read
            once and outputs written once.
        facts: by argument, what holds for its elements; see `workbench.ops.tensors.data_facts`.
        exact_sizes: True if kernels may rely on the sizes of its cases.
    """

    name: str
    function: Callable
    outputs: tuple[str, ...] | None
    in_place: tuple[str, ...]
    tolerance: float | Mapping[str, float] | None
    minimum_bytes: Callable | None
    facts: Mapping[str, str] = field(default_factory=dict)
    exact_sizes: bool = False
    _types: dict = field(default_factory=dict, init=False, repr=False)
    _sizes: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """Signature of the reference, cached: `inspect.signature` takes longer than binding a call's arguments."""
        return inspect.signature(self.function)

    @functools.cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""
        return tuple(self.signature.parameters)

    @functools.cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Default of each argument that has one, by name."""
        named = self.signature.parameters.items()
        return {name: one.default for name, one in named if one.default is not one.empty}

    def bound(self, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with defaults for those left out.

        Raises TypeError for arguments that do not match the reference's signature, as a call of it does.
        """
        found = self.signature.bind(*args, **kwargs)
        found.apply_defaults()
        return dict(found.arguments)

    @functools.cached_property
    def stated(self) -> str:
        """Text of everything that decides whether a result is right."""
        return stated((self.function, self.outputs, self.in_place, self.tolerance))

    def take_sizes(self, given: Mapping[str, Any]) -> None:
        """Remember the numbers in the shapes of a case's inputs."""
        for name, one in given.items():
            for axis, size in enumerate(one.shape) if isinstance(one, Input) else ():
                if isinstance(size, int):
                    self._sizes[name, axis] = self._sizes.get((name, axis), frozenset()) | {size}

    def varies(self, name: str, axis: int) -> bool:
        """Return True if the cases so far have different numbers as the size of an input along an axis."""
        return len(self._sizes.get((name, axis), ())) > 1

    # -- outputs ------------------------------------------------------------------------------------------------

    def output_types(self, arguments: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, TensorType], ...]:
        """Return the name and type of each output for arguments of these types; torch finds them on ``meta`` tensors.

        Raises ArgumentError for a reference that returns no tensor, or whose shapes depend on values.
        """
        if arguments not in self._types:
            self._types[arguments] = self._find_types(dict(arguments))
        return self._types[arguments]

    def __reduce__(self) -> tuple:
        """Return the init fields and the output types found so far: finding them again would import much of torch."""
        return *super().__reduce__(), {"_types": dict(self._types), "_sizes": dict(self._sizes)}

    def _find_types(self, arguments: Mapping[str, Any]) -> tuple[tuple[str, TensorType], ...]:
        given = {n: v.empty("meta") if isinstance(v, TensorType) else v for n, v in arguments.items()}
        try:
            returned = self._returned(self.function(**given))
        except ArgumentError:
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            allowed = "plain torch whose shapes follow from those of its arguments"
            got = ", ".join(f"{name}: {value}" for name, value in arguments.items())
            raise ArgumentError(f"reference of {self.name}", f"{what} (for {got})", allowed, "Correct it.") from error
        return tuple(
            (name, TensorType.contiguous(dtype_name(one.dtype), tuple(one.shape)))
            for name, one in zip(self._names(len(returned)), returned, strict=True)
        )

    def _returned(self, value: Any) -> tuple[torch.Tensor, ...]:
        if value is None and self.in_place:
            return ()
        several = several_of(value)
        if not several or not all(isinstance(one, torch.Tensor) for one in several):
            got = "nothing" if value is None else type(value).__name__
            remedy = 'Return the result; or name what it writes, @wb.op(in_place=("x",)).'
            raise ArgumentError(f"reference of {self.name}", f"returns {got}", "a tensor or a tuple of tensors", remedy)
        return several

    def _names(self, count: int) -> tuple[str, ...]:
        if self.outputs is not None:
            if len(self.outputs) != count:
                what = f"{len(self.outputs)} names, {', '.join(self.outputs)}"
                remedy = f"The reference returns {count}."
                raise ArgumentError(f"outputs of {self.name}", what, f"{count} names", remedy)
            return self.outputs
        return ("out",) if count == 1 else tuple(f"out{index}" for index in range(count))

    # -- the answer ---------------------------------------------------------------------------------------------

    def answer(self, arguments: Mapping[str, Any], *, exact: bool = True) -> dict[str, torch.Tensor]:
        """Return the reference's results by name: its outputs, then the arguments that it writes.

        With ``exact``, real arguments are converted to float64 first, and complex ones to complex128.
        """
        given = {name: _wide(value) if exact else _copied(value) for name, value in arguments.items()}
        returned = self._returned(self.function(**given))
        found = dict(zip(self._names(len(returned)), returned, strict=True))
        return {name: one.detach() for name, one in (found | {name: given[name] for name in self.in_place}).items()}

    def recorded_answer(self, arguments: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], Arithmetic]:
        """Return the exact `answer`, and the arithmetic by which the reference computes it.

        A reference that torch's dispatch modes cannot record has unknown arithmetic: ``Arithmetic(exact=False)``.
        """
        noted = Arithmetic()
        try:
            with Recorded(noted):
                found = self.answer(arguments)
            narrow = {name: kind for name, kind in self.result_types(arguments).items() if kind in NARROW}
            for dtype in dict.fromkeys(narrow.values()) if noted.exact and noted.terms > 1 else ():
                with Rounded(dtype):
                    rounded = self.answer(arguments)
                noted.lost |= {
                    name: beyond_rounding(rounded[name].double(), found[name].double(), dtype)
                    for name, kind in narrow.items()
                    if kind == dtype
                }
        except Exception:  # a dispatch mode may fail on any operation; the next line raises the reference's own errors
            return self.answer(arguments), Arithmetic(exact=False)
        return found, noted

    def result_types(self, arguments: Mapping[str, Any]) -> dict[str, torch.dtype]:
        """Return the dtype of each result by name: that of the outputs, then that of the arguments it writes."""
        types = tuple((n, TensorType.of(v) if isinstance(v, torch.Tensor) else v) for n, v in arguments.items())
        kinds = [*self.output_types(types), *(one for one in types if one[0] in self.in_place)]
        return {name: getattr(torch, kind.dtype) for name, kind in kinds if isinstance(kind, TensorType)}

    def check(
        self,
        found: Mapping[str, torch.Tensor],
        expected: Mapping[str, torch.Tensor],
        arithmetic: Arithmetic | None = None,
        slack: Mapping[str, torch.Tensor] | None = None,
        bounds: Mapping[str, torch.Tensor] | None = None,
    ) -> Check:
        """Judge outputs by name; return the verdict on the worst one, with the place of its worst element.

        An element may be wrong by the tolerance times the sum of its own size and the output's root mean square. With
        the ``arithmetic`` of the reference the bound follows from its sums (`workbench.ops.declared.arithmetic`),
        unless the op states a tolerance. ``slack`` is added to the bound of each element. ``bounds`` are those of
        `allowed_error`, for outputs that are compared with the same answer again and again. Where the reference has
        NaN or infinity, the output must have the same.
        """
        more, known = slack or {}, bounds or {}
        checks = []
        for name, wanted in expected.items():
            got, exact = found[name], real_parts(wanted).double()
            if tuple(got.shape) != tuple(wanted.shape):
                raise ArgumentError(name, f"shape {tuple(got.shape)}", str(tuple(wanted.shape)), "Pass tensors.out.")
            bound = known.get(name)
            if bound is None:
                bound = self.allowed_error(name, got.dtype, exact, arithmetic, more.get(name))
            checks.append(_check_one(name, real_parts(got.detach().cpu()).double(), exact, bound))
        return max(checks, key=lambda check: (not check.ok, check.max_error / check.bound if check.bound else 0.0))

    def tolerance_of(self, dtype: str) -> float:
        """Return the relative error that is allowed in an output of a dtype."""
        if isinstance(self.tolerance, Mapping):
            return self.tolerance.get(dtype, TOLERANCE.get(dtype, 0.0))
        return TOLERANCE.get(dtype, 0.0) if self.tolerance is None else self.tolerance

    def allowed_error(
        self,
        name: str,
        kind: torch.dtype,
        wanted: torch.Tensor,
        arithmetic: Arithmetic | None,
        slack: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the largest error that each element may have, for an answer of real numbers in float64."""
        bound = self._bound(name, dtype_name(kind), wanted, arithmetic)
        return bound if slack is None else bound + real_parts(slack).double()

    def _bound(self, name: str, dtype: str, wanted: torch.Tensor, arithmetic: Arithmetic | None) -> torch.Tensor:
        magnitude = wanted.abs()
        size = float(wanted.flatten().square().mean().sqrt())
        if not math.isfinite(size):
            kept = wanted[wanted.isfinite()]
            size = float(kept.square().mean().sqrt()) if kept.numel() else 0.0
            magnitude = magnitude.nan_to_num(0.0, 0.0, 0.0)
        tolerance = self.tolerance_of(dtype)
        of_op = dtype in self.tolerance if isinstance(self.tolerance, Mapping) else self.tolerance is not None
        if arithmetic is None or of_op:
            return tolerance * (magnitude + size)
        if name in arithmetic.lost:
            lost = arithmetic.lost[name]
            rounding = unit(magnitude, getattr(torch, dtype)) + 2 * lost + 4 * lost.square().mean().sqrt()
            return rounding + max(arithmetic.of_sum, TOLERANCE["float32"]) * (magnitude + size)
        if dtype in ("float32", "complex64"):
            tolerance = max(tolerance, arithmetic.of_sum)
        return tolerance * (magnitude + size)


def _check_one(name: str, got: torch.Tensor, wanted: torch.Tensor, bound: torch.Tensor) -> Check:
    """Judge one output, in float64 as its answer and the largest error of each element."""
    error = (got - wanted).abs()
    if error.numel() == 0:
        return Check(0.0, 0.0, True)
    if not math.isfinite(float(error.sum())):
        same = torch.where(wanted.isnan(), got.isnan(), got == wanted)
        error = torch.where(same, 0.0, error.nan_to_num(math.inf, math.inf))
    within, typical = error <= bound, float(bound.square().mean().sqrt())
    if bool(within.all()):
        worst = int((error / bound.clamp_min(1e-300)).argmax())
        return Check(float(error.flatten()[worst]), float(bound.flatten()[worst]), True, "", typical)
    worst = int(torch.where(within, error / bound.clamp_min(1e-300), math.inf + error).argmax())
    wrong = error.flatten() > bound.flatten()
    if bool(wrong.any()):  # the largest error among the wrong ones
        worst = int(torch.where(wrong, error.flatten(), -1.0).argmax())
    place = element_name(name, wanted.shape, worst)
    values = f"{place} is {got.flatten()[worst]:.6g}, expected {wanted.flatten()[worst]:.6g}"
    count = int(wrong.sum())
    where = f"{values}; {count:,} of {error.numel():,} elements are wrong" if count else ""
    return Check(float(error.flatten()[worst]), float(bound.flatten()[worst]), not count, where, typical)


def several_of(returned: Any) -> tuple:
    """Return a function's result as a tuple: empty for None, of one element for a single value."""
    return () if returned is None else tuple(returned) if isinstance(returned, tuple | list) else (returned,)


def _wide(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    if value.is_complex():
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.is_floating_point() else value.clone()


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def check_reference(function: Any, in_place: Sequence[str]) -> None:
    """Raise ArgumentError unless a function can be a reference that writes the arguments ``in_place``."""
    if not inspect.isfunction(function):
        remedy = "Decorate the function itself: @wb.op above def."
        raise ArgumentError("wb.op", type(function).__name__, "a Python function", remedy)
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            remedy = "Name each of them: kernels take so many and no more."
            raise ArgumentError(f"reference {function.__name__}", f"*{parameter.name}", "named arguments", remedy)
        if parameter.kind == parameter.POSITIONAL_ONLY:
            what = f"{parameter.name!r}, which no caller may name"
            raise ArgumentError(f"reference {function.__name__}", what, "named arguments", "Leave the / out.")
    for name in in_place:
        if name not in parameters:
            remedy = "Name what the reference writes."
            raise ArgumentError("in_place", repr(name), ", ".join(parameters), remedy)
