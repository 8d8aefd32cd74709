"""State of a stopped launch as JSON: where its warps stand, lanes of variables and registers, tables of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.analysis.places import source_text
from workbench.launch.debug import DebugSession, RegisterView

ROWS, COLUMNS = 16, 32
"""Rows and columns of a table that are shown at once."""

Window = tuple[int, int]
"""First row and first column of a table that are shown."""

_ABOVE = 8  # source lines above the first with code
_BELOW = 3


def source_of(session: DebugSession) -> dict[str, Any]:
    """Return the source files of a kernel by path: name, number of the first line, lines, and which have code."""
    found: dict[str, Any] = {}
    for path in sorted({path for path, _ in session.code.pcs_by_line}):
        code = sorted(line for one, line in session.code.pcs_by_line if one == path)
        first, last = max(1, code[0] - _ABOVE), code[-1] + _BELOW
        lines = [source_text(path, number) for number in range(first, last + 1)]
        if any(lines):
            while not lines[-1]:
                lines.pop()
            found[path] = {"name": Path(path).name, "first": first, "lines": lines, "code": code}
    return found


def state_of(
    session: DebugSession, *, warp: int | None = None, windows: Mapping[str, Window] | None = None,
    shared_dtype: str = "float32", registers: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Return the state of a launch where it stands.

    ``warp`` is the one whose registers are read, default the current one; ``windows`` says by name which part of a
    table is read; without ``registers`` only those that hold variables are.
    """
    place, windows = session.where, windows or {}
    runs = bool(session.blocks)
    shown = place.warp if warp is None else warp
    views = session.registers(warp=shown).values() if runs and shown >= 0 else ()
    return {
        "index": place.index, "status": place.status, "why": place.why, "place": place.name, "path": place.file,
        "line": place.line, "ptx": place.ptx, "block": list(place.block), "warp": place.warp, "shown": shown,
        "lanes": _mask(place.lanes), "warps": _warps(session) if runs else [],
        "variables": {one.variable: _lanes(one) for one in views if one.variable},
        "registers": {one.name: _lanes(one) for one in views if registers and not one.variable},
        "arrays": {name: _array(array, windows.get(name, (0, 0))) for name, array in session.memory.arrays.items()},
        "shared": _shared(session, windows, shared_dtype) if runs else {},
        "waits": list(session.waits()) if place.status == "fault" else [],
        "stops": [str(one) for one in session.stops],
        "stop_lines": [[one.file or session.code.file, one.line] for one in session.stops if one.line],
    }  # fmt: skip


def _mask(lanes: Iterable[int]) -> int:
    return sum(1 << lane for lane in lanes)


def _warps(session: DebugSession) -> list[dict[str, Any]]:
    found = []
    for state in session.warps():
        groups = []
        for one in state.groups:
            path, line = session.code.places[one.pc]
            groups.append({"lanes": _mask(one.lanes), "path": path, "line": line, "waits": one.waits})
        found.append({"warp": state.warp, "groups": groups, "ended": _mask(state.ended)})
    return found


def _lanes(view: RegisterView) -> dict[str, Any]:
    """Return a register; one value stands for 32 that are equal."""
    values = texts(view.values)
    same = len(set(values)) == 1
    return {"register": view.name, "type": view.type, "place": view.place, "values": values[:1] if same else values}


def texts(values: Any) -> list[str]:
    """Return the elements of an array as short texts."""
    return [
        f"{one:.5g}" if isinstance(one, float) else str(int(one) if isinstance(one, bool) else one)
        for one in values.reshape(-1).tolist()
    ]


def _array(array: Any, window: Window) -> dict[str, Any]:
    return _table(array, str(array.dtype).removeprefix("torch."), tuple(array.shape), window)


def _table(values: Any, dtype: str, shape: tuple[int, ...], window: Window) -> dict[str, Any]:
    """Return a window of an array: rows along its last axis; an array with one axis is broken into rows."""
    total = int(np.prod(shape))
    width = shape[-1] if len(shape) > 1 else min(total, COLUMNS)
    row, column = window
    flat = values.reshape(-1)
    height = -(-total // width) if width else 0
    row, column = min(row, max(0, height - 1)), min(column, max(0, width - 1))
    columns = min(COLUMNS, width - column)
    cells: list[str] = []
    for at in range(row, min(row + ROWS, height)):
        cells += texts(flat[at * width + column : min(at * width + column + columns, total)])
    return {
        "dtype": dtype, "shape": list(shape), "width": width, "height": height, "row": row, "column": column,
        "columns": columns, "cells": cells,
    }  # fmt: skip


def _shared(session: DebugSession, windows: Mapping[str, Window], dtype: str) -> dict[str, Any]:
    """Return tables of the variables in shared memory, or of all of it where none has a name."""
    named = session.memory.shared_variables()
    size = np.dtype(dtype).itemsize
    parts = {name: (at, bytes_) for name, (at, bytes_) in named.items() if bytes_ >= size}
    if not parts and (whole := len(session.shared("uint8"))) >= size:
        parts = {"shared": (0, whole)}
    found = {}
    for name, (at, bytes_) in parts.items():
        values = session.shared(dtype, (bytes_ // size,), at=at)
        found[name] = {**_table(values, dtype, values.shape, windows.get(name, (0, 0))), "offset": at, "bytes": size}
    return found
