"""Launches that the driver refused, and whether the program asked for the error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.analysis.places import HostPlace, source_text
from workbench.ptx import Finding

KIND = "refused launch"


@dataclass
class RefusedLaunch:
    """A refused launch: its arguments, the reason, and the place in the host code.

    ``asked`` is True if the caller received the error: an exception of a client, or the answer of cudaGetLastError. A
    program that does not read it goes on with the old content of its memory. Launches that are alike are one, with
    their ``count``.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    why: str
    place: HostPlace | None
    asked: bool
    count: int = 1

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the launch, without its count."""
        return self.kernel, self.grid, self.block, self.dynamic_shared_bytes, self.why, self.place

    def __str__(self) -> str:
        shared = f", {self.dynamic_shared_bytes} bytes of dynamic shared memory" if self.dynamic_shared_bytes else ""
        at = f", at {self.place}" if self.place is not None and self.place.line else ""
        place = at + (f", in {self.place.function}" if self.place is not None and self.place.function else "")
        times = f"; {self.count} times" if self.count > 1 else ""
        what = f"{self.kernel}, grid {self.grid}, block {self.block}{shared}: {self.why}{place}{times}"
        if self.asked:
            return f"a launch was refused, and the program got the error: {what}"
        return (
            f"a launch was refused, and the program did not ask for the error: {what}. Nothing ran; "
            "call cudaGetLastError() after each launch"
        )

    @property
    def report(self) -> str:
        """The text, and below it the line of the host code."""
        if self.place is None or not self.place.line:
            return str(self)
        line = source_text(self.place.file, self.place.line).strip()
        return f"{self}\n      {self.place}  {line}" if line else str(self)

    @property
    def finding(self) -> Finding:
        """The finding that reports it, at the place in the host code."""
        line = self.place.line if self.place is not None else 0
        source = self.place.file if self.place is not None else ""
        return Finding(
            KIND, str(self), self.kernel, block=(0, 0, 0), thread=(0, 0, 0), address=None, buffer=None,
            line=line or None, source=source, other_line=None, other_source="", ptx_line=0, other_ptx_line=None,
            count=self.count, kernel_line=line or None, kernel_source=source,
        )  # fmt: skip


def notes_of(launches: Iterable[RefusedLaunch]) -> list[str]:
    """Return the texts of those whose error the program got; of several of a kernel at one place the first one."""
    places: dict[tuple[object, ...], list[RefusedLaunch]] = {}
    for one in launches:
        if one.asked:
            places.setdefault((one.kernel, one.place), []).append(one)
    more = {key: sum(one.count for one in alike[1:]) for key, alike in places.items()}
    return [f"{alike[0]}{f'; and {more[key]} more there' if more[key] else ''}" for key, alike in places.items()]
