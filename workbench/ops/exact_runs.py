"""Runs of an op's variants on elements of a ring, for exact comparison with each other or with the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from workbench.analysis.exact import (
    APART,
    Beside,
    NoExactRule,
    OnElements,
    RingTensor,
    Side,
    beside_the_first,
    elements,
    is_float,
    opcodes_of,
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

    def compute(number: int, side: Side) -> Outputs:
        one = drawn(case, number)
        if isinstance(variant, TorchVariant):
            return _of_torch(variant, config, one, side)
        device = devices.simulator(arch or variant.machine_arch(one.problem()))
        problem = one.problem(config, arch=device.arch)
        tensors = one.inputs(problem)
        variant.run(config, problem, tensors, device, exact=True)
        if not side.opcodes:
            compiled = variant.kernels(config, problem, device.arch, machine_code=False)
            side.opcodes |= opcodes_of([machine_kernel(one) for one in compiled])
        return {name: elements(part) for name, part in _written(tensors).items()}

    return Side(compute)


def exact_column(case: Any, trials: Sequence[tuple[Variant, Trial]]) -> Iterator[Beside | None]:
    """Yield the answer for each trial on a case beside the first one; None for one that is not correct."""
    small = case.judged_on if isinstance(case, SampledCase) else case
    right = [(variant, trial) for variant, trial in trials if trial.ok]
    titles = (f"{one.variant} {one.config_text}" if one.config else one.variant for _, one in right)
    # On the simulator a trial has its architecture; of a GPU's trial the machine takes what the variant needs.
    sides = (side_of(one, trial.config, small, trial.arch if trial.device == "sim" else None) for one, trial in right)
    answers = beside_the_first(zip(titles, sides, strict=True))
    return (next(answers) if trial.ok else None for _, trial in trials)


def _of_torch(variant: TorchVariant, config: Config, case: Any, side: Side) -> Outputs:
    if isinstance(case, DeclaredCase):
        function = variant.function  # type: ignore[attr-defined]  # torch variants of declared ops have one
        contract = replace(case.contract, function=function)
        return results_of_reference(replace(case, contract=contract), side.operators)
    problem = case.problem(config)
    tensors = case.inputs(problem)
    if packed := bytes_of(tensors):
        side.doubt = f"{variant.name} computes with the bytes of {packed[0]} as plain numbers"
    return results_of_formula(variant, problem, tensors, side.operators)


def results_of_reference(
    case: DeclaredCase, used: set[str], replaced: Mapping[str, RingTensor] = MappingProxyType({})
) -> Outputs:
    """Return the results of a declared op's reference on elements; ``used`` collects the operators that compute.

    ``replaced`` has tensors to compute with in place of the case's.
    """
    given = {name: replaced[name] if name in replaced else ringed(one, used) for name, one in case.arguments().items()}
    with OnElements(used):
        answer = case.contract.answer(given, exact=False)
    return {name: result_of(one) for name, one in answer.items()}


def results_of_formula(
    formula: TorchVariant,
    problem: Any,
    tensors: Any,
    used: set[str],
    replaced: Mapping[str, RingTensor] = MappingProxyType({}),
) -> Outputs:
    """Return the results of a variant in plain torch on elements; arguments as of `results_of_reference`.

    Raises NoExactRule for outputs that are no floats.
    """
    written = _written(tensors)
    made: dict[tuple, RingTensor] = {}  # fields may be one tensor
    outputs: dict[str, RingTensor] = {}
    for name, one in vars(tensors).items():
        if is_float(one):
            ring = replaced[name] if name in replaced else RingTensor.of(one, used)
            ring = made.setdefault(_extent_of(one), ring)
            setattr(tensors, name, ring)
            if name in written:
                outputs[name] = ring
    if not outputs:
        raise NoExactRule("its outputs are no floats")
    with OnElements(used):
        formula.compute(problem, tensors)
    return {name: raw(one) for name, one in outputs.items()}


def bytes_of(tensors: RunTensors) -> list[str]:
    """Return the names of tensors of bytes, whose numbers, such as NVFP4's, a formula makes of parts of a byte."""
    return [name for name, one in vars(tensors).items() if isinstance(one, torch.Tensor) and one.dtype == torch.uint8]


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
