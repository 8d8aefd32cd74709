"""The values of instructions that compute with integers and predicates; of all others None, for any value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.base.element_types import PTX_BYTES
from workbench.proof.bits import bits_of, combined, from_bits, in_parts, masked
from workbench.proof.conditions import (
    Predicate,
    at_most,
    below,
    between,
    both,
    choice,
    either,
    equal,
    negation,
    undivided,
    zero,
)
from workbench.proof.descriptors import bits_of_address, masked_address, with_bits
from workbench.proof.members import same_in_warps
from workbench.proof.memory import has_64_bits, in_register, is_pointer, window
from workbench.proof.state import State, Value
from workbench.proof.terms import BLOCK, Term, quotient, ratio, remainder, term
from workbench.proof.thread import Thread
from workbench.ptx.parse import Statement

WITHOUT_MEMORY = frozenset((
    "abs", "activemask", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot", "copysign",
    "cos", "createpolicy", "cvt", "cvta", "div", "dp2a", "dp4a", "elect", "ex2", "fma", "fns", "isspacep", "lg2",
    "lop3", "mad", "mad24", "madc", "match", "max", "min", "mma", "mov", "movmatrix", "mul", "mul24", "neg", "not",
    "or", "popc", "prmt", "rcp", "redux", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shfl", "shl", "shr",
    "sin", "slct", "sqrt", "sub", "subc", "szext", "tanh", "testp", "vabsdiff", "vabsdiff2", "vabsdiff4", "vadd",
    "vadd2", "vadd4", "vavrg2", "vavrg4", "vmad", "vmax", "vmax2", "vmax4", "vmin", "vmin2", "vmin4", "vote", "vset",
    "vset2", "vset4", "vshl", "vshr", "vsub", "vsub2", "vsub4", "xor",
))  # fmt: skip
"""Instructions that touch no memory: their results may be anything."""
_MOST_PARTS = 33
_INTEGERS = frozenset(f"{kind}{bits}" for kind in "bsu" for bits in (8, 16, 32, 64))


@dataclass(frozen=True)
class Operation:
    """One instruction with its operands in a state. ``kind`` is the type at the end of its opcode."""

    thread: Thread
    statement: Statement
    operands: list[str]
    state: State
    parts: list[str]

    @property
    def kind(self) -> str:
        """Type of the operands."""
        return self.parts[-1]

    @property
    def width(self) -> int:
        """Bits of the type."""
        return 8 * PTX_BYTES[self.kind]

    @property
    def signed(self) -> bool:
        """True for a signed type."""
        return self.kind[0] == "s"

    def value(self, place: int) -> Term:
        """Return an operand, modulo two to the power of its width. Raises TypeError for a predicate."""
        found = self.thread.value(self.statement, self.operands[place], self.state)
        if not isinstance(found, Term):
            raise TypeError
        return found

    def condition(self, place: int) -> Predicate:
        """Return an operand that is a predicate, perhaps negated."""
        text = self.operands[place]
        found = self.thread.value(self.statement, text.lstrip("! "), self.state)
        if not isinstance(found, Predicate):
            raise TypeError
        return negation(found) if text.startswith("!") else found

    def exact(self, place: int, signed: bool | None = None, width: int = 0) -> Term:
        """Return an operand as the integer that the instruction reads from its bits."""
        signed = self.signed if signed is None else signed
        return self.thread.integer(self.statement, self.value(place), signed, width or self.width, self.state)

    def number(self, place: int, width: int = 32) -> int | None:
        """Return an operand that is a number, from its lowest bits; None for any other."""
        found = self.value(place).constant
        return None if found is None else found % (1 << width)

    def holds(self, condition: Predicate) -> bool:
        """Return True if a condition can be proved here; in a trial run always."""
        return not self.thread.exact or self.thread.holds(self.state.path, condition)


def computed(operation: Operation) -> Value:
    """Return the value of an instruction with one result."""
    name, kind = operation.parts[0], operation.kind
    try:
        if name == "setp":
            return _comparison(operation)
        if kind == "pred":
            return _predicate(operation)
        if name == "cvt":
            return _conversion(operation)
        rule = _RULES.get(name)
        return None if rule is None or kind not in _INTEGERS or _clamps(operation) else rule(operation)
    except TypeError:
        return None


def _clamps(one: Operation) -> bool:
    """Return True if a result outside a range becomes its end."""
    return "sat" in one.parts or "relu" in one.parts


def _comparison(one: Operation) -> Value:
    if one.kind not in _INTEGERS:
        return _of_the_block(one) if len(one.parts) == 3 else None
    relation = one.parts[1]
    signed = one.signed
    if relation in ("eq", "ne"):  # either reading of the bits will do
        unsigned = (0, (1 << one.width) - 1)
        signed = not (one.value(1).within(*unsigned) and one.value(2).within(*unsigned))
    left, right = one.exact(1, signed), one.exact(2, signed)
    found = _RELATIONS[relation](left, right)
    if len(one.parts) > 3:
        with_other = {"and": both, "or": either}.get(one.parts[2])
        return None if with_other is None else with_other(found, one.condition(3))
    return found


def _of_the_block(one: Operation) -> Value:
    """Return a comparison of floats that are those of a block, such as loaded ones: unknown, but the same for all."""
    held = [one.thread.value(one.statement, text, one.state) for text in one.operands[1:3]]
    terms = tuple(value for value in held if isinstance(value, Term))
    numbers = [text for value, text in zip(held, one.operands[1:3], strict=True) if value is None and "%" not in text]
    if not terms or len(terms) + len(numbers) < len(held) or any(atom.scope > BLOCK for t in terms for atom in t.deps):
        return None
    name = " ".join([one.statement.opcode, *("" if value is None else "v" for value in held), *numbers])
    return negation(zero(one.thread.specification.arena.atom("unknown", name, terms, 0, 1)))


def _predicate(one: Operation) -> Value:
    name = one.parts[0]
    if name == "mov":
        held = one.thread.value(one.statement, one.operands[1], one.state)
        return held if isinstance(held, Predicate) else negation(equal(held, 0)) if isinstance(held, Term) else None
    if name == "not":
        return negation(one.condition(1))
    if name in ("and", "or"):
        return (both if name == "and" else either)(one.condition(1), one.condition(2))
    if name == "xor":
        left, right = one.condition(1), one.condition(2)
        return either(both(left, negation(right)), both(negation(left), right))
    return None


def _conversion(one: Operation) -> Value:
    to, source = one.parts[-2], one.parts[-1]
    if to not in _INTEGERS or source not in _INTEGERS or "sat" in one.parts:
        return None
    found = one.exact(1) if PTX_BYTES[to] > PTX_BYTES[source] else one.value(1)
    if is_pointer(found) and (PTX_BYTES[to] < 4 or (PTX_BYTES[to] < 8 and has_64_bits(one.thread, found))):
        return None
    return in_register(one.thread, one.statement, one.operands[0], found, to, one.state)


def _mov(one: Operation) -> Value:
    return None if "{" in one.operands[0] + one.operands[1] else one.value(1)


def _cvta(one: Operation) -> Value:
    apart = window(one.thread, one.parts[-2])
    return one.value(1) - apart if "to" in one.parts else one.value(1) + apart


def _mul(one: Operation) -> Value:
    if "wide" in one.parts:
        return one.exact(1) * one.exact(2)
    if "hi" in one.parts:
        product = one.exact(1) * one.exact(2)
        return _by_reciprocal(one, product, one.width)
    return _modulo(one.value(1) * one.value(2), one.width)


def _modulo(value: Term, width: int) -> Term:
    """Return a value without the parts that are multiples of two to the power of a register's width.

    A compiler masks an index only as far as a shift to the left leaves of it.
    """
    kept = {key: factor for key, factor in value.parts.items() if factor % (1 << width)}
    return Term(kept) if len(kept) < len(value.parts) else value


def _mad(one: Operation) -> Value:
    if "hi" in one.parts or "cc" in one.parts:
        return None
    product = _mul(one)
    return product + one.value(3) if isinstance(product, Term) else None


def _shl(one: Operation) -> Value:
    count = one.number(2)
    if count is None:
        return None
    return _modulo(one.value(1) * (1 << count), one.width) if count < one.width else term(0)


def _shr(one: Operation) -> Value:
    count = one.number(2)
    if count is None or count >= one.width:
        return None
    of_address = bits_of_address(one.thread, one.value(1), count, one.width - count)
    if of_address is not None:
        return of_address
    value = one.exact(1)
    if count == one.width - 1 and one.signed and _at_least_zero(one, value):
        return term(0)  # how a division rounds to 0: with the sign
    bits = bits_of(value, one.width)
    if bits is not None and value.within(0, (1 << one.width - 1) - 1):
        return from_bits(bits[count:])
    if count == one.width - 1 and value.constant is None and one.holds(between(0, value, (1 << count) - 1)):
        return term(0)  # the sign, by which compilers correct a division
    inner = value.atom
    if inner is not None and inner.kind == "quotient" and inner.args[1].bit_count() == 1:  # the upper half of a product
        return _by_reciprocal(one, inner.args[0], count + inner.args[1].bit_length() - 1)
    most = value.bounds[1]
    if most is not None and most < 1 << count and _at_least_zero(one, value):
        return term(0)
    return _by_reciprocal(one, value, count)


def _by_reciprocal(one: Operation, product: Term, shift: int) -> Term:
    """Return a product shifted right: a quotient, where the factor is the reciprocal by which compilers divide."""
    scale = math.gcd(*product.parts.values()) if product.parts else 0
    for part in range(1, _MOST_PARTS if shift >= 16 and scale >> shift - 12 else 0):
        factor, rest = divmod(scale, part)
        if rest:
            continue
        divisor = -(-(1 << shift) // factor)
        excess = factor * divisor - (1 << shift)
        if divisor > 2 and 0 < excess < divisor:  # exact below (1 << shift) / excess
            dividend = Term({key: number // factor for key, number in product.parts.items()})
            if one.holds(between(0, dividend, (1 << shift) // excess - 1)):
                return quotient(dividend, divisor)
    return quotient(product, 1 << shift)


def _bitwise(one: Operation) -> Value:
    name, width = one.parts[0], one.width
    left, right = one.value(1), one.value(2)
    if left.constant is not None:
        left, right = right, left
    mask = right.constant
    if mask is not None:
        mask %= 1 << width
        of_address = masked_address(one.thread, left, mask) if name == "and" else with_bits(left, mask)
        if of_address is not None and name != "xor":
            return of_address
        if name == "xor" and mask == (1 << width) - 1:
            return -left - 1
        if name == "and" and left.within(-1, 0):  # how LLVM writes a choice between a mask and 0
            return -left * mask
        right = term(mask)
    found = (
        combined(name, left, right, width) or in_parts(name, left, right, width) or in_parts(name, right, left, width)
    )
    if found is not None:
        return found
    if name == "and":
        return None if mask is None else masked(left, mask, width)
    if name == "or":
        return _disjoint(one.exact(1, False), one.exact(2, False) if mask is None else right)
    return None


def _disjoint(left: Term, right: Term) -> Value:
    """Return the sum of two terms of which one is a multiple of a power of two above the other."""
    for one, other in ((left, right), (right, left)):
        low, high = other.bounds
        if low is not None and low >= 0 and high is not None:
            unit = 1 << high.bit_length()
            if all(factor % unit == 0 for factor in one.parts.values()):
                return one + other
    return None


def _extreme(one: Operation) -> Value:
    left, right = one.exact(1), one.exact(2)
    first = undivided(left - right)
    return choice(first, left, right) if one.parts[0] == "min" else choice(first, right, left)


def _abs(one: Operation) -> Value:
    value = one.exact(1, True)
    return choice(below(value, 0), -value, value)


def _divide(one: Operation) -> Value:
    left, right = one.exact(1), one.exact(2)
    divisor = right.constant
    if divisor is not None:
        if divisor < 1 or not _at_least_zero(one, left):
            return None
        found = quotient(left, divisor)
    elif one.holds(both(at_most(0, left), at_most(1, right))):
        found = ratio(left, right)
    else:
        return None
    return found if one.parts[0] == "div" else left - found * right


def _at_least_zero(one: Operation, value: Term) -> bool:
    least = value.bounds[0]
    return (least is not None and least >= 0) or one.holds(at_most(0, value))


def _shfl(one: Operation) -> Value:
    """Return what a lane that all others ask holds, where the numbers of the threads say that it is the same in all."""
    lane, segments, mask = (one.value(place).constant for place in (2, 3, 4))
    value = one.value(1)
    if "idx" not in one.parts or segments != 31 or mask not in (-1, 0xFFFF_FFFF) or lane is None or not 0 <= lane < 32:
        return None
    return value if same_in_warps(value, one.thread.specification) else None


def _bfe(one: Operation) -> Value:
    start, length = one.number(2, 8), one.number(3, 8)
    if start is None or not length or start + length > one.width:
        return None
    of_address = bits_of_address(one.thread, one.value(1), start, length)
    if of_address is not None and not one.signed:
        return of_address
    value = one.exact(1, False)
    bits = bits_of(value, one.width)
    if bits is not None:
        found, top = from_bits(bits[start : start + length]), bits[start + length - 1]
    else:
        found = remainder(quotient(value, 1 << start), 1 << length)
        top = quotient(found, 1 << length - 1)
    return found - top * (1 << length) if one.signed else found


_RELATIONS: Mapping[str, Callable[[Term, Term], Predicate]] = {
    "lt": below, "lo": below, "le": at_most, "ls": at_most, "eq": equal,
    "gt": lambda one, other: below(other, one), "hi": lambda one, other: below(other, one),
    "ge": lambda one, other: at_most(other, one), "hs": lambda one, other: at_most(other, one),
    "ne": lambda one, other: negation(equal(one, other)),
}  # fmt: skip
_RULES: Mapping[str, Callable[[Operation], Value]] = {
    "mov": _mov, "cvta": _cvta, "add": lambda one: one.value(1) + one.value(2),
    "sub": lambda one: one.value(1) - one.value(2), "neg": lambda one: -one.value(1),
    "not": lambda one: -one.value(1) - 1, "mul": _mul, "mad": _mad, "shl": _shl, "shr": _shr, "and": _bitwise,
    "or": _bitwise, "xor": _bitwise, "min": _extreme, "max": _extreme, "abs": _abs, "div": _divide, "rem": _divide,
    "bfe": _bfe, "shfl": _shfl, "selp": lambda one: choice(one.condition(3), one.value(1), one.value(2)),
}  # fmt: skip


def as_integer(value: Term, signed: bool, width: int) -> tuple[Term, Predicate]:
    """Return what an instruction reads from the bits of a value, and the condition under which that is the value."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if is_pointer(value):
        offset = Term({key: factor for key, factor in value.parts.items() if not is_pointer(Term({key: 1}))})
        return value, between(0, offset, 1 << width - 2)
    return value - quotient(value - low, 1 << width) * (1 << width), between(low, value, high)
