"""Two programs as the sides of an exact comparison, neither of which has to be a reference.

All exact comparisons are this one: those of the judge, of `wb.compare`, the tuner, puzzles and programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from workbench.analysis.exact.agreement import (
    LOGARITHMS,
    ExactAnswer,
    Part,
    Results,
    agreement,
    opcodes_of,
    part_of,
    roundings_of,
    unseen_by,
)
from workbench.analysis.exact.explanation import Explanation, explained
from workbench.analysis.exact.naming import ExactNames, constants_of
from workbench.analysis.exact.places import differences, places
from workbench.analysis.exact.probing import Inputs, Programs
from workbench.analysis.exact.ring import NoExactRule
from workbench.base.busy import OwnDeadline
from workbench.base.processes.deadline import Deadline
from workbench.errors import WorkbenchError
from workbench.ptx.findings import WITHOUT_RULE
from workbench.ptx.launch import PtxKernel

APART = 7919
"""Distance of the seeds of two draws of the inputs."""

SECONDS, _LAUNCHES = 15.0, 300
"""Limits of the explanation of a difference."""

_INSIDE = {"tanh.": "tanh", "ex2.": "exp2", "lg2.": "log2"}
"""Operators of torch that an instruction, by the beginning of its name, computes as well."""


@dataclass
class Side:
    """One side: a program whose results on elements are computed once for each draw of the inputs.

    Attributes:
        compute: number of a draw, inputs in place of its own by name, this -> elements of each output by name; calls
            `take_kernels` and adds to ``operators``.
        inputs: number of a draw -> its inputs of floats by name; None if they cannot be replaced.
        axes: names of an input's axes, by its name.
        called: what the program is called in words for a difference.
        elsewhere: True if it computes in another process, whose seconds the clock shows.
        operators: names of torch's operators that have computed.
        opcodes: names of the machine's instructions in the kernels that have run.
        constants: numbers in these kernels and their arguments.
        doubt: why a difference says nothing about this program, if so.
    """

    compute: Callable[[int, Inputs, Side], Results]
    inputs: Callable[[int], Inputs] | None = None
    axes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    called: str = "the first"
    elsewhere: bool = False
    operators: set[str] = field(default_factory=set)
    opcodes: set[str] = field(default_factory=set)
    constants: list[float] = field(default_factory=list)
    doubt: str = ""
    _draws: dict[int, Results] = field(default_factory=dict, repr=False)

    def take_kernels(self, kernels: Sequence[PtxKernel], passed: Iterable[float] = ()) -> None:
        """Remember the instructions of kernels of the machine, and the numbers in their code or passed to them.

        They are remembered the first time alone.
        """
        if not self.opcodes:
            self.opcodes |= opcodes_of(kernels)
            bodies = [one.module.text[one.entry.body_start : one.entry.body_end] for one in kernels]
            self.constants += dict.fromkeys([*(number for text in bodies for number in constants_of(text)), *passed])

    def draw(self, number: int) -> Results:
        """Return the results on a draw. Raises WorkbenchError where the program has none on elements."""
        if number not in self._draws:
            try:
                self._draws[number] = self.compute(number, {}, self)
            except WorkbenchError:
                raise
            except Exception as error:  # what a program in torch does with elements is not foreseen
                raise NoExactRule(f"it fails on elements: {type(error).__name__}: {error}") from error
        return self._draws[number]

    @property
    def functions(self) -> set[str]:
        """Names of torch's operators that have computed, or that an instruction stands for."""
        return self.operators | {_INSIDE[begin] for begin in _INSIDE for one in self.opcodes if one.startswith(begin)}


def compared(first: Side, other: Side, seconds: float = SECONDS) -> ExactAnswer:
    """Return whether two programs are the same computation; the words for a difference may take ``seconds``."""
    try:
        return _compared(first, other, seconds)
    except WorkbenchError as error:
        return ExactAnswer.without(cause_of(error))


def cause_of(error: WorkbenchError) -> str:
    """Return in one line why a program has no results on elements."""
    return cause_in(next(iter(str(error).splitlines()), ""))


def cause_in(message: str) -> str:
    """Return what a message says behind the words of the machine for code without a rule; else all of it."""
    _, found, cause = message.partition(f"{WITHOUT_RULE}: ")
    return cause if found else message


def _compared(first: Side, other: Side, seconds: float) -> ExactAnswer:
    wanted, found = first.draw(0), other.draw(0)
    names = wanted.keys() ^ found.keys()
    if names:
        return ExactAnswer.without(f"only one of the two has an output {sorted(names)[0]}")
    for name, one in wanted.items():
        if one.numel() != found[name].numel():
            return ExactAnswer.without(f"{name} has {one.numel():,} elements, and {found[name].numel():,} in the other")
    if not wanted:
        return ExactAnswer.without("the outputs are no floats")
    draws = ((other.draw(number), first.draw(number)) for number in range(3))
    part = _part(first, other)
    answer = agreement(draws, part, roundings_of(first.opcodes | other.opcodes))
    doubt = first.doubt or other.doubt
    if answer.same is False and doubt:
        answer = ExactAnswer.without(f"results differ, and {doubt}")
    elif answer.same is False:
        explanation = _difference(first, other, part, seconds)
        if explanation.rounded:
            answer = replace(answer, same=True, reason=explanation.rounded)
        else:
            answer = replace(answer, difference=tuple(explanation.lines))
    # A kernel's instructions say less than operators: those of a library's function, which it is taken for, are there.
    told = [one.operators for one in (first, other) if one.operators] or [first.functions, other.functions]
    return replace(answer, unseen=next(filter(None, map(unseen_by, told)), ""))


def _difference(first: Side, other: Side, part: Part, seconds: float) -> Explanation:
    """Return a difference in words; the cause where there are none."""
    differing = (n for n in range(3) if differences((other.draw(n), first.draw(n)), part))
    numbers = [*itertools.islice(differing, 2)]
    if len(numbers) < 2:  # elements are undefined
        return Explanation()
    results = other.draw(numbers[0]), first.draw(numbers[0])
    try:
        draws, every = _common_inputs(first, other, numbers)
        names = ExactNames(other.constants, first.constants, first.axes, first.called, () if every else [*draws[0]])
        if not draws[0]:
            return Explanation(places(differences(results, part), names))
        deadline = (Deadline if first.elsewhere or other.elsewhere else OwnDeadline)(seconds)
        programs = Programs(
            lambda given: other.compute(numbers[0], given, other),
            lambda given: first.compute(numbers[0], given, first), _LAUNCHES, deadline,
        )  # fmt: skip
        return explained(programs, results, draws, part, names)
    except Exception as error:  # what the programs do with changed inputs is not foreseen, and changes no answer
        return Explanation([f"no explanation: {type(error).__name__}: {error}"])


def _common_inputs(first: Side, other: Side, numbers: Sequence[int]) -> tuple[list[Inputs], bool]:
    """Return the inputs of draws that both programs take, and whether these are all; none that cannot be replaced."""
    if first.inputs is None or other.inputs is None:
        return [{} for _ in numbers], False
    ours, theirs = ([*map(inputs, numbers)] for inputs in (first.inputs, other.inputs))
    common = [
        name
        for name, one in ours[0].items()
        if name in theirs[0] and one.shape == theirs[0][name].shape and _same(one, theirs[0][name])
    ]
    return [{name: one[name] for name in common} for one in ours], len(common) == len(ours[0].keys() | theirs[0].keys())


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.double().nan_to_num(), other.double().nan_to_num())


def _part(first: Side, other: Side) -> Part:
    """Return the part to compare; logarithms live in the other part, where both sides take one."""
    if first.functions & LOGARITHMS and other.functions & LOGARITHMS:
        return "logarithm"
    part = part_of(first.opcodes | other.opcodes, first.operators | other.operators)
    return "P" if part == "logarithm" else part
