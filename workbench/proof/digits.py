"""Digits of distances: what follows for the parts of a sum of multiples that is nearly 0.

The distance of two accesses is often that of numbers written in a mixed base, such as ``4 * thread + 512 * round``. If
it is near 0 and the lower digits cannot make up for a step of a higher one, the higher part is 0. Solvers for linear
integer arithmetic find that by many cuts, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.proof.solver import Linear
from workbench.proof.terms import Bounds, bounds_of_product


def zero_parts(distance: Linear, low: int, high: int) -> Iterator[Linear]:
    """Yield parts of a sum that are 0 if the sum lies in ``low`` to ``high``, each without its common divisor."""
    for unit in sorted({abs(scale) for key, scale in distance.items() if key}, reverse=True):
        upper = {key: scale // unit for key, scale in distance.items() if scale % unit == 0 and key}
        lower = {key: scale for key, scale in distance.items() if scale % unit != 0 or not key}
        if not lower.keys() - {()}:
            continue
        least, most = _bounds_of(lower)
        if least is not None and most is not None and low - most > -unit and high - least < unit:
            yield upper
            yield from zero_parts(upper, 0, 0)
            yield from zero_parts(lower, low, high)
            return


def _bounds_of(sum_: Linear) -> Bounds:
    low: int | None = 0
    high: int | None = 0
    for key, scale in sum_.items():
        least, most = bounds_of_product(tuple(atom for atom, _ in key))
        if scale < 0:
            least, most = most, least
        low = None if low is None or least is None else low + scale * least
        high = None if high is None or most is None else high + scale * most
    return low, high
