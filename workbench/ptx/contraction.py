"""Contraction of a product and a sum to one rounding, by the rule of ptxas.

The PTX ISA lets the assembler fuse ``mul`` with ``add`` or ``sub`` unless one of them has ``.rn``, and ptxas does. Its
rule, read from the machine code of releases 12.8, 13.0 and 13.1 for sm_75 to sm_120 (from ``-O1`` on):

* Both stand in one stretch of straight-line code. A barrier between them, a label or a jump that only leads on does not
  matter; a branch does, also where ptxas predicates its code later.
* They have the same type and both or neither ``.ftz``. The sum may have ``.sat`` and a guard, the product neither.
* ``mov`` and ``neg`` lead through (``neg.bf16x2`` does not), and so do a product with 1 or -1 and ``abs.f32`` of a
  square. They change the sign of the product, which is exact.
* All uses of the product are such sums, so that the product itself is no longer needed.
* Of two products the sum takes one with a single use, then the one with fewer uses, then its first operand. Products
  with a single use are placed first; a sum that is taken leaves its other product a use that is not a contraction.
* The sum of two equal products stays the double of the rounded one.

The product stays in the code, so that counts do not change. The sum becomes ``contract``, an fma of the product's
operands; these are copied if they are overwritten before the sum.

ptxas also unrolls loops. Then a product at the end of a loop meets a sum at its beginning in some of the iterations;
here it never does. And it fuses the product inside ``div.approx`` and ``div.full``, whose bits are not a GPU's anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.ptx.flow import BasicBlock
from workbench.ptx.instruction import Form, InstructionStep, elementwise
from workbench.ptx.machine import OPCODES, core
from workbench.ptx.operands import Constant, Operand, Register, Symbols

_FIRST, _SECOND = core.Elementwise.source, core.Elementwise.source + 1
_MINUS_PRODUCT, _MINUS_ADDEND = 1, 2  # as in core/arithmetic/contraction.cpp
_SUMS = ("add", "sub")
_ONES = {"f32": 0x3F80_0000, "f64": 0x3FF0_0000_0000_0000}
_SIGNS = {"f32": 1 << 31, "f64": 1 << 63}


@dataclass(slots=True, eq=False)
class _Product:
    """A product that may be fused, with the sums that use it; ``lost`` if it has another use."""

    step: InstructionStep
    place: int
    uses: list[_Use] = field(default_factory=list)
    lost: bool = False


class _Use(NamedTuple):
    """A use of a product as operand 0 or 1 of the sum at a place; ``negated`` if its sign changed on the way."""

    place: int
    operand: int
    negated: bool


_Value = tuple[_Product, bool]  # and True if its sign changed


def contract(blocks: Sequence[BasicBlock], order: Sequence[int], symbols: Symbols) -> None:
    """Fuse the products and sums of a unit, in place."""
    steps = [step for number in order for step in blocks[number].code if step.form.contracts]
    followed = _followed(steps)
    if not followed:
        return
    code = [
        blocks[region[0]].code if len(region) == 1 else [step for number in region for step in blocks[number].code]
        for region in _regions(blocks, order)
    ]
    copies = []
    for region, products in _products(code, followed):
        chosen = _chosen(region, products)
        if chosen:
            copies += _fused(region, chosen, symbols)
    if copies:
        _insert(blocks, copies)


def _followed(steps: Sequence[InstructionStep]) -> set[Register]:
    """Return the registers through which a product may reach a sum; nothing if none does."""
    wanted = {register for step in steps if step.form.contracts in _SUMS for register in step.registers}
    through = [(step.registers, step.form) for step in steps if _leads_through(step)]
    ways = [(registers[form.writes[0]], registers[form.reads[0]]) for registers, form in through if form.reads]
    while further := {source for target, source in ways if target in wanted} - wanted:
        wanted |= further
    products = {
        _target(step) for step in steps if step.form.contracts == "mul" and not wanted.isdisjoint(step.registers)
    }
    products &= wanted
    return products | wanted.intersection(target for target, _ in ways) if products else products


def _regions(blocks: Sequence[BasicBlock], order: Sequence[int]) -> Iterator[list[int]]:
    """Yield stretches of straight-line code: each block leads only to the next one, and nothing else leads there."""
    before = [0] * len(blocks)
    before[order[0]] = 1
    for number in order:
        for following in blocks[number].successors:
            before[following] += 1
    leads_to = {
        number: blocks[number].successors[0]
        for number in order
        if len(blocks[number].successors) == 1
        and before[blocks[number].successors[0]] == 1
        and not _may_leave(blocks[number])
    }
    inner = set(leads_to.values())
    for number in order:
        if number not in inner:
            region = [number]
            while region[-1] in leads_to:
                region.append(leads_to[region[-1]])
            yield region


def _may_leave(block: BasicBlock) -> bool:
    """Return True if some threads exit or return at the end of a block."""
    return bool(block.code) and block.code[-1].form.ends and block.code[-1].guard is not None


def _target(step: InstructionStep) -> Register:
    return step.registers[step.form.writes[0]]


def _sources(step: InstructionStep) -> list[Register]:
    return [step.registers[at] for at in step.form.reads]


def _products(
    code: Sequence[Sequence[InstructionStep]], followed: set[Register]
) -> list[tuple[Sequence[InstructionStep], list[_Product]]]:
    """Return each region with its products of which all uses are sums."""
    exposed: set[Register] = set()
    ends: list[tuple[Register, _Product]] = []
    products = []
    for steps in code:
        touching = [(place, step) for place, step in enumerate(steps) if not followed.isdisjoint(step.registers)]
        if touching:
            walk = _Walk(followed, exposed)
            for place, step in touching:
                walk.take(place, step)
            ends += [(register, value[0]) for register, value in walk.values.items() if value is not None]
            products.append((steps, walk.products))
    for register, product in ends:
        product.lost |= register in exposed
    return [(steps, [one for one in found if one.uses and not one.lost]) for steps, found in products if found]


def _leads_through(step: InstructionStep) -> bool:
    """Return True if a step passes on a product, perhaps with another sign."""
    return step.form.contracts == "through" or (step.form.contracts == "mul" and _unit_factor(step) is not None)


def _unit_factor(step: InstructionStep) -> bool | None:
    """Return True for a product with -1, False for one with 1, None for another."""
    for _, operand in step.form.fixed:
        kind = _kind(step.opcode.name)[0]
        if type(operand) is Constant and kind in _ONES and operand.value & ~_SIGNS[kind] == _ONES[kind]:
            return bool(operand.value & _SIGNS[kind])
    return None


@functools.cache
def _kind(name: str) -> tuple[str, bool]:
    """Return the type of an instruction, and True if it has .ftz; only equal ones are contracted."""
    return name.rpartition(".")[2], ".ftz" in name


class _Walk:
    """A walk through one region that follows the values of registers.

    ``values`` has what a register holds: a product with its sign, or None for anything else. A register that is not in
    it has the value from before the region; one that is read in that state is ``exposed``.
    """

    def __init__(self, followed: set[Register], exposed: set[Register]):
        self._followed, self._exposed = followed, exposed
        self.values: dict[Register, _Value | None] = {}
        self.products: list[_Product] = []

    def take(self, place: int, step: InstructionStep) -> None:
        """Follow one step."""
        form, registers = step.form, step.registers
        read = _sources(step)
        for register in read:
            if register in self._followed and register not in self.values:
                self._exposed.add(register)
        held = [value for register in read if (value := self.values.get(register)) is not None]
        made: _Value | None = None
        if held:
            made = self._passed_on(step, held[0])
            if made is None:
                self._use(place, step, held)
        if form.contracts == "mul" and step.guard is None and _unit_factor(step) is None:
            self.products.append(_Product(step, place))
            made = self.products[-1], False
        for at in form.writes:
            self._write(registers[at], made, step.guard is not None)

    def _passed_on(self, step: InstructionStep, value: _Value) -> _Value | None:
        """Return the product that a step passes on, or None if it computes anything else."""
        if step.guard is not None or not _leads_through(step):
            return None
        product, negated = value
        name = step.opcode.name
        if name.startswith("mov."):
            return value
        kind, flushes = _kind(product.step.opcode.name)
        own, own_flushes = _kind(name)
        if own != kind or own_flushes > flushes:
            return None
        if name.startswith("neg."):
            return product, not negated
        if name.startswith("abs."):
            factors = _factors(product.step)
            return (product, False) if factors[0] is factors[1] else None
        return (product, negated != _unit_factor(step)) if own_flushes == flushes else None

    def _use(self, place: int, step: InstructionStep, held: Sequence[_Value]) -> None:
        for value in held:
            product = value[0]
            other = step.form.contracts not in _SUMS or len([one for one in held if one[0] is product]) > 1
            if other or _kind(step.opcode.name) != _kind(product.step.opcode.name):
                product.lost = True
        if step.form.contracts in _SUMS:
            for operand, source in enumerate(_factors(step)):
                found = self.values.get(source) if type(source) is Register else None
                if found is not None:
                    found[0].uses.append(_Use(place, operand, found[1]))

    def _write(self, register: Register, made: _Value | None, guarded: bool) -> None:
        if register not in self._followed:
            if made is not None:
                made[0].lost = True
        elif not guarded:
            self.values[register] = made
        else:  # in lanes where the guard is false the earlier value stays
            for value in (made, self.values.get(register)):
                if value is not None:
                    value[0].lost = True
            if register not in self.values:
                self._exposed.add(register)
            self.values[register] = None


def _factors(step: InstructionStep) -> tuple[Operand, Operand]:
    """Return the two sources of a product or a sum."""
    found: dict[int, Operand] = dict(step.form.fixed)
    found |= {slot: step.registers[place] for slot, place in step.form.places}
    return found[_FIRST], found[_SECOND]


def _chosen(steps: Sequence[InstructionStep], products: list[_Product]) -> dict[int, tuple[_Product, _Use]]:
    """Return the product that each sum takes, by the sum's place."""
    at: dict[int, list[tuple[_Product, _Use]]] = {}
    for product in products:
        for use in product.uses:
            at.setdefault(use.place, []).append((product, use))
    for place, found in at.items():
        if len(found) == 2 and _is_double(steps, place, found):
            for product, _ in found:
                product.lost = True
    taken: dict[int, tuple[_Product, _Use]] = {}

    def free(product: _Product) -> bool:
        mine = (taken.get(use.place) for use in product.uses)
        return not product.lost and all(one is None or one[0] is product for one in mine)

    for most in (1, len(steps)):
        for place, found in sorted(at.items()):
            if place not in taken:
                possible = [one for one in found if len(one[0].uses) <= most and free(one[0])]
                if possible:
                    taken[place] = min(possible, key=lambda one: (len(one[0].uses), one[1].operand))
    return taken


def _is_double(steps: Sequence[InstructionStep], place: int, found: Sequence[tuple[_Product, _Use]]) -> bool:
    """Return True for the sum of two equal products without a sign."""
    (one, use), (other, second) = sorted(found, key=lambda each: each[1].operand)
    if use.negated or second.negated != (steps[place].form.contracts == "sub"):
        return False
    factors, others = set(_factors(one.step)), set(_factors(other.step))
    first, last = sorted((one.place, other.place))
    return factors == others and not any(_writes(step, factors) for step in steps[first:last])


def _writes(step: InstructionStep, registers: set[Operand]) -> bool:
    return any(step.registers[at] in registers for at in step.form.writes)


def _fused(
    steps: Sequence[InstructionStep], chosen: dict[int, tuple[_Product, _Use]], symbols: Symbols
) -> list[tuple[InstructionStep, InstructionStep]]:
    """Fuse the sums; return copies of operands that are overwritten before it, each with the step that it precedes."""
    wanted = {factor for product, _ in chosen.values() for factor in _factors(product.step)}
    written: dict[Register, list[int]] = {}
    for place, step in enumerate(steps):
        if not wanted.isdisjoint(step.registers):
            for at in step.form.writes:
                written.setdefault(step.registers[at], []).append(place)
    kept: dict[tuple[_Product, Operand], Register] = {}
    copies = []
    forms: dict[tuple[object, ...], Form] = {}
    for place, (product, use) in chosen.items():
        factors = []
        for factor in _factors(product.step):
            if type(factor) is Register and any(product.place <= at < place for at in written.get(factor, ())):
                if (product, factor) not in kept:
                    kept[product, factor] = copy = symbols.temporary(factor.width)
                    moved = elementwise(OPCODES[f"mov.b{8 * factor.width}"], copy, factor)
                    copies.append((product.step, InstructionStep.of(moved)))
                factor = kept[product, factor]
            factors.append(factor)
        _fuse(steps[place], factors, use, forms)
    return copies


def _fuse(step: InstructionStep, factors: Sequence[Operand], use: _Use, forms: dict[tuple[object, ...], Form]) -> None:
    """Make a sum the fma of the factors of its product and its other operand."""
    operation, _, rest = step.opcode.name.partition(".")
    signs = _MINUS_PRODUCT if use.negated != (operation == "sub" and use.operand == 1) else 0
    signs |= _MINUS_ADDEND if operation == "sub" and use.operand == 0 else 0
    operands = [_target(step), *factors, _factors(step)[1 - use.operand]]
    key = (rest, signs, *[one.width if type(one) is Register else one for one in operands])
    if key not in forms:
        # Each place has a stand-in of its own, because steps of this form may name a register twice.
        named = [Register("", one.width, place) if type(one) is Register else one for place, one in enumerate(operands)]
        registers = [one for one in named if type(one) is Register]
        made = elementwise(OPCODES[f"contract.{rest}"], registers[0], *named[1:], imm=signs)
        forms[key] = Form(made, registers)
    step.form = forms[key]
    step.registers = [one for one in operands if type(one) is Register]


def _insert(blocks: Iterable[BasicBlock], copies: Sequence[tuple[InstructionStep, InstructionStep]]) -> None:
    """Insert steps before others."""
    before: dict[int, list[InstructionStep]] = {}
    for step, copy in copies:
        before.setdefault(id(step), []).append(copy)
    for block in blocks:
        if any(id(step) in before for step in block.code):
            block.code[:] = [part for step in block.code for part in (*before.get(id(step), ()), step)]
