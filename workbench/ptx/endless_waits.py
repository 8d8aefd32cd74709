"""Messages on waits in plain memory: the place that is read repeatedly, its content, and the waiting threads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workbench.ptx.options import coordinates

if TYPE_CHECKING:
    from workbench.ptx.kernel import DecodedKernel
    from workbench.ptx.shapes import Dimensions

_SAID = re.compile(r"(holds|setp|block|unstarted)((?: -?\d+)+)")
_LISTED = 4
_OF_SETP = re.compile(r"\.(\w+?)u?\.(?:[\w.]*\.)?([a-z]+)(\d+)")
_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
              "hs": ">="}  # fmt: skip
HOST_COMES_LATER = (
    ". A launch runs to its end before the host's next call here: what the host, a copy or a launch in another stream "
    "would set on a GPU does not come."
)


def described(
    kernel: DecodedKernel, text: str, size: int, where: str, grid: Dimensions
) -> str:  # fmt: skip
    """Describe a wait and the waiting threads from the core's ``text``; ``where`` is the place of the memory."""
    said = [(word, [int(number) for number in numbers.split()]) for word, numbers in _SAID.findall(text)]
    facts = dict(said)
    out = f": {size} bytes at {where}, are read again and again, and nobody who is left changes them"
    if "holds" in facts:
        held = facts["holds"][0]
        out += f"; they hold {_number(held, size)}"
        if "setp" in facts:
            pc, other = facts["setp"]
            out += _compared(kernel, pc, other, held, size)
    return out + _who([numbers for word, numbers in said if word == "block"], facts.get("unstarted"), grid)


def _number(value: int, size: int) -> str:
    return f"{value} ({value - (1 << 8 * size)})" if value >> (8 * size - 1) & 1 else str(value)


def _compared(kernel: DecodedKernel, pc: int, other: int, held: int, size: int) -> str:
    """Describe the comparison at ``pc`` that decides whether the loop goes on."""
    other &= (1 << 8 * size) - 1
    statement = kernel.decoded.code[kernel.decoded.written_at(pc)].statement
    found = _OF_SETP.search(statement.text) if statement is not None else None
    if found is None or found[2] == "f":
        return ""
    relation = _RELATIONS.get(found[1])
    if relation in ("==", "!="):
        counts = other > 1 and not held >> (8 * size - 1)  # neither a flag nor a lock, whose values are 0 and 1
        passed = ", which they have passed" if counts and held > other else ""
        return f" and are compared with {_number(other, size)}{passed}"
    return f" and are compared ({relation}) with {_number(other, size)}" if relation else ""


def _who(blocks: list[list[int]], unstarted: list[int] | None, grid: Dimensions) -> str:
    """Return the number of waiting threads in each block, and the number of blocks that have not started."""
    if not blocks:
        return ""
    reading, at_barrier = sum(row[1] for row in blocks), sum(row[2] for row in blocks)
    names = ", ".join(str(coordinates(row[0], grid)) for row in sorted(blocks)[:_LISTED])
    more = f" and {len(blocks) - _LISTED} more" if len(blocks) > _LISTED else ""
    threads = f"{reading} thread{'s' if reading != 1 else ''} wait{'s' if reading == 1 else ''} so"
    out = f"; {threads}, in block{'s' if len(blocks) != 1 else ''} {names}{more}"
    if at_barrier:
        out += f", where {at_barrier} wait at a barrier for them"
    if unstarted is not None:
        out += f"; {unstarted[0]} blocks have not started: these leave them no room"
    return out
