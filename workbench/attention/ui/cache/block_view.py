"""Interactive view of a `BlockManager`: its sequences, its blocks and their owners, and buttons that call it.

The view has no state of its own: a button calls the manager, and the view draws the manager's new state. All code is in
the package; nothing is loaded from the network. Without JavaScript, the picture of `block_picture` is shown instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.sequence import Tokens
from workbench.attention.ui.cache.block_picture import draw_blocks
from workbench.attention.ui.cache.block_state import count_of, describe, snapshot
from workbench.errors import ArgumentError, WorkbenchError
from workbench.ui import figure_html

_STATIC = Path(__file__).parents[1] / "static"
_ACTIONS = ("allocate", "append", "fork", "free", "swap_out", "swap_in")


class BlockView(anywidget.AnyWidget):
    """Buttons and pictures for one manager; put it last in a notebook cell.

    Every button is also a method of the same name. If the manager refuses a call, nothing has changed, ``refused`` is
    true and ``message`` is the text of its error. The methods do not raise the error, because a button cannot.

    Args:
        manager: the manager to show. If other code uses it too, call `refresh` afterwards.
        controls: True for buttons; without them the view only shows what other code does.

    Raises:
        ArgumentError: if the name of a sequence is not a string; buttons need strings.
    """

    _esm = (_STATIC / "block_view.js").read_text(encoding="utf-8")
    _css = (_STATIC / "block_view.css").read_text(encoding="utf-8")

    state = traitlets.Dict(help="`snapshot` of the manager.").tag(sync=True)
    message = traitlets.Unicode(help="Result of the last call, or the manager's error message.").tag(sync=True)
    refused = traitlets.Bool(False, help="True if the manager refused the last call.").tag(sync=True)
    controls = traitlets.Bool(True, help="True if there are buttons.").tag(sync=True)
    changed = traitlets.List(traitlets.Int(), help="Device blocks written or taken by the last call.").tag(sync=True)

    def __init__(self, manager: BlockManager, *, controls: bool = True):
        self.manager = manager
        self._names: dict[str, None] = {}
        super().__init__(controls=controls)
        self.refresh()
        if controls:
            self.message = "Press a button: each calls the block manager, and this line shows the result."
        self.on_msg(self._on_button)

    # -- the buttons --------------------------------------------------------------------------------------------

    def allocate(self, tokens: Tokens, seq: str | None = None, *, salt: Hashable = None) -> None:
        """Begin a sequence; its default name is the next unused letter."""
        name = self._next_name() if seq is None else seq

        def call() -> str:
            placed = self.manager.allocate(name, tokens, salt=salt)
            cached = (
                f", {placed.num_cached_tokens} tokens found in the prefix cache" if placed.num_cached_tokens else ""
            )
            self._show_written(placed.slots)
            return f"allocate {name}: {count_of(len(placed.slots), 'slot')} to write, {_ranges(placed.slots)}{cached}"

        self._do(f"allocate {name}", call)

    def append(self, seq: str, tokens: Tokens = 1) -> None:
        """Make room for new tokens of a sequence."""

        def call() -> str:
            placed = self.manager.append(seq, tokens)
            copies = "".join(f"copy block {a} to block {b} (copy-on-write), then " for a, b in placed.copies)
            self._show_written(placed.slots)
            return f"append to {seq}: {copies}write slot{'s'[len(placed.slots) == 1 :]} {_ranges(placed.slots)}"

        self._do(f"append to {seq}", call)

    def fork(self, parent: str, child: str | None = None) -> None:
        """Begin a sequence with the history of another; its default name is the next unused letter."""
        name = self._next_name() if child is None else child

        def call() -> str:
            self.manager.fork(parent, name)
            shared = count_of(len(self.manager.block_table(parent)), "block")
            return f"fork {parent}: {name} shares its {shared}; nothing is copied"

        self._do(f"fork {parent}", call)

    def free(self, seq: str) -> None:
        """End a sequence."""

        def call() -> str:
            before = self.manager.num_free_blocks
            self.manager.free(seq)
            return f"free {seq}: {count_of(self.manager.num_free_blocks - before, 'device block')} became free"

        self._do(f"free {seq}", call)

    def swap_out(self, seq: str) -> None:
        """Move a sequence to the host's blocks."""

        def call() -> str:
            return f"swap out {seq}: copy {_pairs(self.manager.swap_out(seq), 'block', 'host block')}"

        self._do(f"swap out {seq}", call)

    def swap_in(self, seq: str) -> None:
        """Move a sequence back to the device."""

        def call() -> str:
            pairs = self.manager.swap_in(seq)
            self.changed = [block for _, block in pairs]
            return f"swap in {seq}: copy {_pairs(pairs, 'host block', 'block')}"

        self._do(f"swap in {seq}", call)

    def refresh(self) -> None:
        """Show the current state of the manager."""
        for seq in self.manager.sequences:
            if not isinstance(seq, str):
                raise ArgumentError("manager", f"a sequence {seq!r}", "names that are strings", "Name it 'A', 'B', ...")
            self._names[seq] = None
        self.state = snapshot(self.manager, self._names)

    # -- forms without JavaScript -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return describe(self.state)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        picture = figure_html(draw_blocks(self.state).figure)
        return data | {"text/plain": repr(self), "text/html": picture}, metadata

    # -- internal steps -----------------------------------------------------------------------------------------

    def _do(self, what: str, call: Callable[[], str]) -> None:
        with self.hold_sync():  # one message to the browser, so that it never draws a state without its message
            self.changed = []
            try:
                answer, refused = call(), False
            except WorkbenchError as error:
                answer, refused = f"{what}: refused. {error}", True
            self.refresh()
            self.message, self.refused = answer, refused

    def _show_written(self, slots: list[int]) -> None:
        self.changed = list(dict.fromkeys(slot // self.manager.block_size for slot in slots))

    def _next_name(self) -> str:
        letters = (chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "") for number in count())
        return next(name for name in letters if name not in self._names)

    def _on_button(self, _widget: object, content: dict, _buffers: object) -> None:
        action, arguments = content.get("action"), content.get("arguments", [])
        if action in _ACTIONS and self.controls:
            getattr(self, action)(*arguments)


def _ranges(slots: list[int]) -> str:
    """Return slots as text, with ranges for neighbouring ones, for example ``0–5, 12``."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot - 1:
            runs[-1][1] = slot
        else:
            runs.append([slot, slot])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs) or "none"


def _pairs(pairs: list[tuple[int, int]], source: str, target: str) -> str:
    return ", ".join(f"{source} {a} to {target} {b}" for a, b in pairs) or "nothing: its blocks are still there"
