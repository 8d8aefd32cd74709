"""Static picture of the blocks of a `BlockManager`, for paper and for pages without JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.ui.cache.block_state import count_of, snapshot
from workbench.ui import OKABE_ITO, box, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "ooo", "|||", "---")
"""Hatches of owners, used with colours so that no information depends on colour alone."""

_FRAMES = (("#888888", "--", 0.8), ("black", "-", 1.0), ("black", "-", 2.4), (OKABE_ITO[5], "-", 2.8))
"""Colour, line style and width of the frame of a block with 0, 1, 2, and 3 or more references."""

_SLOT = 0.34
_GAP = 0.5


def block_picture(manager: BlockManager, title: str = "", *, ax: Axes | None = None) -> Axes:
    """Draw the block tables, device memory and swap space of a manager, and return the matplotlib Axes.

    The block tables at the top have a box per logical block with the number of its physical block. In the memory below
    them, a block is a row of squares, one per slot: coloured and hatched by owner if it holds a token (split between
    several owners), else empty. The frame shows the number of sequences that refer to the block: dashed for none, thin
    for one, thick for two, red for more.
    """
    return draw_blocks(snapshot(manager), title, ax=ax)


def draw_blocks(state: dict, title: str = "", *, ax: Axes | None = None) -> Axes:
    """Draw a `snapshot` as `block_picture` does, and return the matplotlib Axes."""
    pitch = max(state["block_size"] * _SLOT, 1.3) + _GAP
    num_columns = min(max(len(state["blocks"]), 4), max(4, int(16 / pitch)))
    width = max(num_columns * pitch, 9.0)
    table_rows = len(state["sequences"])
    memory_rows = sum(-(-len(state[place]) // num_columns) for place in ("blocks", "host_blocks") if state[place])
    height = 0.75 * max(table_rows, 1) + 1.45 * memory_rows + (1.5 if state["host_blocks"] else 1.0)
    if ax is None:
        scale = min(0.68, 10.5 / width)
        ax = new_axes(width * scale, height * scale)
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    ax.axis("off")
    if title:
        ax.set_title(title, loc="left", fontsize=10)
    top = _draw_tables(ax, state)
    top = _draw_memory(ax, state["blocks"], "device memory", state["block_size"], top, num_columns, pitch)
    if state["host_blocks"]:
        _draw_memory(ax, state["host_blocks"], "host memory", state["block_size"], top, num_columns, pitch)
    return ax


def _face(owner: dict) -> dict[str, Any]:
    """Return the colour and hatch of the blocks of a sequence."""
    style = owner["style"] % len(HATCHES)
    return {"facecolor": OKABE_ITO[style], "hatch": HATCHES[style], "edgecolor": "white", "linewidth": 0}


def _draw_tables(ax: Axes, state: dict) -> float:
    top = 0.15
    for seq in state["sequences"]:
        face = _face(seq)
        box(ax, 0.05, top, 0.5, 0.5, **face)
        where = ", on the host" if seq["swapped"] else ""
        ax.text(0.7, top + 0.27, seq["name"], va="center", fontsize=10, weight="bold")
        ax.text(1.15, top + 0.27, f"{count_of(seq['num_tokens'], 'token')}{where}", va="center", fontsize=8)
        for block in seq["blocks"]:
            wide, host = (1.75, "host ") if seq["swapped"] else (1.1, "")
            left = 4.1 + block["logical"] * (wide + 0.15)
            box(ax, left, top, wide, 0.5, facecolor="white", edgecolor=face["facecolor"], linewidth=1.6)
            physical = "freed" if block["physical"] is None else f"{host}{block['physical']}"
            text = f"{block['logical']} → {physical}"
            ax.text(left + wide / 2, top + 0.27, text, ha="center", va="center", fontsize=8)
        top += 0.75
    if not state["sequences"]:
        ax.text(0.05, top + 0.27, "no sequences", va="center", fontsize=8, style="italic")
        top += 0.75
    return top


def _draw_memory(
    ax: Axes, blocks: Sequence[dict], name: str, size: int, top: float, num_columns: int, pitch: float
) -> float:
    ax.text(0.05, top + 0.3, name, va="center", fontsize=8, style="italic")
    top += 0.75
    for index, block in enumerate(blocks):
        left, up = 0.05 + index % num_columns * pitch, top + index // num_columns * 1.45
        owners = block["owners"]
        for slot in range(size):
            x = left + slot * _SLOT
            if slot < block["filled"]:
                for place, owner in enumerate(owners):
                    part = 0.5 / len(owners)
                    box(ax, x, up + place * part, _SLOT, part, **_face(owner))
                if not owners:
                    box(ax, x, up, _SLOT, 0.5, facecolor="#dddddd")
            box(ax, x, up, _SLOT, 0.5, fill=False, edgecolor="#888888", linewidth=0.6)
        colour, line, width = _FRAMES[min(block["references"], len(_FRAMES) - 1)]
        frame = {"edgecolor": colour, "linestyle": line, "linewidth": width}
        box(ax, left, up, size * _SLOT, 0.5, fill=False, **frame)
        ax.text(left, up + 0.72, f"{name.split()[0] if name != 'device memory' else 'block'} {block['number']}",
                va="center", fontsize=7.5)  # fmt: skip
        ax.text(left, up + 1.02, ownership(block), va="center", fontsize=7.5, weight="bold" if owners else "normal")
    return top + -(-len(blocks) // num_columns) * 1.45


def ownership(block: dict) -> str:
    """Return the owners of a block as text, for example ``A, B (2 refs)``."""
    if block["owners"]:
        names = ", ".join(owner["name"] for owner in block["owners"])
        return f"{names} ({count_of(block['references'], 'ref')})"
    return "cached (0 refs)" if block["cached"] else "free"
