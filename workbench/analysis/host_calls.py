"""Calls of cuBLAS and cuRAND functions, which compute on the host here and on the device with NVIDIA's libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HostCall:
    """One call of a library function such as ``cublasSgemm``.

    ``shape`` has its sizes; ``after`` counts the launches before it. The PTX machine did not run the call, so it has no
    instructions, no traffic and no predicted time.
    """

    name: str
    shape: str
    after: int = 0

    def __str__(self) -> str:
        return f"{self.name}({self.shape})"


def counted(calls: Sequence[HostCall]) -> str:
    """Return how many calls there were and of which functions: "3 calls of cublasSgemm, cublasSdot"."""
    names = ", ".join(dict.fromkeys(call.name for call in calls))
    return f"{len(calls)} call{'s' if len(calls) != 1 else ''} of {names}"
