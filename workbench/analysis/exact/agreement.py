"""Comparison of results that were computed on ring elements: whether they are those of the same computation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from workbench.analysis.exact.elements import MODULUS, NOTHING, UNDEFINED, P, Q

Results = Mapping[str, torch.Tensor]
"""Elements of each output by name."""

Part = Literal["whole", "P", "logarithm"]
"""Part of an element that is compared.

"P" is the part that survives an exponential and a quotient; "whole" is for sums and products alone; "logarithm" is
either part, where both programs take one: logarithms live in the Q part.
"""

_LINEAR = frozenset(
    re.findall(
        r"\w+",
        """
        add sub rsub mul neg matmul rmatmul sum einsum linear addmm square cat stack where masked_fill add_ sub_
        mul_ outer cumsum maximum minimum clamp clamp_min clamp_max hardtanh leaky_relu relu abs max min amax amin
        full_like ones_like pad __setitem__ masked_fill_ copy_ zero_""",
    )
)
DIFFERS_NOTE = "exact: a difference fails nothing by itself; it asks for a look"
"""Note below answers of which one is that something differs."""

LOGARITHMS = frozenset(["log", "log2", "log1p", "logsumexp", "log_softmax", "softplus"])
"""Operators of torch that take a logarithm."""
_BOUNDED = frozenset(["tanh", "sigmoid", "silu", "gelu", "softplus"])
_EXPONENTIALS = frozenset(
    ["exp", "exp2", "softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention", "expm1", "elu"]
)
_FUNCTIONS = ("ex2.", "lg2.", "tanh.", "div.", "rcp.", "sqrt.", "rsqrt.", "sin.", "cos.")
_ROUNDING = re.compile(r"cvt\.([a-z]+\.)*([su]\d+|(e\dm\d|ue8m0)x2)\.(f|bf)(16|32|64)")


def roundings_of(opcodes: Iterable[str]) -> list[str]:
    """Return the instructions that round floats to integers or to eight bits and less.

    Their results are those of equal elements alone, so that a difference behind them says nothing.
    """
    return sorted({one for one in opcodes if _ROUNDING.match(one)})


def part_of(opcodes: Iterable[str], operators: Iterable[str]) -> Part:
    """Return the part to compare, from the instructions of the kernels and the operators of a program in torch."""
    opcodes, operators = set(opcodes), set(operators)
    functions = {one for one in opcodes if one.startswith(_FUNCTIONS)}
    logarithm = any(one.startswith("lg2.") for one in functions)
    if logarithm and (not operators or operators & LOGARITHMS):
        return "logarithm"
    return "P" if functions or operators - _LINEAR else "whole"


@dataclass(frozen=True)
class ExactAnswer:
    """Result of an exact comparison.

    Attributes:
        same: True for the same computation, False for another one, None for no answer.
        reason: for another computation its first element and in which draws, for no answer why there is none; for the
            same one what is equal but for its rounding, if anything.
        compared: number of elements that were compared in some draw.
        elements: number of all elements.
        draws: number of draws of the inputs.
        passes: the chance that one wrong element passes, were it the only one.
        unseen: what the comparison is blind to, if anything.
        difference: for another computation where it differs, in which terms, and on which small input, a line each.
    """

    same: bool | None
    reason: str = ""
    compared: int = 0
    elements: int = 0
    draws: int = 0
    passes: float = 1.0
    unseen: str = ""
    difference: tuple[str, ...] = ()

    @classmethod
    def without(cls, reason: str) -> ExactAnswer:
        """Return that there is no answer, and why."""
        return cls(None, reason)

    @property
    def lines(self) -> list[str]:
        """The answer for below a table: in one line, then the words for a difference, and what it means."""
        return [f"exact: {self}", *(f"    {one}" for one in self.difference), *[DIFFERS_NOTE] * (self.same is False)]

    def __str__(self) -> str:
        if self.same is None:
            return f"no answer: {self.reason}"
        of = f"{self.compared:,} of {self.elements:,} elements"
        if not self.same:
            return f"not the same computation: {self.reason} ({of} compared, {self.draws} draws)"
        chance = f"one wrong element alone would pass by chance 1 in {round(1 / self.passes):,}"
        unseen = f"; not seen: {self.unseen}" if self.unseen else ""
        rounded = f"; {self.reason}" if self.reason else ""
        return f"the same computation in {of} ({self.draws} draws; {chance}{rounded}{unseen})"


def unseen_by(operators: Iterable[str]) -> str:
    """Return what a comparison with these operators of torch is blind to, or "".

    An exponential reads the Q part of its argument, which is the same for all results of an exponential. Functions
    such as tanh have one inside.
    """
    bounded, used = sorted(_BOUNDED.intersection(operators)), _EXPONENTIALS.intersection(operators)
    return f"what lies before {' or '.join(bounded)} where an exponential follows" if bounded and used else ""


def agreement(draws: Iterator[tuple[Results, Results]], part: Part = "P", roundings: Sequence[str] = ()) -> ExactAnswer:
    """Compare the results of two programs on two draws of their inputs, and on a third where only one differs.

    A difference in one draw alone is chance or luck: it is not reported. An element that is undefined in a draw (its
    computation divides by zero there) is not compared in it; one in 359 is by chance, and where most are, in the first
    program alone, it is another computation. Where the programs have `roundings_of` floats, a difference is no answer.
    """
    looks = [_Look(*next(draws), part) for _ in range(2)]
    if sum(look.differs for look in looks) == 1:
        looks.append(_Look(*next(draws), part))
    # Two of up to three. An exponential has Q values alone, and a root is that of two elements.
    chance = 3 * (1 / (MODULUS if part == "whole" else Q)) ** 2
    elements = min(look.elements for look in looks)
    if all(look.elements == elements for look in looks):
        compared = int(torch.stack([look.known for look in looks]).any(0).sum())
    else:  # sizes that depend on the seed
        compared = min(int(look.known.sum()) for look in looks)
    differing = [number for number, look in enumerate(looks) if look.differs]
    if len(differing) >= 2:
        share = (
            f"{looks[differing[0]].wrong} elements differ" if looks[differing[0]].wrong > 1 else "one element differs"
        )
        which = " and ".join(map(str, differing))
        reason = f"{share}, first {looks[differing[0]].first} (draws {which})"
        if roundings:
            what = "results differ, and it rounds floats"
            return ExactAnswer.without(f"{what} ({', '.join(roundings)}), which agrees only with the same roundings")
        return ExactAnswer(False, reason, compared, elements, len(looks), chance)
    undefined = [look.undefined for look in looks]
    if not roundings and sum(2 * count > elements > 0 for count in undefined) >= 2:
        reason = f"{undefined[0]:,} elements are undefined, such as inf - inf, where the reference's are not"
        return ExactAnswer(False, reason, compared, elements, len(looks), chance)
    if elements and 2 * compared < elements:
        return ExactAnswer.without(f"{elements - compared:,} of {elements:,} elements are undefined in every draw")
    return ExactAnswer(True, "", compared, elements, len(looks), chance)


class _Look:
    """The outputs of two programs on one draw; ``known`` says of each element whether it was compared.

    ``undefined`` counts those that are so in the first program alone.
    """

    def __init__(self, found: Results, wanted: Results, part: Part):
        known, self.wrong, self.first, self.undefined = [], 0, "", 0
        written = {name: one for name, one in wanted.items() if not bool((one == NOTHING).all())}
        for name, expected in (written or wanted).items():  # the parts of an output may be outputs, too
            one = found[name].reshape(expected.shape)
            same, defined = _same(one, expected, part)
            known.append(defined.flatten())
            different = defined & ~same
            if bool(different.any()) and not self.first:
                place = ", ".join(map(str, different.nonzero()[0].tolist()))
                self.first = f"{name}[{place}]" if place else name
            self.wrong += int(different.sum())
            self.undefined += int(((one >= UNDEFINED) & (expected < UNDEFINED)).sum())
        self.known = torch.cat(known) if known else torch.zeros(0, dtype=torch.bool)

    @property
    def differs(self) -> bool:
        return self.wrong > 0

    @property
    def elements(self) -> int:
        return len(self.known)


def _same(found: torch.Tensor, wanted: torch.Tensor, part: Part) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which elements are equal, and which are compared: those that are defined on both sides.

    Where the second has nothing, as in memory that it does not write, the first must not have a number.
    """
    nothing = wanted == NOTHING
    defined = ((found < UNDEFINED) & (wanted < UNDEFINED)) | nothing
    symbols = (found >= MODULUS) | (wanted >= MODULUS)
    equal = (found == wanted) | (nothing & (found >= UNDEFINED))
    if part != "whole":
        equal |= ~symbols & (found % P == wanted % P)
    if part == "logarithm" and not bool((equal | ~defined).all()):
        of_logarithms = equal | (~symbols & (found % Q == wanted % Q))
        values = (wanted % Q)[defined & ~symbols]
        if len(values.unique()) > 2 and bool((of_logarithms | ~defined).all()):
            return of_logarithms, defined
    return equal, defined


def differing(found: torch.Tensor, wanted: torch.Tensor, part: Part) -> torch.Tensor:
    """Return which elements of an output differ, where both are defined."""
    same, defined = _same(found.reshape(wanted.shape), wanted, part)
    return defined & ~same


def opcodes_of(kernels: Sequence[object]) -> set[str]:
    """Return the names of the machine's instructions in kernels of the machine."""
    return {step.form.opcode.name for kernel in kernels for step in kernel.for_exact.decoded.code}  # type: ignore[attr-defined]
