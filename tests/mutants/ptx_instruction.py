"""One instruction of PTX taken apart, and put together again with a change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.base.element_types import PTX_BYTES
from workbench.ptx.parse import Statement


@dataclass(frozen=True)
class Instruction:
    """One statement of a kernel's body, taken apart; ``before`` are those in front of it."""

    statement: Statement
    before: Sequence[Instruction] = ()

    @property
    def opcode(self) -> str:
        """Opcode with all modifiers."""
        return self.statement.opcode

    @cached_property
    def words(self) -> list[str]:
        """Parts of the opcode."""
        return self.opcode.split(".")

    @property
    def type(self) -> str:
        """Last part of the opcode: the type of its sources."""
        return self.words[-1]

    @cached_property
    def operands(self) -> list[str]:
        """Operands, those in braces or brackets as one."""
        return [part.strip() for part in re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", self.statement.operands)]

    @cached_property
    def line(self) -> tuple[object, str]:
        """Source line, and words of the statement without the numbers of registers."""
        return self.statement.location, re.sub(r"(%[a-z]+)\d+", r"\1", self.statement.text)

    @property
    def guard(self) -> str:
        """Text in front of the opcode: the guard, or nothing."""
        return f"@{'!' if self.statement.negated else ''}{self.statement.guard} " if self.statement.guard else ""

    def written(self, opcode: str, *operands: str) -> str:
        """Return an instruction in the place of this one, under the same guard."""
        return f"{self.guard}{opcode} {', '.join(operands)};"

    def with_opcode(self, opcode: str) -> str:
        """Return this instruction with another opcode."""
        return self.written(opcode, *self.operands)

    def with_operand(self, at: int, operand: str) -> str:
        """Return this instruction with another operand."""
        return self.written(self.opcode, *self.operands[:at], operand, *self.operands[at + 1 :])

    def moved(self, source: str) -> str:
        """Return a move of ``source`` to where the result goes, which a wide multiplication extends."""
        if ".wide." in self.opcode:
            kind = self.type
            return self.written(f"cvt.{kind[0]}{2 * int(kind[1:])}.{kind}", self.operands[0], source)
        kind = self.type if self.type in ("f32", "f64") else f"b{8 * PTX_BYTES[self.type]}"
        return self.written(f"mov.{kind}", self.operands[0], source)

    def in_scope(self, *lines: str) -> str:
        """Return several instructions as one block, for registers of their own."""
        return "{ " + " ".join(lines) + " }"
