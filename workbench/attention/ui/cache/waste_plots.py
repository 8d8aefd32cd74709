"""Plots of used and wasted slots of a KV cache, beside the figures of the PagedAttention paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.attention.cache_studies.group_waste import GroupWaste
from workbench.attention.cache_studies.sharing import PublishedSharing, SharingResult
from workbench.attention.cache_studies.waste import Published, WasteResult
from workbench.ui import OKABE_ITO, ON_HATCH, box, in_percent, legend_beside, legend_of, marked, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {
    "token_states": ("holds a token", "#0072B2", ""),
    "reserved": ("will hold one later", "#56B4E9", "///"),
    "internal": ("never used by its owner", "#E69F00", "xxx"),
    "external": ("owned by nobody", "#eeeeee", ""),
}
"""Label, colour and hatch of each state of a slot."""

GROUP_PARTS = {
    "read": ("read by the next token", "#0072B2", ""),
    "empty": ("last block, not full yet", "#56B4E9", "///"),
    "behind": ("behind the window", "#009E73", "..."),
    "padding": ("padding of pages", "#E69F00", "xxx"),
    "unused": ("owned by nobody", "#eeeeee", ""),
}
"""Label, colour and hatch of each part of a pool that groups of layers share."""


def slot_rows(
    rows: Mapping[str, Sequence[str]], title: str = "", *, block_size: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw memory slot by slot, with a frame around each block.

    Args:
        rows: states of the slots (keys of `PARTS`) of each row, by its label.
        title: title of the picture.
        block_size: slots per block; None: a row is one block.
        ax: the Axes to draw into; default new ones.

    Returns:
        The matplotlib Axes.
    """
    ax = new_axes(9, 0.4 * len(rows) + 0.6) if ax is None else ax
    for row, slots in enumerate(rows.values()):
        for column, part in enumerate(slots):
            _, colour, hatch = PARTS[part]
            box(ax, column, row + 0.1, 1, 0.8, facecolor=colour, hatch=hatch, edgecolor="white", linewidth=1)
        for column in range(0, len(slots), block_size or len(slots)):
            width = min(block_size or len(slots), len(slots) - column)
            box(ax, column, row + 0.1, width, 0.8, fill=False, edgecolor="black", clip_on=False)
    ax.set(xlim=(0, max(map(len, rows.values()))), ylim=(len(rows), 0), title=title)
    ax.set_yticks([row + 0.5 for row in range(len(rows))], list(rows), fontsize=8)
    ax.tick_params(length=0)
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    return ax


def rows_and_blocks(
    now: Mapping[str, int], end: Mapping[str, int], *, longest: int, block_size: int, num_slots: int
) -> Figure:
    """Draw the same sequences twice: in rows of ``longest`` slots, and in blocks of ``block_size``.

    Args:
        now: current tokens of each sequence.
        end: final tokens of each sequence.
        longest: slots of a row.
        block_size: slots of a block.
        num_slots: slots of the whole memory, the same for both.

    Returns:
        The matplotlib Figure.
    """
    import matplotlib.pyplot as plt

    def parts(name: str, room: int) -> list[str]:
        later = min(end[name], room) - now[name]
        return ["token_states"] * now[name] + ["reserved"] * later + ["internal"] * (room - now[name] - later)

    rows = {f"row of {name}": parts(name, longest) for name in now}
    rows["left over"] = ["external"] * (num_slots - longest * len(now))
    blocks = {f"blocks of {name}": parts(name, -(-tokens // block_size) * block_size) for name, tokens in now.items()}
    spare = num_slots - sum(map(len, blocks.values()))
    for line, first in enumerate(range(0, spare, longest), 1):
        blocks[f"free blocks ({line})"] = ["external"] * min(longest, spare - first)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 0.4 * max(len(rows), len(blocks)) + 0.8))
    slot_rows(rows, f"a row of {longest} for each", ax=left)
    slot_rows(blocks, f"blocks of {block_size} for each", block_size=block_size, ax=right)
    parts_legend(figure, loc="lower center", ncols=4)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    return figure


def parts_legend(figure: Figure, **options: Any) -> None:
    """Add the legend of `PARTS` to a figure of several Axes."""
    legend_of(figure, PARTS.values(), edgecolor="#777777", fontsize=8, **options)


def waste_bars(
    results: Sequence[WasteResult], published: Sequence[Published], *, title: str = "", ax: Axes | None = None
) -> Axes:
    """Draw a bar of four parts for each result, and below it the paper's bar of the same policy, if it has one.

    A part that the paper does not split is white. Returns the matplotlib Axes.
    """
    papers = {one.policy: one for one in published}
    bars: list[tuple[str, object, float]] = []
    at = 0.0
    for result in results:
        block = f", blocks of {result.block_size}" if result.block_size else ""
        bars.append((f"{result.policy}{block}: here", result, at))
        if result.policy in papers:
            paper = papers[result.policy]
            bars.append((f"{paper.system}: paper", paper, at + 0.9))
            at += 0.9
        at += 1.3
    ax = new_axes(10, 0.36 * at + 1.3) if ax is None else ax
    for _, shares, place in bars:
        left = _stacked_bar(ax, place, shares, PARTS)
        if left < 0.999:
            ax.barh(place, 1 - left, 0.8, left=left, color="white", edgecolor="#777777", linewidth=0.5)
    _finish_bars(ax, {name: place for name, _, place in bars}, at, title)
    parts_legend(ax.figure, loc="lower center", ncols=4)
    ax.figure.tight_layout(rect=(0, 0.08, 1, 1))
    return ax


def group_bars(results: Mapping[str, Mapping[str, GroupWaste]], *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw a bar of the parts of a pool for each plan of each model; return the matplotlib Axes.

    Args:
        results: for each model, its results by the name of their plan.
        title: title of the picture.
        ax: the Axes to draw into; default new ones.
    """
    places: dict[str, float] = {}
    at = 0.0
    for model, found in results.items():
        for plan in found:
            places[f"{model}, {plan}"] = at
            at += 0.9
        at += 0.5
    ax = new_axes(10, 0.36 * at + 1.3) if ax is None else ax
    for place, one in zip(places.values(), (one for found in results.values() for one in found.values()), strict=True):
        _stacked_bar(ax, place, one, GROUP_PARTS)
    _finish_bars(ax, places, at, title)
    legend_of(ax.figure, GROUP_PARTS.values(), edgecolor="#777777", fontsize=8, loc="lower center", ncols=5)
    ax.figure.tight_layout(rect=(0, 0.08, 1, 1))
    return ax


def _stacked_bar(ax: Axes, place: float, shares: object, parts: Mapping[str, tuple[str, str, str]]) -> float:
    """Draw the parts of one bar, each with its share if there is room, and return their sum."""
    left = 0.0
    for name, (_, colour, hatch) in parts.items():
        share = getattr(shares, name)
        if not share:
            continue
        ax.barh(place, share, 0.8, left=left, color=colour, hatch=hatch, edgecolor="#777777", linewidth=0.5)
        if share >= 0.04:
            ink = {"color": "white"} if name == next(iter(parts)) else {"bbox": ON_HATCH | {"alpha": 0.85}}
            ax.text(left + share / 2, place, f"{share:.1%}", ha="center", va="center", fontsize=8, **ink)
        left += share
    return left


def _finish_bars(ax: Axes, places: Mapping[str, float], end: float, title: str) -> None:
    ax.set_yticks(list(places.values()), list(places), fontsize=9)
    ax.set(xlim=(0, 1), ylim=(end - 0.4, -0.6), title=title)
    in_percent(ax.xaxis)
    ax.spines[["top", "right"]].set_visible(False)


def block_size_lines(results: Mapping[str, Sequence[WasteResult]], *, ax: Axes | None = None) -> Axes:
    """Plot the fraction of slots that hold a token over the block size, with a line per workload; return the Axes."""
    ax = new_axes(8, 3.4) if ax is None else ax
    rules = {"contiguous oracle": ":", "contiguous max": "-."}
    sizes: list[int] = []
    for index, (name, found) in enumerate(results.items()):
        paged = [result for result in found if result.policy == "paged"]
        sizes = [result.block_size for result in paged if result.block_size is not None]
        shares = [result.token_states for result in paged]
        ax.plot(sizes, shares, marker="os"[index % 2], color=OKABE_ITO[index], label=f"{name}, paged")
        for result in found:
            if result.policy in rules:
                line = {"color": OKABE_ITO[index], "linestyle": rules[result.policy], "linewidth": 1.2}
                ax.axhline(result.token_states, label=f"{name}, {result.policy}", **line)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set(xlabel="block_size, tokens", ylabel="slots that hold a token", ylim=(0, 1.03))
    in_percent(ax.yaxis)
    ax.spines[["top", "right"]].set_visible(False)
    legend_beside(ax)
    ax.figure.tight_layout()
    return ax


def sharing_ranges(found: Mapping[str, Sequence[SharingResult]], published: Sequence[PublishedSharing]) -> Figure:
    """Plot the blocks saved over the number of sequences per request, with a panel per method.

    ``found`` has the results of each workload; the paper's figures are drawn beside them. Returns the matplotlib
    Figure.
    """
    import matplotlib.pyplot as plt

    methods = list(dict.fromkeys(result.method for results in found.values() for result in results))
    figure, axes = plt.subplots(1, len(methods), figsize=(5 * len(methods), 3.3), sharey=True, squeeze=False)
    for ax, method in zip(axes[0], methods, strict=True):
        for index, (workload, results) in enumerate(found.items()):
            mine = [result for result in results if result.method == method]
            ways = [result.ways for result in mine]
            look = marked(index)
            ax.plot(ways, [result.saved for result in mine], label=f"{workload}, here", **look)
            for paper in published:
                if paper.method == method and workload.startswith(paper.workload):
                    ends = {"linestyle": ":", "markerfacecolor": "white", "markersize": 8}
                    ax.plot(
                        list(paper.saved), list(paper.saved.values()), label=f"{paper.workload}, paper", **look | ends
                    )
        ax.set(xlabel="sequences per request", title=method, ylim=(0, 0.85), xticks=[2, 4, 6])
        in_percent(ax.yaxis)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("blocks saved by sharing")
    legend_beside(axes[0][-1])
    figure.tight_layout()
    return figure
