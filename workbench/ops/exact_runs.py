"""Runs of an op's variants on elements of a ring, for exact comparison with each other or with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from workbench.analysis.exact import (
    APART,
    Beside,
    NoExactRule,
    OnElements,
    RingTensor,
    Side,
    as_floats,
    beside_the_first,
    elements,
    is_float,
    raw,
    result_of,
    ringed,
)
from workbench.base.trials.trial import Trial
from workbench.launch import devices
from workbench.launch.sim import machine_kernel
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.problem import DeclaredTensors
from workbench.ops.sampled_case import SampledCase
from workbench.ops.tensors.inputs import Input
from workbench.ops.tensors.run_tensors import RunTensors, place_of
from workbench.ops.values import Case, Config
from workbench.ops.variant import TorchVariant, Variant

Outputs = dict[str, torch.Tensor]


def drawn(case: Any, number: int) -> Any:
    """Return a case with the inputs of a draw; draw 0 has the case's own."""
    return case.override(seed=case.seed + APART * number) if number else case


def side_of(variant: Variant, config: Config, case: Case, arch: str | None = None) -> Side:
    """Return a variant at a configuration on a case as one side of an exact comparison.

    Its kernels run in the PTX machine, whatever device it is compared on; ``arch`` is by default the first that has
    what the variant needs.
    """
    if isinstance(variant, TorchVariant):
        return reference_side(lambda number: _with_formula(drawn(case, number), variant), variant, config)

    def compute(number: int, given: Mapping[str, torch.Tensor], side: Side) -> Outputs:
        one = drawn(case, number)
        device = devices.simulator(arch or variant.machine_arch(one.problem()))
        problem = one.problem(config, arch=device.arch)
        tensors = one.inputs(problem)
        put(given, tensors.named())
        variant.run(config, problem, tensors, device, exact=True)
        if not side.opcodes:
            compiled = variant.kernels(config, problem, device.arch, machine_code=False)
            side.take_kernels([machine_kernel(one) for one in compiled])
        return {name: elements(part) for name, part in _written(tensors).items()}

    return Side(compute, lambda number: inputs_of(drawn(case, number), config), axes_of(case))


def reference_side(draw: Callable[[int], Any], formula: TorchVariant | None, config: Config) -> Side:
    """Return an op's reference as one side, on a case for each draw.

    Where the cases have no reference in torch it is the ``formula``, a variant in plain torch.
    """

    def compute(number: int, given: Mapping[str, torch.Tensor], side: Side) -> Outputs:
        case = draw(number)
        if isinstance(case, DeclaredCase):
            return _of_reference(case, side.operators, given)
        if formula is None:
            raise NoExactRule("the op has no variant in plain torch")
        tensors = case.inputs(case.problem(config))
        if packed := [name for name, one in vars(tensors).items() if getattr(one, "dtype", None) == torch.uint8]:
            side.doubt = f"{formula.name} computes with the bytes of {packed[0]} as plain numbers"
        return _of_formula(formula, case.problem(config), tensors, side.operators, given)

    return Side(compute, lambda number: inputs_of(draw(number), config), axes_of(draw(0)))


def inputs_of(case: Any, config: Config) -> Outputs:
    """Return the floats among a case's inputs, by name."""
    if isinstance(case, DeclaredCase):
        return {name: one for name, one in case.arguments().items() if is_float(one)}
    tensors = case.inputs(case.problem(config))
    judged = {place_of(one)[0] for one in tensors.judged().values()}
    given = {name: one for name, one in vars(tensors).items() if is_float(one) and place_of(one)[0] not in judged}
    first = {_extent_of(one): name for name, one in reversed(given.items())}  # fields may be one tensor
    return {name: one for name, one in given.items() if first[_extent_of(one)] == name}


def axes_of(case: Any) -> Mapping[str, Sequence[str]]:
    """Return the names of a case's sizes for the axes of its inputs."""
    given = case.given.items() if isinstance(case, DeclaredCase) else ()
    shapes = {name: one.shape for name, one in given if isinstance(one, Input)}
    return {name: [size if isinstance(size, str) else "" for size in shape] for name, shape in shapes.items()}


def put(given: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write inputs that are given, floats or elements, into a run's tensors of the same names."""
    for name, one in given.items():
        tensors[name].copy_(as_floats(one))


def exact_column(case: Any, trials: Sequence[tuple[Variant, Trial]]) -> Iterator[Beside | None]:
    """Yield the answer for each trial on a case beside the first one; None for one that is not correct."""
    small = case.judged_on if isinstance(case, SampledCase) else case
    right = [(variant, trial) for variant, trial in trials if trial.ok]
    titles = (f"{one.variant} {one.config_text}" if one.config else one.variant for _, one in right)
    # On the simulator a trial has its architecture; of a GPU's trial the machine takes what the variant needs.
    sides = (side_of(one, trial.config, small, trial.arch if trial.device == "sim" else None) for one, trial in right)
    answers = beside_the_first(zip(titles, sides, strict=True))
    return (next(answers) if trial.ok else None for _, trial in trials)


def _with_formula(case: Any, variant: TorchVariant) -> Any:
    """Return a declared op's case with a variant in torch as its reference; another case as it is."""
    if not isinstance(case, DeclaredCase):
        return case
    function = variant.function  # type: ignore[attr-defined]  # torch variants of declared ops have one
    return replace(case, contract=replace(case.contract, function=function))


def _of_reference(case: DeclaredCase, used: set[str], replaced: Mapping[str, torch.Tensor]) -> Outputs:
    """Return the results of a declared op's reference on elements; ``used`` collects the operators that compute.

    ``replaced`` has tensors to compute with in place of the case's.
    """
    given = {name: ringed(replaced.get(name, one), used) for name, one in case.arguments().items()}
    with OnElements(used):
        answer = case.contract.answer(given, exact=False)
    return {name: result_of(one) for name, one in answer.items()}


def _of_formula(
    formula: TorchVariant, problem: Any, tensors: Any, used: set[str], replaced: Mapping[str, torch.Tensor]
) -> Outputs:
    """Return the results of a variant in plain torch on elements; arguments as of `_of_reference`.

    Raises NoExactRule for outputs that are no floats.
    """
    written = _written(tensors)
    made: dict[tuple, RingTensor] = {}  # fields may be one tensor
    outputs: dict[str, RingTensor] = {}
    for name, one in vars(tensors).items():
        if is_float(one):
            ring = made.setdefault(_extent_of(one), ringed(replaced.get(name, one), used))
            setattr(tensors, name, ring)
            if name in written:
                outputs[name] = ring
    if not outputs:
        raise NoExactRule("its outputs are no floats")
    with OnElements(used):
        formula.compute(problem, tensors)
    return {name: raw(one) for name, one in outputs.items()}


def _written(tensors: RunTensors) -> dict[str, torch.Tensor]:
    """Return the tensors that a run writes, each once.

    What a case judges may be the bytes of several tensors: then they are those of floats in the same memory.
    """
    if isinstance(tensors, DeclaredTensors):
        return dict(tensors.judged())
    judged = {place_of(one)[0] for one in tensors.judged().values()}
    floats = {name: one for name, one in tensors.named().items() if one.is_floating_point()}
    found = {_extent_of(one): name for name, one in reversed(floats.items()) if place_of(one)[0] in judged}
    return {name: floats[name] for name in found.values()}


def _extent_of(one: torch.Tensor) -> tuple:
    return place_of(one), one.shape, one.stride()
