"""Snapshots of a `BlockManager` as plain data, for the interactive view and the static picture."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.attention.kvcache.block_manager import BlockManager
from workbench.attention.kvcache.sequence import FREED
from workbench.errors import ArgumentError


def snapshot(manager: BlockManager, names: Iterable[str] | None = None) -> dict:
    """Return the sequences, device blocks and host blocks of a manager as lists and dictionaries for JSON.

    Args:
        manager: any manager; sequences are shown by ``str`` of their names.
        names: all sequences so far, in the order in which they get colours; default: the current ones.

    Returns:
        A dictionary with ``sequences``, ``blocks``, ``host_blocks``, ``block_size`` and ``num_free_blocks``. A sequence
        has a name, style (0, 1, ... in the order of ``names``), num_tokens, swapped, and blocks with their logical and
        physical number (None behind a sliding window) and filled slots. A block has a number, owners, references,
        filled and cached.

    Raises:
        ArgumentError: if the manager has several groups of layers; there is one table for each sequence.
    """
    if len(manager.groups) > 1:
        allowed = "a manager with one group of layers"
        raise ArgumentError("manager", f"{len(manager.groups)} groups", allowed, "Print block_table(seq, group).")
    size = manager.block_size
    styles = {name: style for style, name in enumerate(map(str, manager.sequences if names is None else names))}
    filled: dict[tuple[bool, int], int] = {}
    owners: dict[tuple[bool, int], list[str]] = {}
    sequences = []
    for seq in manager.sequences:
        name, length, swapped = str(seq), manager.num_tokens(seq), manager.is_swapped(seq)
        blocks = []
        for logical, physical in enumerate(manager.block_table(seq)):
            count = min(size, length - logical * size)
            blocks.append({"logical": logical, "physical": None if physical == FREED else physical, "filled": count})
            if physical != FREED:
                filled[swapped, physical] = count
                owners.setdefault((swapped, physical), []).append(name)
        style = styles.setdefault(name, len(styles))
        sequences.append({"name": name, "style": style, "num_tokens": length, "swapped": swapped, "blocks": blocks})

    def block(number: int, on_host: bool) -> dict:
        has = owners.get((on_host, number), [])
        cached = not on_host and manager.is_cached(number)
        return {
            "number": number,
            "owners": [{"name": name, "style": styles[name]} for name in has],
            "references": len(has) if on_host else manager.reference_count(number),
            "filled": filled.get((on_host, number), size if cached else 0),
            "cached": cached,
        }

    return {
        "block_size": size,
        "num_free_blocks": manager.num_free_blocks,
        "sequences": sequences,
        "blocks": [block(number, False) for number in range(manager.num_blocks)],
        "host_blocks": [block(number, True) for number in range(manager.num_host_blocks)],
    }


def describe(state: dict) -> str:
    """Return a snapshot as text; equal snapshots give equal text."""
    blocks = state["blocks"]
    lines = [f"{len(blocks)} blocks of {state['block_size']} tokens, {state['num_free_blocks']} free"]
    for seq in state["sequences"]:
        table = ", ".join("–" if block["physical"] is None else str(block["physical"]) for block in seq["blocks"])
        where = "host blocks" if seq["swapped"] else "blocks"
        lines.append(f"  {seq['name']}: {count_of(seq['num_tokens'], 'token')} in {where} [{table}]")
    shared = [f"{block['number']} ({block['references']})" for block in blocks if block["references"] > 1]
    if shared:
        lines.append(f"  shared (references): {', '.join(shared)}")
    cached = [str(block["number"]) for block in blocks if block["cached"] and not block["references"]]
    if cached:
        lines.append(f"  cached, owned by nobody: {', '.join(cached)}")
    return "\n".join(lines)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, for example ``1 token`` or ``2 tokens``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
