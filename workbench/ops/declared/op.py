"""``@wb.op``: a reference in plain torch becomes an op, with cases and kernels of one's own."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from workbench.errors import ArgumentError, UnknownNameError
from workbench.ops import tuned, values
from workbench.ops.declared.calls import Calls
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.contract import Contract, check_reference, several_of
from workbench.ops.declared.cuda import cuda
from workbench.ops.declared.launching import AnyDtype
from workbench.ops.declared.problem import DeclaredProblem, DeclaredTensors
from workbench.ops.declared.triton import triton
from workbench.ops.described_op import DescribedOp, OpDescription
from workbench.ops.library_op import LibraryOp
from workbench.ops.op import Op
from workbench.ops.source_files import digest, written_in
from workbench.ops.tensors.run_tensors import RunTensors
from workbench.ops.variant import TorchVariant, Variant

NAMESPACE = "workbench_own"
"""Default namespace of declared ops under ``torch.ops``."""

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made", bound=Variant)


def _declares(
    make: Callable[Concatenate[Contract, _Given], _Made],
) -> Callable[Concatenate[DeclaredOp, _Given], _Made]:
    """Return a method that adds the variant made by ``make`` to an op; it takes the arguments of ``make``."""

    @functools.wraps(make)
    def declare(self: DeclaredOp, /, *args: _Given.args, **given: _Given.kwargs) -> _Made:
        return self._add(make(self.contract, *args, **given))

    return declare


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredTorch(TorchVariant):
    """The reference, or another function of plain torch, as a variant."""

    function: Callable
    of_contract: Callable = field(repr=False)

    @property
    def is_reference(self) -> bool:  # type: ignore[override]  # a constant of the other variants
        """True for the op's reference itself."""
        return self.function is self.of_contract

    @property
    def files(self) -> tuple[Path, ...]:
        """File or cell of the function."""
        return tuple(written_in([self.function]))

    @property
    def source_hash(self) -> str:
        """Hex digest of the function's file or cell."""
        return digest(self.files)

    def torch_call(self, case: values.Case, device: str = "cpu") -> tuple[Callable, Mapping[str, Any]]:
        """Return the function with its arguments of a case."""
        return self.function, case.inputs(case.problem(), device).arguments


class DeclaredOp(Op):
    """An op of one's own, called like its reference, with all that built-in ops have.

    ``op(x)`` runs the tuned kernel on a GPU, plain torch on CPU tensors; ``op(x, variant="...")`` a variant by name, on
    CPU tensors in the PTX machine. ``contract`` has the reference, ``backward`` gives gradients, or is None.
    """

    cases: Mapping[str, DeclaredCase]
    reference = "torch"

    def __init__(self, contract: Contract, backward: Callable | None):
        self.contract, self.backward = contract, backward
        reference = torch_variant(contract, contract.function, "torch", "the reference, in plain torch")
        super().__init__(contract.name, (reference,), {}, self.__call__)
        self._library_op = LibraryOp(self, Calls(contract), NAMESPACE, backward)
        self.__doc__ = contract.function.__doc__ or self.__doc__
        self.__name__ = contract.name

    def __reduce__(self) -> tuple:
        own = tuple(replace(one) for one in self.variants if one.name != "torch")  # without kernels that they remember
        return _restored, (self.contract, self.backward, own, dict(self.cases))

    def torch_call(self, case: values.Case, device: str = "cpu") -> tuple[Callable, Mapping[str, Any]]:
        """Return the reference with its arguments of a case."""
        return self.contract.function, case.inputs(case.problem(), device).arguments

    # -- declaring ----------------------------------------------------------------------------------------------

    def case(self, name: str | values.Case | None, *, seed: int | None = None, **given: Any) -> DeclaredCase:
        """Declare a case, with the arguments of the op; or find one by name, with some of its fields changed.

        An argument that a new case leaves out has the default of the reference's signature.

        Args:
            name: name of the case; None finds the first one.
            seed: seed of the random numbers.
            given: for each argument of the op `wb.randn`, `wb.rand`, `wb.randint`, `wb.full`, a function of the sizes
                and ``generator``, or a plain number. Any other name is a size that these may use. A size of several
                values, ``cols=(1024, 8192)``, declares a case for each, such as ``"wide cols=1024"``.

        Returns:
            The case; the first one if several are declared.
        """
        defaults = self.contract.defaults
        missing = [one for one in self.contract.parameters if one not in given and one not in defaults]
        stated = set(self.contract.parameters) & set(given)
        if not isinstance(name, str) or missing or not stated:
            changes = given if seed is None else given | {"seed": seed}
            if isinstance(name, str) and name not in self.cases and changes:
                lacking = missing or list(self.contract.parameters)
                remedy = f"A new case has each of them: {lacking[0]}=wb.randn(...)."
                if self.cases:
                    remedy += f" To change one that is declared, name it: {', '.join(self.cases)}."
                allowed = "every argument of the op that has no default" if missing else "an argument of the op"
                raise ArgumentError(f"case {name!r}", f"nothing for {', '.join(lacking)}", allowed, remedy)
            found: Any = super().case(name, **changes)
            return found
        inputs = {one: given[one] if one in given else defaults[one] for one in self.contract.parameters}
        sizes = {one: value for one, value in given.items() if one not in inputs}
        made = [
            DeclaredCase(self.contract, " ".join([name, *label]), inputs, chosen, seed or 0)
            for chosen, label in _each(sizes)
        ]
        for one in made:
            problem = one.problem()  # reports arguments that do not fit each other when they are declared
            self._library_op.of(dict(problem.arguments), len(problem.outputs))
            self.contract.take_sizes(one.given)
        self.cases = {**self.cases, **{one.name: one for one in made}}
        return made[0]

    cuda = _declares(cuda)
    triton = _declares(triton)

    def torch(self, function: Callable, *, name: str | None = None, idea: str = "") -> Variant:
        """Declare a variant in plain torch: a function of the op's arguments, from ``torch.compile`` or not."""
        label = str(name or getattr(function, "__name__", "torch_function"))
        return self._add(torch_variant(self.contract, function, label, idea or "plain torch"))

    def _add(self, variant: _Made) -> _Made:
        if variant.name == "torch":
            remedy = "Name it something else: name=..."
            raise ArgumentError("name", "'torch'", "a name that the reference does not have", remedy)
        self._check(variant)
        kept = [one for one in self.variants if one.name != variant.name]
        self.variants = (*kept, variant)
        tuned.forget()
        return variant

    def _check(self, variant: Variant) -> None:
        """Try a declaration on the first case, to raise errors of unknown names or without a legal configuration."""
        if self.cases and variant.compiles:
            problem = self.quick_case.problem()
            config = variant.default_config(problem)
            variant.broken(config, problem)
            variant.launches(config, problem, self.quick_case.inputs(problem))
            variant.code_key(config, problem)

    # -- using --------------------------------------------------------------------------------------------------

    def __call__(
        self, *args: Any, variant: str = "auto", config: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Return what the reference returns, computed by a variant.

        A kernel takes a tensor that is not contiguous if it is declared with the tensor's strides or ``contiguous=``;
        otherwise the call raises ArgumentError. No argument may share memory with another one that the call writes.

        Args:
            *args: positional arguments of the reference.
            variant: "auto" (torch on the CPU, the tuned kernel on a GPU), "tuned", or a name.
            config: the configuration to use instead of the tuned or default one; needs a named variant.
            **kwargs: keyword arguments of the reference.
        """
        arguments = self.contract.bound(args, kwargs)
        devices = {name: value.device for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        if len(set(devices.values())) > 1:
            name, device = next(iter(devices.items()))
            other = next(key for key in devices if devices[key] != device)
            raise ArgumentError(other, f"device {devices[other]}", f"{device}, that of {name}", "Move it with .to().")
        return self._library_op(arguments, variant, config)

    def library_op(self, *args: Any, **kwargs: Any) -> Any:
        """Return the ``torch.library`` op for arguments like these, as `torch.library.opcheck` takes it.

        After these arguments, the op takes the name of a variant, and a configuration as JSON or None.
        """
        return self._library_op.of(self.contract.bound(args, kwargs))

    def export(self, path: str | Path, variant: str | None = None) -> Path:
        """Write a variant, by default the fastest tuned one, to a file of its own; see `workbench.ops.export`."""
        from workbench.ops.export import export

        return export(self, path, variant)

    @property
    def judged_cases(self) -> tuple[str, ...]:
        """Names of the cases by which variants are judged: all that are declared."""
        return tuple(self.cases)

    @property
    def module(self) -> ModuleType | None:
        """Module that defines the reference; None if it is not loaded."""
        return sys.modules.get(self.contract.function.__module__)

    @property
    def stated(self) -> str:
        """Text of the reference and the cases."""
        return "\n".join([self.contract.stated, ", ".join(str(one.to_dict()) for one in self.cases.values())])

    def bare(self) -> Callable[[], DeclaredOp]:
        """Return a function that makes the op with its reference and cases, without its other variants."""
        return functools.partial(_restored, self.contract, None, (), dict(self.cases))

    def compiled_by_torch(self, name: str) -> Variant:
        """Return the reference under ``torch.compile``, as a variant called ``name``."""
        function = torch.compile(self.contract.function)
        return torch_variant(self.contract, function, name, "the reference, compiled by torch")

    @property
    def quick_case(self) -> DeclaredCase:
        """First case that was declared. Raises ArgumentError if there is none."""
        if not self.cases:
            remedy = f'{self.name}.case("small", {self.contract.parameters[0]}=wb.randn(64, 64))'
            raise ArgumentError("case", f"none of {self.name}", "one or more cases", remedy)
        return next(iter(self.cases.values()))

    def restore_case(self, record: Mapping[str, Any]) -> DeclaredCase:
        """Return the declared case that a record describes.

        Raises UnknownNameError unless a case of that name has the record's inputs, sizes, seed and reference.
        """
        found = self.cases.get(record.get("name", ""))
        if found is None or found.to_dict() != dict(record):
            listed = ", ".join(self.cases) or "none"
            remedy = "It was declared otherwise then: inputs, sizes, seed and reference must be the same."
            raise UnknownNameError("case", repr(record.get("name")), listed, remedy)
        return found

    def __repr__(self) -> str:
        variants = ", ".join(one.name for one in self.variants)
        arguments, cases = ", ".join(self.contract.parameters), ", ".join(self.cases) or "none"
        return f"<op {self.name}({arguments}): {variants}; cases {cases}>"


def op(
    function: Callable | None = None,
    *,
    name: str | None = None,
    outputs: Sequence[str] | None = None,
    in_place: Sequence[str] = (),
    tolerance: float | Mapping[str, float] | None = None,
    minimum_bytes: Callable | None = None,
    backward: Callable | None = None,
    facts: Mapping[str, str] | None = None,
    exact_sizes: bool = False,
    tensors: type[RunTensors] | None = None,
    like: str | Callable = "",
    make: Callable | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
) -> Any:
    """Make an op of a reference: a function in plain torch, which defines what every variant has to compute.

    Called with float64 arguments, the reference gives the answer that kernels are judged by; called with arguments of a
    case, it gives the result's shape and dtype.

    With ``tensors``, the function is a description instead, ``(tensors, **options) -> problem``. It raises errors of
    its own for tensors that cannot be used. It returns a frozen dataclass that says what kernels are compiled and
    launched for: ``layout``, ``dtype``, ``features``, ``arch`` and the sizes that rules name. The op's variants
    (`workbench.ops.variant`) and its cases, which know the answer, are values that ``op.add(...)`` adds. A case's
    problem may depend on a configuration, such as on a page size that is tuned.

    Args:
        function: the reference or the description; ``op`` is a decorator of it.
        name: name of the op; default that of the function.
        outputs: names of the results; default ``out``, or ``out0``, ``out1``, ... for several. With ``tensors``, the
            fields that a call returns; default none.
        in_place: names of the arguments that it writes, as torch's own in-place functions do.
        tolerance: the relative error that counts as rounding, a number or by dtype; default
            `workbench.ops.declared.contract.TOLERANCE`.
        minimum_bytes: function of the arguments that returns the bytes that must cross memory; default those of the
            inputs and outputs.
        backward: function ``(gradient of each output, each output, **arguments)`` that returns the gradients of the
            tensor arguments.
        facts: by argument, what holds for its elements ``v`` at ``i``, such as ``{"index": "0 <= v < x.shape[0]"}`` or
            ``"distinct or -1"``: `wb.prove` relies on it, and every run on the simulator checks it.
        exact_sizes: True if kernels may rely on the sizes of the cases; otherwise the judge tries others, too.
        tensors: dataclass of `RunTensors`, whose fields are the arguments, except those that are `made` for a run.
        like: name of the field that tells the device and has no elements if there is nothing to do, or a function of
            the tensors that returns such a tensor; default the first field.
        make: function of the tensors that fills in the fields made for a run, or returns what kernels get instead.
        labels: names of fields in messages, where they differ from the fields' own.
        namespace: namespace of the op under ``torch.ops``.

    Raises:
        ArgumentError: the function cannot be a reference, or the name is not an identifier or that of a package's op.
    """
    if function is None:
        given = {key: value for key, value in locals().items() if key != "function"}
        return lambda decorated: op(decorated, **given)
    from workbench.ops import registry

    written = (in_place,) if isinstance(in_place, str) else tuple(in_place)
    name = name or function.__name__
    if not (isinstance(name, str) and name.isascii() and name.isidentifier()):
        raise ArgumentError("name", repr(name), "a name in letters, digits and underscores", 'Pass it as name="...".')
    if tensors is not None:
        if tolerance is not None or minimum_bytes is not None:
            remedy = "The cases of a described op say what is right, and what must cross memory."
            raise ArgumentError("tolerance, minimum_bytes", "a value", "None with tensors=", remedy)
        returned, shown = tuple(outputs or ()), dict(labels or {})
        description = OpDescription(name, function, tensors, written, like, make, returned, shown)
        made: Op = DescribedOp(description, namespace, backward)
    else:
        check_reference(function, written)
        for unknown in (facts or {}).keys() - inspect.signature(function).parameters.keys():
            known = ", ".join(inspect.signature(function).parameters)
            raise UnknownNameError("facts", repr(unknown), known, "Name an argument of the reference.")
        named = None if outputs is None else tuple(outputs)
        judged_by = tolerance, minimum_bytes, dict(facts or {}), exact_sizes
        made = DeclaredOp(Contract(name, function, named, written, *judged_by), backward)
    tuned.forget()  # answers for an older op of that name
    return registry.register(made, function.__module__)


def torch_variant(contract: Contract, function: Callable, name: str, idea: str) -> DeclaredTorch:
    """Return a variant that computes with a function of the op's arguments in plain torch."""

    def compute(problem: DeclaredProblem, tensors: DeclaredTensors) -> None:
        returned = function(**tensors.arguments)
        for out, one in zip(tensors.outputs.values(), several_of(returned), strict=True):
            out.copy_(one)

    source = inspect.getsourcefile(inspect.unwrap(function)) if callable(function) else None
    return DeclaredTorch(
        op=contract.name,
        name=name,
        idea=idea,
        layouts=("any",),
        dtypes=AnyDtype(),
        source=Path(source or "<unknown>"),
        compute=compute,
        function=function,
        of_contract=contract.function,
    )


def _restored(
    contract: Contract, backward: Callable | None, variants: Sequence[Variant], cases: Mapping[str, DeclaredCase]
) -> DeclaredOp:
    """Make an op from the parts that were pickled."""
    op = DeclaredOp(contract, backward)
    op.cases, op.variants = cases, (*op.variants, *variants)
    return op


def _each(sizes: Mapping[str, Any]) -> list[tuple[dict[str, int], list[str]]]:
    """Return every combination of the sizes' values, with labels such as ``cols=1024`` that tell it from the others."""
    found: list[tuple[dict[str, int], list[str]]] = [({}, [])]
    for name, value in sizes.items():
        several = isinstance(value, tuple | list)
        found = [
            (chosen | {name: one}, [*label, *([f"{name}={one}"] if several else [])])
            for chosen, label in found
            for one in (value if several else [value])
        ]
    return found
