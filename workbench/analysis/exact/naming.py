"""ExactNames of numbers and places in the words for a difference."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from workbench.analysis.exact.elements import MODULUS, P, Q, element_of

SHOWN = 4
"""Items of a list that are shown."""

_LOG2E = math.log2(math.e)
_SMALL = (1e-5, 1e-6, 1e-8, 1e-12)
"""Terms that keep a denominator from being zero, of which a kernel may lack one."""


@dataclass(frozen=True)
class ExactNames:
    """Names of numbers and places.

    Attributes:
        constants: numbers that the kernel has, in its instructions and its arguments.
        numbers: numbers that the reference has.
        axes: names of an input's axes, by its name; an axis without one is called by its index alone.
        reference: what the program is called that the kernel is compared with.
        changed: names of the inputs that both programs take, where these are not all.
    """

    constants: Sequence[float] = ()
    numbers: Sequence[float] = ()
    axes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reference: str = "the reference"
    changed: Sequence[str] = ()

    def place(self, name: str, positions: torch.Tensor, shape: Sequence[int]) -> str:
        """Return the name of some elements of a tensor, ``x[3, 40:48]``, of positions in row-major order."""
        if not shape:
            return name
        indices = [one.tolist() for one in torch.unravel_index(positions, tuple(shape))]
        sets = [sorted(set(one)) for one in indices]
        if math.prod(map(len, sets)) != len(positions):
            first = self.place(name, positions[:1], shape)
            return f"{first} and {len(positions) - 1:,} more"
        words = [_range(one, size) for one, size in zip(sets, shape, strict=True)]
        named = self.axes.get(name, ())
        if len(named) == len(words):
            words = [f"{axis}={one}" if axis and one != ":" else one for axis, one in zip(named, words, strict=True)]
        return name if all(one == ":" for one in words) else f"{name}[{', '.join(words)}]"

    def factors(self, sizes: Iterable[int]) -> Iterator[tuple[str, int]]:
        """Yield numbers that a factor may be, as text and as an element, simple ones first."""
        for numerator, denominator in ((2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (1, 4), (-1, 1), (3, 2), (2, 3)):
            text = str(numerator) if denominator == 1 else f"{numerator}/{denominator}"
            yield text, _quotient(numerator, denominator)
        for size in sorted({*sizes} - {0, 1}):
            for one in (size - 1, size + 1):
                yield f"{one}/{size}", _quotient(one, size)
                yield f"{size}/{one}", _quotient(size, one)
        known = (1.0, _LOG2E, *self.constants, *self.numbers)
        pairs = {one / other: (one, other) for one in self.constants for other in known if other and one != other}
        pairs |= {other / one: (other, one) for one, other in pairs.values()}
        for quotient in sorted((one for one in pairs if 0.9 < one < 1.1), key=lambda value: abs(math.log(value))):
            pair = pairs[quotient]
            yield number_text(quotient) if 1.0 in pair else " / ".join(map(number_text, pair)), _quotient(*pair)
        for constant in self.constants:
            yield f"(1 + {number_text(constant)})", (1 + element_of(constant)) % MODULUS

    def scales(self, sizes: Iterable[int]) -> Iterator[tuple[str, int]]:
        """Yield numbers by which an input may be multiplied: those of `factors`, and what both programs have."""
        yield from self.factors(sizes)
        for one in dict.fromkeys((*self.constants, *self.numbers)):
            yield number_text(one), element_of(one)
            yield f"1/{number_text(one)}", _quotient(1, one)

    def factor(self, values: Sequence[int], sizes: Iterable[int] = ()) -> str | None:
        """Return a number that is one of these elements modulo P; None if none is known."""
        return next((text for text, one in self.factors(sizes) if any((one - v) % P == 0 for v in values)), None)

    def term_too_much(self, value: int) -> str | None:
        """Return "1e-05 more" or "1e-05 less" where a difference modulo P is a known number; else None."""
        for one in dict.fromkeys(filter(_is_small, (*self.constants, *_SMALL))):
            for sign, word in ((1, "more"), (-1, "less")):
                if (sign * element_of(one) - value) % P == 0:
                    return f"{number_text(one)} {word}"
        return None


def constants_of(ptx: str) -> list[float]:
    """Return the floats that a PTX text has as constants, each once, without 0, 1 and infinities."""
    found = [struct.unpack(">f", bytes.fromhex(one))[0] for one in re.findall(r"\b0[fF]([0-9a-fA-F]{8})\b", ptx)]
    found += [struct.unpack(">d", bytes.fromhex(one))[0] for one in re.findall(r"\b0[dD]([0-9a-fA-F]{16})\b", ptx)]
    return [one for one in dict.fromkeys(found) if math.isfinite(one) and abs(one) not in (0.0, 1.0)]


def _range(indices: Sequence[int], size: int) -> str:
    """Return the text of some indices along an axis of a size."""
    if len(indices) == size and size > 1:
        return ":"
    if len(indices) == 1:
        return str(indices[0])
    if indices[-1] - indices[0] + 1 == len(indices):
        return f"{indices[0]}:{indices[-1] + 1}"
    shown = ", ".join(map(str, indices[:SHOWN]))
    return f"({shown}{', ...' if len(indices) > SHOWN else ''})"


def _quotient(numerator: float, denominator: float) -> int:
    """Return the element of a quotient, modulo P and Q; 0 where the denominator has no inverse."""
    below = element_of(denominator)
    if below % P == 0 or below % Q == 0:
        return 0
    return element_of(numerator) * pow(below, -1, MODULUS) % MODULUS


def _is_small(value: float) -> bool:
    return 0 < abs(value) < 1e-2


def number_text(value: float) -> str:
    """Return a number with eight digits at most."""
    return f"{value:.8g}"
