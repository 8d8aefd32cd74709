"""Cases at changed inputs, with their exact answers, kept from one candidate to the next.

An answer of the reference takes longer than a small kernel's run, and the inputs never reach a candidate's process.
"""

from __future__ import annotations

from typing import Any

from workbench.ops.declared.elsewhere import Elsewhere, Meaningless

_MOST_BYTES = 64 << 20
"""Bytes of inputs and answers that a process keeps; the other ones are made again."""


class ChangedCases:
    """The changed cases of one process, each for one seed at a time."""

    def __init__(self) -> None:
        self._cases: dict[bytes, Any] = {}
        self._kept: dict[tuple[bytes, str], Elsewhere | Meaningless] = {}

    def get(self, content: bytes, case: Any, change: str) -> Elsewhere:
        """Return a case, whose ``content`` identifies it but for the seed, with its inputs changed.

        Raises Meaningless where there is nothing to compare with.
        """
        if content not in self._cases or self._cases[content].seed != case.seed:
            self._forget(content)
            self._cases[content] = case
        found = self._kept.get((content, change))
        if found is None:
            found = _changed(self._cases[content], change)
            if _bytes(found) + sum(map(_bytes, self._kept.values())) <= _MOST_BYTES:
                self._kept[content, change] = found
        if isinstance(found, Meaningless):
            raise found
        return found

    def _forget(self, content: bytes) -> None:
        self._kept = {key: one for key, one in self._kept.items() if key[0] != content}


def _changed(case: Any, change: str) -> Elsewhere | Meaningless:
    try:
        found = case.elsewhere(change)
        if found is None:
            raise Meaningless("its values are its own")
        found.require_meaning()
    except Meaningless as reason:
        return reason
    return found


def _bytes(found: Elsewhere | Meaningless) -> int:
    return 0 if isinstance(found, Meaningless) else found.nbytes
