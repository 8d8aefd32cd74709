"""Views of a launch that stands still, for the debug adapter: warps as threads, lanes, registers, arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ArgumentError
from workbench.launch.debug import DebugSession, RegisterView
from workbench.launch.debug.places import lane_ranges

Row = dict[str, Any]
"""A variable, frame, scope or thread as the protocol writes it."""

_ENDED = 1
"""Number of the thread that stands for a launch that has ended."""

_MOST_ELEMENTS = 1000
"""Elements of an array that are shown below it; `SessionViews.evaluate` shows any other."""

_BRIEF = 8
"""Elements of an array that are shown in its own row."""


@dataclass(frozen=True)
class _Frame:
    block: tuple[int, int, int]
    warp: int


class SessionViews:
    """Views of a session; frames and rows have numbers until `forget`."""

    def __init__(self, session: DebugSession):
        self._session = session
        self._frames: dict[int, _Frame] = {}
        self._rows: dict[int, Callable[[], Iterator[Row]]] = {}
        threads = session.block[0] * session.block[1] * session.block[2]
        self._warps = -(-threads // 32)

    def forget(self) -> None:
        """Forget the numbers of frames and rows, because the launch has moved."""
        self._frames.clear()
        self._rows.clear()

    # -- threads and frames ------------------------------------------------------------------------------------------

    def _thread(self, block: tuple[int, ...], warp: int) -> int:
        (x, y, z), grid = block, self._session.grid
        return 2 + ((z * grid[1] + y) * grid[0] + x) * self._warps + warp

    def current_thread(self) -> int:
        """Return the number of the warp that runs."""
        place = self._session.where
        return _ENDED if place.warp < 0 else self._thread(place.block, place.warp)

    def threads(self) -> list[Row]:
        """Return the warps of the blocks that run."""
        found = [
            {"id": self._thread(block, warp), "name": f"block {block}, warp {warp}"}
            for block in self._session.blocks
            for warp in range(self._warps)
        ]
        return found or [{"id": _ENDED, "name": "the launch has ended"}]

    def frames(self, thread: int) -> list[Row]:
        """Return a frame for each group of lanes of a warp that stand at one place."""
        if thread == _ENDED:
            return []
        index, warp = divmod(thread - 2, self._warps)
        x, y, z = self._session.grid
        block = (index % x, index // x % y, index // (x * y))
        if not 0 <= index < x * y * z:
            raise ArgumentError("threadId", thread, "a number that threads gave", "Ask for the threads again.")
        found = []
        for group in self._session.warps(block)[warp].groups:
            number = len(self._frames) + 1
            self._frames[number] = _Frame(block, warp)
            file, line = self._session.code.places[group.pc]
            waits = f", {group.waits}" if group.waits else ""
            name = f"{self._session.kernel.name}, lanes {lane_ranges(group.lanes)}{waits}"
            row: Row = {"id": number, "name": name, "line": line, "column": 1 if line else 0}
            if line and Path(file).is_file():
                row["source"] = {"name": Path(file).name, "path": file}
            found.append(row)
        return found

    # -- variables ---------------------------------------------------------------------------------------------------

    def scopes(self, frame: int) -> list[Row]:
        """Return variables, registers, arrays and shared memory of a frame, whose rows come on demand."""
        session, at = self._session, self._frame(frame)

        def registers(named: bool) -> Iterator[Row]:
            for view in session.registers(warp=at.warp, block=at.block).values():
                if bool(view.variable) == named:
                    yield self._register(view)

        def arrays() -> Iterator[Row]:
            for name in session.memory.arrays:
                yield self._array(name, session.tensor(name))

        def shared() -> Iterator[Row]:
            for name in session.memory.shared_variables():
                yield self._array(name, session.shared("uint32", at=name, block=at.block))

        scopes: list[tuple[str, str, Callable[[], Iterator[Row]]]] = [
            ("Variables", "locals", lambda: registers(named=True)),
            ("Registers", "registers", lambda: registers(named=False)),
            ("Arrays", "globals", arrays),
            ("Shared memory, as words", "shared", shared),
        ]
        return [
            {"name": name, "presentationHint": hint, "variablesReference": self._below(make), "expensive": False}
            for name, hint, make in scopes
        ]

    def rows(self, reference: int, start: int, count: int) -> list[Row]:
        """Return the rows below a scope or a variable, ``count`` of them from ``start`` on; all for 0."""
        if reference not in self._rows:
            raise ArgumentError("variablesReference", reference, "one of this stop", "Ask for the scopes again.")
        found = self._rows[reference]()
        return list(itertools.islice(found, start, start + count if count else None))

    def evaluate(self, text: str, frame: int | None) -> Row:
        """Return an array, an element of one, a register, a variable, or an expression in 32 lanes."""
        session = self._session
        at = self._frame(frame) if frame else _Frame(session.where.block, max(session.where.warp, 0))
        name, _, index = text.partition("[")
        if name in session.memory.arrays and name not in session.code.variables:
            values = session.tensor(name)
            if index:
                values = values[session.memory.index(name, index.rstrip().removesuffix("]"))]
            if not index or values.ndim:
                return self._array(text, values)
            return {"value": str(values.item()), "type": str(values.dtype), "variablesReference": 0}
        if text in session.code.variables or text.startswith("%"):
            return self._register(session.register(text, warp=at.warp, block=at.block))
        return self._lanes(session.evaluate(text, warp=at.warp, block=at.block), "float64")

    def _frame(self, number: int) -> _Frame:
        if number not in self._frames:
            raise ArgumentError("frameId", number, "a frame of this stop", "Ask for the stack trace again.")
        return self._frames[number]

    def _below(self, make: Callable[[], Iterator[Row]]) -> int:
        number = len(self._rows) + 1
        self._rows[number] = make
        return number

    def _register(self, view: RegisterView) -> Row:
        name = view.variable or view.name
        return {"name": name, "evaluateName": name, **self._lanes(view.values, view.type)}

    def _lanes(self, values: Any, kind: str) -> Row:
        below = self._below(lambda: _elements(values, "lane {}".format))
        return {"value": _brief(values), "type": kind, "indexedVariables": len(values), "variablesReference": below}

    def _array(self, name: str, values: Any) -> Row:
        shape = " x ".join(map(str, values.shape)) or "a number"
        return {
            "name": name, "value": f"{shape}, {values.dtype}: {_brief(values)}", "type": str(values.dtype),
            "evaluateName": name, "variablesReference": self._below(lambda: _elements(values, f"{name}[{{}}]".format)),
        }  # fmt: skip


def _brief(values: Any) -> str:
    """Return the first elements of an array, or the one value that all have."""
    flat = values.reshape(-1)
    if not len(flat):
        return "empty"
    shown = [f"{one:.6g}" if isinstance(one, float) else str(one) for one in flat[:_BRIEF].tolist()]
    if len(flat) > 1 and bool((flat == flat[0]).all()):
        return f"{shown[0]} in all"
    return ", ".join(shown) + (", ..." if len(flat) > _BRIEF else "")


def _elements(values: Any, name: Callable[[object], str]) -> Iterator[Row]:
    import numpy as np

    for index in itertools.islice(np.ndindex(*values.shape), _MOST_ELEMENTS):
        at = ", ".join(map(str, index))
        yield {"name": name(at), "value": str(values[index].item()), "variablesReference": 0}
