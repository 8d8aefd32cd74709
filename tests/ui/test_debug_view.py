"""The data of the debugger's view: the state of a session, orders, and a recorded history."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import ui
from workbench.errors import ArgumentError
from workbench.ui.debugger import history
from workbench.ui.debugger.state import state_of

sys.path.append(str(Path(__file__).parents[1] / "launch" / "debug"))
from sessions import line_of, softmax


def changed(before: Any, change: dict[str, Any]) -> Any:
    """The state after a change, as debug_view.js makes it."""
    after: Any = dict(enumerate(before)) if isinstance(before, list) else dict(before)
    for name, value in change.items():
        key = int(name) if isinstance(before, list) else name
        if value is None:
            del after[key]
        elif isinstance(value, dict) and isinstance(after.get(key), dict | list):
            after[key] = changed(after[key], value)
        else:
            after[key] = value
    return list(after.values()) if isinstance(before, list) else after


def test_orders_of_the_browser_move_the_session():
    with softmax() as session:
        view = ui.debug_view(session)
        assert (view.state["index"], view.state["lanes"]) == (0, 0xFFFF_FFFF)
        orders = 0

        def order(**fields: Any) -> dict[str, Any]:
            nonlocal orders
            orders += 1
            view.command = {**fields, "number": orders}
            return view.state

        assert order(do="step")["line"] == session.where.line > 2
        assert order(do="to_end")["status"] == "ended"
        assert view.furthest == session.index
        found = order(do="last_write", text="y[2, 77]")
        assert (found["block"], found["line"]) == ([2, 0, 0], line_of("/ total;"))
        assert found["variables"]["total"]["values"] == [f"{session['total'][0]:.5g}"], "equal in all lanes"
        assert found["shared"]["part"]["cells"][1] == f"{session.shared('float32', at='part')[1]:.5g}"

        # A part of an array, another type of shared memory, the other warp, stops.
        table = order(do="window", name="y", row=1, column=90)["arrays"]["y"]
        assert (table["row"], table["columns"], len(table["cells"])) == (1, 10, 30)
        assert table["cells"][0] == f"{float(session.tensor('y')[1, 90]):.5g}"
        assert order(do="dtype", text="uint32")["shared"]["part"]["dtype"] == "uint32"
        assert order(do="warp", warp=1 - found["warp"])["shown"] == 1 - found["warp"]
        path = session.code.file
        assert order(do="toggle", path=path, line=19)["stop_lines"] == [[path, 19]]
        assert order(do="go_back")["line"] == 19
        assert order(do="toggle", path=path, line=19)["stops"] == []

        # An error leaves the state, and is the message until the next order.
        assert order(do="go", text="1")["line"] == 19
        assert "The compiler kept no instruction of line 1" in view.message
        order(do="goto", index=0)
        assert (view.message, session.index) == ("", 0)
        session.step()
        view.refresh()
        assert view.state["line"] == session.where.line
        assert session.where.name in str(view)


def test_a_history_has_what_each_step_changed(monkeypatch):
    with softmax(stop=line_of("total += part")) as session:
        start = session.goto(session.index).index
        recording = ui.debug_recording(session, steps=12)
        assert session.index == start
        states = recording.history[:1]
        for change in recording.history[1:]:
            states.append(changed(states[-1], change))
        for state in states:
            assert state == json.loads(json.dumps(state_of(session, registers=False)))
            session.step()
        assert len(states) == 13
        assert len(json.dumps(recording.history[1:])) < len(json.dumps(states[1:])) / 3

        monkeypatch.setattr(history, "MOST_BYTES", 6000 + len(json.dumps(states[0])))
        session.goto(0)
        assert 1 < len(ui.debug_recording(session, steps=200).history) < 200
        monkeypatch.undo()
        session.to_end()
        with pytest.raises(ArgumentError, match="a launch that has ended"):
            ui.debug_recording(session)
        with pytest.raises(ArgumentError, match="steps"):
            ui.debug_recording(session, steps=0)
        assert bool(torch.isfinite(session.tensor("y")).all())
