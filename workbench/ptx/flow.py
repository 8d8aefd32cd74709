"""Basic blocks of a kernel, and the order in which they are laid out.

The scheduler always runs the lanes with the lowest pc. That brings lanes together at the earliest point if every block
stands after all blocks that lead to it, except around loops, and if a loop is contiguous with its exits behind it. Such
an order is a weak topological order (F. Bourdoncle, *Efficient chaotic iteration strategies with widenings*, 1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from workbench.ptx.instruction import InstructionStep
from workbench.ptx.machine import BRANCH, core
from workbench.ptx.parse import Label

_State = TypeVar("_State")


@dataclass(slots=True)
class BasicBlock:
    """Straight-line code.

    ``branch`` is the block that its last step branches to; ``successors`` lists that block first.
    """

    code: list[InstructionStep] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    branch: int | None = None
    fall: int | None = None


def split_blocks(items: list[InstructionStep | Label]) -> list[BasicBlock]:
    """Return the basic blocks in text order. Raises KeyError for a branch to a label that does not exist."""
    blocks = [BasicBlock()]
    labels: dict[str, int] = {}
    code = blocks[0].code
    for item in items:
        if type(item) is Label:
            if code:
                blocks.append(BasicBlock())
                code = blocks[-1].code
            labels[item.name] = len(blocks) - 1
            continue
        code.append(item)
        if item.form.ends:
            blocks.append(BasicBlock())
            code = blocks[-1].code
    blocks.append(BasicBlock())  # the end of the text: leaving it ends the thread
    last = len(blocks) - 1
    for i, block in enumerate(blocks[:-1]):
        end = block.code[-1] if block.code else None
        if end is not None and end.form.kind == BRANCH:
            block.branch = labels[end.target]
            block.successors.append(block.branch)
        ends = end is not None and end.form.ends and end.guard is None
        if not ends:
            block.fall = min(i + 1, last)
            if block.fall not in block.successors:
                block.successors.append(block.fall)
    return blocks


def layout(blocks: list[BasicBlock]) -> list[int]:
    """Return the reachable blocks in weak topological order, the entry first."""
    return core.order_blocks([block.successors for block in blocks])


def propagate(
    blocks: Sequence[BasicBlock],
    order: Sequence[int],
    start: _State,
    after: Callable[[Sequence[InstructionStep], _State], _State],
    joined: Callable[[_State, _State], _State],
) -> None:
    """Follow a state from the first block along all ways through the code, until it changes nowhere.

    ``after`` returns the state behind a block's code; ``joined`` that of a place known with one state and reached with
    another.
    """
    states, work = {order[0]: start}, [order[0]]
    while work:
        number = work.pop()
        state = after(blocks[number].code, states[number])
        for following in blocks[number].successors:
            known = states.get(following)
            both = state if known is None else joined(known, state)
            if known is None or both != known:
                states[following] = both
                work.append(following)
