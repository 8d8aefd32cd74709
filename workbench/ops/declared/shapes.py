"""Cases of a declared op at other sizes than they state: kernels are often right for the stated ones alone.

A size that has a name, or that differs between the op's cases, is one that kernels have to take as it comes. A number
that is the same in all cases may be what they are made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import WorkbenchError
from workbench.ops.tensors.inputs import Input


@dataclass(frozen=True)
class SizeChange:
    """A change of the sizes of a case: those with a name, and the numbers that differ between the op's cases.

    ``words`` end the sentence "the same, with ...".
    """

    words: str
    size: Callable[[int], int]


SIZES: Mapping[str, SizeChange] = {
    "one": SizeChange("each size 1", lambda size: min(size, 1)),
    "one_more": SizeChange("each size one more", lambda size: size + 1),
}
"""Changes of sizes by name. An odd size in the place of an even one shows what a missing mask does."""


def reshaped(case: Any) -> dict[str, Any]:
    """Return a declared case at other sizes, by the names of `SIZES`, where its reference has an answer there.

    The types of its tensors are found without their elements.
    """
    if case.contract.exact_sizes:
        return {}
    made = {name: _changed(case, change.size) for name, change in SIZES.items()}
    return {name: one for name, one in made.items() if one.sizes_and_inputs != case.sizes_and_inputs and _fits(one)}


def _changed(case: Any, change: Callable[[int], int]) -> Any:
    given = {name: _resized(case, name, one, change) for name, one in case.given.items()}
    return replace(case, given=given, sizes={name: change(size) for name, size in case.sizes.items()})


def _resized(case: Any, name: str, one: Any, change: Callable[[int], int]) -> Any:
    if not isinstance(one, Input):
        return one
    shape = (
        change(size) if isinstance(size, int) and case.contract.varies(name, axis) else size
        for axis, size in enumerate(one.shape)
    )
    return replace(one, shape=tuple(shape))


def _fits(case: Any) -> bool:
    try:
        case.problem()
    except (WorkbenchError, ArithmeticError, ValueError, RuntimeError, IndexError):
        return False
    return True
