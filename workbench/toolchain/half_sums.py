"""Sums that a kernel keeps in 16 bits, found in its PTX: a float32 problem loses most of its digits in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workbench.errors import WorkbenchError
from workbench.ptx.parse import Body, ParsedModule, PtxSyntaxError, Statement, parse

_MOST = 4
"""Additions in a row, each rounded to 16 bits, that make a sum; a loop makes as many."""
_HALF = r"(b?f16)(?:x2)?"
_WORTH_READING = re.compile(r"\b(?:add|sub|fma|w?g?mma|atom|red|cvt)\.[\w.:]*b?f16")
_ADDS = re.compile(rf"(add|sub|fma)\.(?:[\w:]+\.)*?(?:{_HALF}|f32)$")
_ROUNDS = re.compile(rf"cvt\.(?:\w+\.)*?{_HALF}\.f32$")
_PRODUCT = re.compile(r"(?:mma|wgmma|wmma)\.(?:[\w:]+\.)*?(?:m\d+n\d+k\d+\.)(?:(?:row|col)\.)*(f16)\.")
_ATOMIC = re.compile(rf"(?:atom|red)\.(?:[\w:]+\.)*?add\.(?:[\w:]+\.)*?{_HALF}$")
_CARRIES = re.compile(r"(?:mov|shfl|prmt|selp|shl|and|cvt)\b")
_REGISTER = re.compile(r"%[\w$]+")
_ONE = ("0x3f80", "0x3c00", "0x3f803f80", "0x3c003c00")
_BITS = {"f16": ("float16", 10), "bf16": ("bfloat16", 7)}


def half_sum(ptx: Iterable[str]) -> str:
    """Return a sentence on the first sum that a kernel keeps in float16 or bfloat16, with its line; "" without one.

    A sum is a chain of additions, each rounded to 16 bits, in a loop or `_MOST` in a row; a product of matrices with
    16-bit accumulators; or an atomic addition of 16-bit values. Inputs, results and products in 16 bits are none.
    """
    for text in ptx:
        if not _WORTH_READING.search(text):
            continue
        try:
            module = parse(text)
            bodies = [module.body(entry) for entry in module.entries.values()]
            found = next(filter(None, (_sum_of(body) for body in bodies)), None)
        except (PtxSyntaxError, WorkbenchError):
            continue
        if found is not None:
            return _told(module, *found)
    return ""


def _told(module: ParsedModule, statement: Statement, kind: str) -> str:
    source, line = module.place_of(statement.location, in_kernel_file=True)
    where = f" at {source.rpartition('/')[2]}:{line}" if line else ""
    name, bits = _BITS[kind]
    return f"float32 is summed in {name}{where}, which keeps {bits} of its 23 bits: keep the sum in float32"


def _sum_of(body: Body) -> tuple[Statement, str] | None:
    """Return the statement that makes a sum, and its type."""
    steps = [item for item in body if isinstance(item, Statement)]
    for step in steps:
        if named := _PRODUCT.match(step.opcode) or _ATOMIC.match(step.opcode):
            return step, named[1]
    chain = _Chain(steps)
    for _ in range(_MOST):  # a loop adds to a chain each time
        if found := chain.follow():
            return found
    return None


class _Chain:
    """Numbers of additions in a row, each rounded to 16 bits, that lead to the value of each register."""

    def __init__(self, steps: Iterable[Statement]):
        self._steps = [step for step in steps if _ADDS.match(step.opcode) or _CARRIES.match(step.opcode)]
        self._lengths: dict[str, int] = {}
        self._unrounded: set[str] = set()  # sums in float32, whose next rounding counts
        self._ones = {
            step.operands.split(",")[0].strip()
            for step in self._steps
            if step.opcode.startswith("mov") and step.operands.rpartition(",")[2].strip().lower().rstrip("u") in _ONE
        }

    def follow(self) -> tuple[Statement, str] | None:
        """Follow all steps once, in the order of the text; return the step that completes a sum, and its type."""
        for step in self._steps:
            targets, sources = _operands(step)
            added, rounds = _ADDS.match(step.opcode), _ROUNDS.match(step.opcode)
            if added is not None:
                sources = self._addends(added[1], sources)
            length = max((self._lengths.get(one, 0) for one in sources), default=0)
            unrounded = any(one in self._unrounded for one in sources)
            kind = added[2] if added is not None else rounds[1] if rounds is not None and unrounded else None
            length += kind is not None
            if kind is not None and length >= _MOST:
                return step, kind
            for target in targets:
                self._lengths[target] = max(self._lengths.get(target, 0), length)
                if (unrounded and rounds is None) or (added is not None and kind is None):
                    self._unrounded.add(target)
        return None

    def _addends(self, operation: str, sources: list[str]) -> list[str]:
        """Return the operands that are added: of a fused product the last one, and a factor of 1's other factor."""
        if operation != "fma" or len(sources) != 3:
            return sources
        left, right, addend = sources
        return [addend, *([right] if left in self._ones else [left] if right in self._ones else [])]


def _operands(step: Statement) -> tuple[list[str], list[str]]:
    """Return the registers that a step writes, and those that it reads; a pair in braces is its two registers."""
    head, _, rest = step.operands.partition("}" if step.operands.lstrip().startswith("{") else ",")
    return _REGISTER.findall(head), _REGISTER.findall(rest)
