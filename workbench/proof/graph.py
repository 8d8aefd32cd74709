"""The control flow of a kernel as parsed: blocks in order, natural loops, and the registers that are live."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.proof.unknown import Unknown, called
from workbench.ptx.instruction import split_operands
from workbench.ptx.parse import Label, ParsedModule, PtxDeclaration, PtxEntry, PtxVariable, Scope, Statement

REGISTER = re.compile(r"[%\w$]+")
ENDS = ("ret", "exit", "trap")
_READS_ALL = ("st", "bra", "red", "ret", "cp", "fence", "membar", "prefetch", "mbarrier", "bar", "barrier", "stmatrix",
              "tensormap")  # fmt: skip
_FAILS = "__assertfail"
"""The function that an assertion calls, which ends the launch."""
_BARRIERS = ("bar", "barrier", "mbarrier")
_DECLARED = re.compile(r"\s*([%\w$]+?)(?:<(\d+)>)?\s*")


@dataclass
class CodeBlock:
    """Statements that run one after the other, and the blocks that may follow; a branch's target comes first."""

    statements: list[Statement] = field(default_factory=list)
    after: list[int] = field(default_factory=list)


def head(statement: Statement) -> str:
    """Return the first word of an opcode."""
    return statement.opcode.partition(".")[0]


def _renamed(statement: Statement, scopes: Sequence[Mapping[str, str]]) -> Statement:
    """Return a statement with other names for registers that hide those of an outer scope."""
    names = {name: own for one in scopes for name, own in one.items()}
    if all(name == own for name, own in names.items()):
        return statement
    guard = names.get(statement.guard, statement.guard) if statement.guard else statement.guard
    operands = REGISTER.sub(lambda found: names.get(found[0], found[0]), statement.operands)
    return replace(statement, guard=guard, operands=operands)


class Graph:
    """Control flow of one kernel.

    ``order`` is a reverse postorder of the blocks; ``loops`` has the blocks of each loop by its head; ``types`` the
    registers and ``variables`` what the kernel and its module declare. ``live`` are the registers that a block's
    beginning needs, ``written`` those that a loop writes. ``waits`` are statements that ask an mbarrier until its phase
    is over. Raises Unknown for calls and computed branches.
    """

    def __init__(self, module: ParsedModule, entry: PtxEntry):
        self.types: dict[str, str] = {}
        self.variables: dict[str, PtxVariable] = dict(module.variables)
        self.waits: set[int] = set()
        self.blocks = self._read(module, entry)
        self.order = self._postorder()[::-1]
        self.loops = self._loops()
        for block in [one for one in self.loops if waiting_on(self, one)]:
            self._without_spinning(block)
        self.live = self._liveness()
        self.written = {
            head: {name for block in body for one in self.blocks[block].statements for name in self.effects(one)[0]}
            for head, body in self.loops.items()
        }

    def _read(self, module: ParsedModule, entry: PtxEntry) -> list[CodeBlock]:
        blocks = [CodeBlock()]
        scopes: list[dict[str, str]] = [{}]
        labels: list[dict[str, int]] = [{}]
        seen: dict[int, list[dict[str, int]]] = {}
        for item in module.body(entry):
            if isinstance(item, Scope):
                scopes = [*scopes, {}] if item.opens else scopes[:-1]
                labels = [*labels, {}] if item.opens else labels[:-1]
            elif isinstance(item, PtxDeclaration):
                self._declare(item, scopes)
            elif isinstance(item, PtxVariable):
                if self.variables.setdefault(item.name, item) is not item and item.space != "param":
                    raise Unknown(None, f"two variables of the name {item.name}")
            elif isinstance(item, Label):
                if blocks[-1].statements:
                    blocks.append(CodeBlock())
                labels[-1][item.name] = len(blocks) - 1
            elif isinstance(item, Statement):
                if head(item) == "call" and _FAILS in split_operands(item.operands):
                    item = replace(item, opcode="trap", operands="")
                if head(item) in ("call", "brx", "tex", "alloca"):
                    raise Unknown(item, called(item) if head(item) == "call" else f"{head(item)} is not modelled")
                blocks[-1].statements.append(_renamed(item, scopes))
                if head(item) in ("bra", *ENDS):
                    seen[item.start] = labels
                    blocks.append(CodeBlock())
        for place, block in enumerate(blocks):
            following = [place + 1] if place + 1 < len(blocks) else []
            last = block.statements[-1] if block.statements else None
            if last is not None and head(last) == "bra":
                target = last.operands.strip()
                place = next(one[target] for one in reversed(seen[last.start]) if target in one)
                block.after = [place, *(following if last.guard else ())]
            elif last is None or head(last) not in ENDS or last.guard:
                block.after = following
        return blocks

    def _declare(self, item: PtxDeclaration, scopes: list[dict[str, str]]) -> None:
        for text in item.names.split(","):
            found = _DECLARED.fullmatch(text)
            assert found is not None  # the machine has decoded the kernel
            names = [f"{found[1]}{i}" for i in range(int(found[2]))] if found[2] else [found[1]]
            for name in names:  # of scopes beside each other one name serves: each writes it before it reads
                hides = any(name in one for one in scopes[:-1]) or self.types.get(name, item.type) != item.type
                scopes[-1][name] = own = f"{name}$in{item.type}{len(scopes)}" if hides else name
                self.types[own] = item.type

    def _postorder(self) -> list[int]:
        order: list[int] = []
        seen, waiting = {0}, [(0, iter(self.blocks[0].after))]
        while waiting:
            block, rest = waiting[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                order.append(block)
                waiting.pop()
            else:
                seen.add(following)
                waiting.append((following, iter(self.blocks[following].after)))
        return order

    def _before(self) -> dict[int, list[int]]:
        before: dict[int, list[int]] = {block: [] for block in self.order}
        for block in self.order:
            for following in self.blocks[block].after:
                before[following].append(block)
        return before

    def _loops(self) -> dict[int, set[int]]:
        place, before = {block: i for i, block in enumerate(self.order)}, self._before()
        dominators = {block: set(self.order) for block in self.order}
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for block in self.order[1:]:
                found = set.intersection(*(dominators[one] for one in before[block])) | {block}
                changed |= found != dominators[block]
                dominators[block] = found
        loops: dict[int, set[int]] = {}
        for block in self.order:
            for following in self.blocks[block].after:
                if place[following] > place[block]:
                    continue
                if following not in dominators[block]:
                    raise Unknown(self.blocks[block].statements[-1], "a loop with two entries")
                body, waiting = {following}, [block]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += before[one]
                loops.setdefault(following, set()).update(body)
        return loops

    def _without_spinning(self, block: int) -> None:
        """Turn a loop that only asks an mbarrier again into its one statement, which then is a wait."""
        body = self.loops.pop(block)
        (outside,) = {after for one in body for after in self.blocks[one].after} - body
        self.blocks[block].statements = self.blocks[block].statements[:1]
        self.blocks[block].after = [outside]
        self.waits.add(self.blocks[block].statements[0].start)
        self.order = [one for one in self.order if one == block or one not in body]

    def watch(self, name: str, statements: frozenset[int]) -> None:
        """Keep a value of the proof's own as if it were a register, which some statements change."""
        self.types[name] = "count"
        for one in self.live.values():
            one.add(name)
        for block, body in self.loops.items():
            if any(one.start in statements for place in body for one in self.blocks[place].statements):
                self.written[block].add(name)

    def _liveness(self) -> dict[int, set[str]]:
        reads: dict[int, set[str]] = {}
        writes: dict[int, set[str]] = {}
        for block in self.order:
            used, defined = reads.setdefault(block, set()), writes.setdefault(block, set())
            for one in self.blocks[block].statements:
                written, read = self.effects(one)
                used |= read - defined
                if not one.guard:
                    defined |= written
        live: dict[int, set[str]] = {block: set() for block in self.order}
        changed = True
        while changed:
            changed = False
            for block in reversed(self.order):
                needed = set[str]().union(*(live[one] for one in self.blocks[block].after))
                found = reads[block] | (needed - writes[block])
                changed |= found != live[block]
                live[block] = found
        return live

    def registers(self, text: str) -> list[str]:
        """Return the registers that an operand names."""
        return [name for name in REGISTER.findall(text) if name in self.types]

    def effects(self, statement: Statement) -> tuple[set[str], set[str]]:
        """Return the registers that a statement writes, and those that it reads."""
        names = [self.registers(one) for one in split_operands(statement.operands)]
        reducing = head(statement) in ("bar", "barrier") and ".red" in statement.opcode
        asking = head(statement) == "mbarrier" and not statement.operands.lstrip().startswith("[")
        writes = bool(names) and (head(statement) not in _READS_ALL or reducing or asking)
        written = set(names[0]) if writes else set()
        read = {name for one in names[1 if writes else 0 :] for name in one}
        if statement.guard:
            read |= {statement.guard} | written
        return written, read

    def ends(self, block: int) -> bool:
        """Return True if a thread ends at the beginning of a block."""
        found = self.blocks[block]
        if found.statements:
            return head(found.statements[0]) in ENDS and not found.statements[0].guard
        return not found.after or self.ends(found.after[0])

    def aborts(self, block: int) -> bool:
        """Return True if a thread at the beginning of a block goes straight to the end of the launch."""
        found, after = self.blocks[block].statements, self.blocks[block].after
        if any(head(one) in _BARRIERS for one in found):
            return False
        if found and head(found[-1]) == "trap" and not found[-1].guard:
            return True
        return after == [block + 1] and self.aborts(block + 1)


def waiting_on(graph: Graph, block: int) -> bool:
    """Return True if a loop does nothing but ask an mbarrier until a phase is over."""
    body = graph.loops[block]
    first, *rest = (one for place in (block, *sorted(body - {block})) for one in graph.blocks[place].statements)
    if not first.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")) or first.guard:
        return False
    branches = [one for one in rest if head(one) == "bra"]
    outside = {after for one in body for after in graph.blocks[one].after} - body
    chosen = [one for one in branches if one.guard]
    if len(outside) != 1 or len(chosen) != 1 or any(head(one) not in ("bra", "nanosleep") for one in rest):
        return False
    asked = split_operands(first.operands)[0].strip()
    taken = next(graph.blocks[one].after[0] for one in body if chosen[0] in graph.blocks[one].statements)
    return chosen[0].guard == asked and chosen[0].negated == (taken in body)
