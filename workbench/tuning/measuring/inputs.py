"""Inputs of a case, made once for several configurations, and the check that they fit into memory."""

from __future__ import annotations

import contextlib
import math
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import CaseTooLargeError

if TYPE_CHECKING:
    from workbench.ops.variant import Case


class Inputs:
    """Inputs of a case on a device, kept for the latest problems.

    One case has several problems where a configuration sets part of it, such as a cache's page size. The inputs of the
    latest ``keep`` problems are kept, and of more as long as all of them take no more than ``room`` bytes.
    """

    def __init__(self, case: Case, device_name: str, keep: int = 2, room: int = 256 << 20):
        self._case = case
        self._where = "cuda" if device_name == "cuda" else "cpu"
        self._keep, self._room = keep, room
        self._made: OrderedDict[Any, Any] = OrderedDict()

    def of(self, problem: Any) -> Any:
        """Return the tensors for a problem, with ``out`` filled with a value that no correct kernel leaves behind."""
        if problem not in self._made:
            with enough_memory(self._case, self._where, self._case.minimum_bytes(problem)):
                self._made[problem] = self._case.inputs(problem, self._where)
            while len(self._made) > self._keep and sum(map(self._case.minimum_bytes, self._made)) > self._room:
                self._made.popitem(last=False)
        self._made.move_to_end(problem)
        tensors = self._made[problem]
        tensors.renew()
        return tensors


@contextlib.contextmanager
def enough_memory(case: Case, where: str, least_bytes: int = 0) -> Iterator[None]:
    """Raise CaseTooLargeError if the block under it runs out of memory, or at once if ``least_bytes`` are not free."""
    what = f"case {case.name} does not fit into memory ({where})"
    remedy = f"Choose a smaller one, or override its sizes: case({case.name!r}, ...)."
    available = available_bytes(where) if least_bytes else 0
    if least_bytes > available:
        sizes = f"its tensors take {least_bytes / 2**30:.3g} GiB at least, {available / 2**30:.3g} GiB are free"
        raise CaseTooLargeError(f"{what}: {sizes}. {remedy}")
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # On the CPU torch raises a plain RuntimeError when memory runs out.
        if isinstance(error, MemoryError) or re.search("(allocate|not enough|out of) memory", str(error)):
            reason = str(error).splitlines()[0] or "MemoryError"
            raise CaseTooLargeError(f"{what}: {reason}. {remedy}") from error
        raise


def available_bytes(where: str) -> float:
    """Return the free bytes of the current GPU for "cuda", else of this machine; infinity if unknown."""
    if where == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0]
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    return math.inf
