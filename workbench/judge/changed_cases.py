"""Cases at changed inputs or sizes, with their exact answers, kept from one candidate to the next.

An answer of the reference takes longer than a small kernel's run, and the inputs never reach a candidate's process.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.elsewhere import Elsewhere, Meaningless
from workbench.ops.declared.shapes import SIZES
from workbench.ops.tensors.checks import real_parts

_MOST_BYTES = 64 << 20
"""Bytes of inputs and answers that a process keeps; the other ones are made again."""


class ChangedCases:
    """The changed cases of one process, each for one seed at a time."""

    def __init__(self) -> None:
        self._cases: dict[bytes, Any] = {}
        self._kept: dict[tuple[bytes, str], Elsewhere | DeclaredCase | Meaningless] = {}
        self._made = False

    def get(self, content: bytes, case: Any, change: str) -> Any:
        """Return a case, whose ``content`` identifies it but for the seed, with its inputs or sizes changed.

        Raises Meaningless where there is nothing to compare with.
        """
        if content not in self._cases or self._cases[content].seed != case.seed:
            self._forget(content)
            self._cases[content] = case
        found = self._kept.get((content, change))
        if found is None:
            found = _changed(self._cases[content], change)
            self._made = True
            if _bytes(found) + sum(map(_bytes, self._kept.values())) <= _MOST_BYTES:
                self._kept[content, change] = found
        if isinstance(found, Meaningless):
            raise found
        return found

    def return_memory(self) -> None:
        """Return to the system what making cases took, tens of MB, if any were made since; using them takes less."""
        if self._made:
            self._made = False
            with contextlib.suppress(AttributeError, OSError):  # only the GNU library has it
                ctypes.CDLL(None).malloc_trim(0)

    def _forget(self, content: bytes) -> None:
        self._kept = {key: one for key, one in self._kept.items() if key[0] != content}


def _changed(case: Any, change: str) -> Elsewhere | DeclaredCase | Meaningless:
    try:
        return _at_other_sizes(case, change) if change in SIZES else _at_other_values(case, change)
    except Meaningless as reason:
        return reason


def _at_other_values(case: Any, change: str) -> Elsewhere:
    found = case.elsewhere(change)
    if found is None:
        raise Meaningless("its values are its own")
    found.require_meaning()
    return found


def _at_other_sizes(case: Any, change: str) -> DeclaredCase:
    """Return a case at other sizes. Raises Meaningless if its reference has no finite answer there."""
    found = case.reshaped().get(change)
    if found is None:
        raise Meaningless("it has no other sizes")
    try:
        answers = found.reference().values()
    except Exception as error:
        raise Meaningless(f"the reference raises {type(error).__name__}") from error
    if any(one.is_floating_point() and not bool(real_parts(one).isfinite().all()) for one in answers):
        raise Meaningless("the reference is not finite")
    return found


def _bytes(found: Elsewhere | DeclaredCase | Meaningless) -> int:
    return 0 if isinstance(found, Meaningless) else found.nbytes
