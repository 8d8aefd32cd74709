"""Interactive view of a debug session, live or recorded."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from workbench.base.pages import Section, json_script, save_page, static_text
from workbench.errors import ArgumentError, WorkbenchError
from workbench.launch.debug import DebugSession, Stop
from workbench.ui.debugger.history import record
from workbench.ui.debugger.state import Window, source_of, state_of
from workbench.ui.source_lines import STATIC

STEPS = ("step", "back", "next_instruction", "previous_instruction", "next_barrier", "next_block", "to_end")
"""Methods of a session that a button of the view calls as they stand."""

SHARED_DTYPES = ("float32", "float16", "bfloat16", "int32", "uint32")


class _SessionView(anywidget.AnyWidget):
    """The browser's half, and the forms without JavaScript."""

    _esm = static_text(STATIC / "debug_parts.js") + static_text(STATIC / "debug_view.js")
    _css = static_text(STATIC / "debug_view.css")

    title = traitlets.Unicode("", help="Kernel, grid and block.").tag(sync=True)
    source = traitlets.Dict(help="Source files by path.").tag(sync=True)
    state = traitlets.Dict(help="Where the launch stands, and what its memory holds.").tag(sync=True)
    history: traitlets.List[Any] = traitlets.List(help="Recorded states; empty in a live view.").tag(sync=True)

    def __init__(self, session: DebugSession, **values: Any):
        grid, block = (" x ".join(map(str, one)) for one in (session.grid, session.block))
        title = f"{session.kernel.name}, {grid} blocks of {block} threads"
        super().__init__(title=title, source=source_of(session), **values)
        self._listing = f"{session.where}\n{session.listing()}"

    def __repr__(self) -> str:
        return f"<debug view of {self.title}>"

    def __str__(self) -> str:
        """Return where the launch stands, and the source around it."""
        return f"{self.title}\n{self._listing}"

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict]:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return data | {"text/plain": str(self), "text/html": f"<pre>{html.escape(str(self))}</pre>"}, metadata


class DebugView(_SessionView):
    """A live view of a session, made by `debug_view`; put it last in a notebook cell.

    Buttons and keys call the session's methods; their names and keys stand on the buttons. A click on a source line
    sets a stop there, or removes it. A click on an element, a variable or a register chooses it for ``last write``.
    """

    command = traitlets.Dict(help="Last order of the browser.").tag(sync=True)
    message = traitlets.Unicode("", help="Error of the last order; empty if it was carried out.").tag(sync=True)
    furthest = traitlets.Int(0, help="Largest index that the launch has been at.").tag(sync=True)

    def __init__(self, session: DebugSession):
        self.session = session
        self._windows: dict[str, Window] = {}
        self._warp: int | None = None
        self._dtype = SHARED_DTYPES[0]
        super().__init__(session)
        self.observe(self._on_command, "command")
        self.refresh()

    def refresh(self) -> None:
        """Show the session as it stands now, after a method of it was called elsewhere."""
        session = self.session
        self._listing = f"{session.where}\n{session.listing()}"
        self.furthest = max(self.furthest, session.index)
        self.state = state_of(session, warp=self._warp, windows=self._windows, shared_dtype=self._dtype)

    def _on_command(self, change: traitlets.Bunch) -> None:
        self.message = ""  # so that the same error twice is two changes
        try:
            self._carry_out(change.new)
            self.refresh()
        except WorkbenchError as error:
            self.message = str(error)

    def _carry_out(self, order: Mapping[str, Any]) -> None:
        session, name = self.session, order["do"]
        text = order.get("text", "").strip()
        if name not in ("warp", "window", "dtype", "toggle"):
            self._warp = None
        if name in STEPS:
            getattr(session, name)()
        elif name in ("go", "go_back"):
            getattr(session, name)(*([text] if text else []))
        elif name == "goto":
            session.goto(int(order["index"]))
        elif name == "last_write":
            session.last_write(text, lane=order.get("lane"))
        elif name == "warp":
            self._warp = int(order["warp"])
        elif name == "window":
            self._windows[order["name"]] = (max(0, order["row"]), max(0, order["column"]))
        elif name == "dtype":
            self._dtype = text if text in SHARED_DTYPES else self._dtype
        elif name == "toggle":
            self._toggle(order["path"], int(order["line"]))
        else:
            raise ArgumentError("command", name, ", ".join(STEPS), "Click a button of the view.")

    def _toggle(self, path: str, line: int) -> None:
        at = (path, line)
        there = [one for one in self.session.stops if (one.file or self.session.code.file, one.line) == at]
        for one in there:
            self.session.remove(one)
        if not there:
            self.session.stop(Stop(line=line, file="" if path == self.session.code.file else path))


class DebugRecording(_SessionView):
    """A recorded history that steps without a kernel process, made by `debug_recording`.

    A saved notebook holds it; `save_html` writes it as a page.
    """

    def __init__(self, session: DebugSession, steps: int):
        super().__init__(session)
        self.history = record(session, steps, lambda: state_of(session, registers=False))
        self.state = self.history[0]

    @property
    def headline(self) -> str:
        """The title of its page."""
        return f"Inside {self.title}"

    def about(self) -> dict[str, str]:
        """Return facts for the head of its page."""
        return {"recorded": f"{len(self.history) - 1} steps of a source line each"}

    def sections(self) -> list[Section]:
        """Return the view as the section of a page."""
        data = {name: getattr(self, name) for name in ("title", "source", "history")}
        script = self._esm.replace("export default", "const debugView =")
        view = f'<div class="debug-view"></div>{json_script(data)}'
        return [Section(view, (self._css,), (script, static_text(STATIC / "debug_page.js")))]

    def save_html(self, path: Any) -> Any:
        """Write the history as one HTML file that needs no network, at most 400 kB, and return its path."""
        return save_page(path, [self])


def debug_view(session: DebugSession) -> DebugView:
    """Show a debug session with buttons: source, warps, lanes, variables, registers, arrays and shared memory.

    ``session`` is what `workbench.debug` returns. The view calls its methods, and follows them with ``refresh()``.
    """
    return DebugView(session)


def debug_recording(session: DebugSession, steps: int = 200) -> DebugRecording:
    """Record the next ``steps`` source lines of a session, and show them without a kernel process.

    Each step keeps what it changed: the lines of the warps, named variables, elements of arrays and shared memory in
    the first 16 rows and 32 columns of their tables. The recording ends early at the end of the launch and
    before it grows too large for a page of 400 kB; the session then stands where it stood.

    Raises ArgumentError for fewer than one step and for a launch that has ended.
    """
    return DebugRecording(session, steps)
