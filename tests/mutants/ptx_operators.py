"""Mutation operators on PTX: each is a slip of the hand, applied to one instruction, whatever kernel it belongs to.

They know the instruction set and nothing of a kernel's source, so a kernel may be written anew without touching them.
The idea is that of mutation testing (DeMillo, Lipton and Sayward 1978: "Hints on test data selection"); equivalent
mutants, of which PTX has many, are why tests hold a rate and not every single one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mutants.ptx_instruction import Instruction
from workbench.base.element_types import PTX_BYTES
from workbench.ptx.parse import parse_number

LANES = ("active", "held back")
"""Lanes that execute an instruction, and lanes that its guard or a branch holds back."""

INTEGERS = ("s16", "s32", "s64", "u16", "u32", "u64")
REGISTER = re.compile(r"%[a-z]+\d+")


@dataclass(frozen=True)
class Operator:
    """A slip: ``apply`` returns the text that replaces an instruction, or None for one that it does not concern.

    ``kind`` is the class whose kill rate a test holds. ``lanes`` of `LANES` are those in which it matters.
    """

    name: str
    kind: str
    apply: Callable[[Instruction], str | None]
    lanes: str = LANES[0]


def starting(prefixes: Iterable[str], change: Callable[[Instruction], str | None]) -> Callable:
    """Apply ``change`` to instructions whose opcode starts with one of the prefixes."""
    prefixes = tuple(prefixes)
    return lambda one: change(one) if one.opcode.startswith(prefixes) else None


def nothing(_: Instruction) -> str:
    """Leave the instruction out; a label in front of it stays."""
    return ""


# -- synchronisation ------------------------------------------------------------------------------------------------

BARRIERS = ("bar.sync", "bar.warp.sync", "barrier.sync", "barrier.cluster.", "bar.arrive", "bar.cta")
WAITS = ("cp.async.wait_", "cp.async.bulk.wait_group", "wgmma.wait_group", "tcgen05.wait")
COMMITS = ("cp.async.commit_group", "wgmma.commit_group", "tcgen05.commit", "mbarrier.arrive")


def without_vote(one: Instruction) -> str | None:
    """Replace a barrier that also votes by each thread's own vote."""
    if one.opcode.startswith(("bar.red.", "barrier.red.", "bar.cta.red.", "barrier.cta.red.")) and one.type == "pred":
        source = one.operands[-1]
        return one.written("not.pred" if source.startswith("!") else "mov.pred", one.operands[0], source.strip("!"))
    return None


def without_wait(one: Instruction) -> str | None:
    """Take an mbarrier's phase for over from the beginning."""
    if one.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
        return one.written("setp.eq.u32", one.operands[0], "0", "0")
    return None


def waits_for_less(one: Instruction) -> str | None:
    """Let a wait leave one group more under way."""
    if "wait_group" in one.opcode and one.operands[0].isdigit():
        return one.with_operand(0, str(int(one.operands[0]) + 1))
    return None


# -- guards and comparisons -----------------------------------------------------------------------------------------


def guard_ignored(one: Instruction) -> str | None:
    """Always do what a predicate holds back."""
    if one.guard and one.words[0] not in ("bra", "nanosleep"):
        return f"{one.opcode} {one.statement.operands};"
    return None


def branch_always(one: Instruction) -> str | None:
    """Always take a conditional branch."""
    return f"{one.opcode} {one.statement.operands};" if one.guard and one.opcode == "bra" else None


def branch_never(one: Instruction) -> str | None:
    """Never take a conditional branch."""
    return "" if one.guard and one.opcode == "bra" else None


def condition_dropped(one: Instruction) -> str | None:
    """Keep one of two conditions."""
    return one.written("mov.pred", *one.operands[:2]) if one.opcode in ("and.pred", "or.pred") else None


ONE_OFF = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi"}
NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "equ": "neu", "neu": "equ"}


def _compared(one: Instruction, other: dict[str, str], types: tuple[str, ...]) -> str | None:
    if one.words[0] != "setp" or one.words[1] not in other or one.type not in types:
        return None
    return one.with_opcode(".".join(["setp", other[one.words[1]], *one.words[2:]]))


def one_off(one: Instruction) -> str | None:
    """Move a bound of whole numbers by one."""
    return _compared(one, ONE_OFF, INTEGERS)


def negated(one: Instruction) -> str | None:
    """Turn a comparison the other way round."""
    return _compared(one, NEGATED, (*INTEGERS, "b16", "b32", "b64", "f16", "f32", "f64"))


def other_choice(one: Instruction) -> str | None:
    """Choose the other one of two values."""
    if one.words[0] != "selp":
        return None
    to, yes, no, predicate = one.operands
    return one.written(one.opcode, to, no, yes, predicate)


# -- arithmetic -----------------------------------------------------------------------------------------------------


def add_for_sub(one: Instruction) -> str | None:
    """Take a sum for a difference, and the reverse."""
    other = {"add": "sub", "sub": "add"}.get(one.words[0])
    return one.with_opcode(".".join([other, *one.words[1:]])) if other and "cc" not in one.words else None


def immediate_off_by_one(one: Instruction) -> str | None:
    """Add one to a whole number in an addition, or to the start of a counter."""
    if one.words[0] not in ("add", "sub", "mov", "mad", "and") or one.type not in (*INTEGERS, "b16", "b32", "b64"):
        return None
    value = parse_number(one.operands[-1])
    return one.with_operand(len(one.operands) - 1, str(value + 1)) if isinstance(value, int) else None


def stride_halved(one: Instruction) -> str | None:
    """Halve the factor of a whole number."""
    if one.words[0] == "shl" or (one.words[0] in ("mul", "mad") and one.type in INTEGERS):
        value = parse_number(one.operands[2])
        if isinstance(value, int) and value > 1:
            return one.with_operand(2, str(value - 1 if one.words[0] == "shl" else value // 2))
    return None


def max_for_min(one: Instruction) -> str | None:
    """Take the smaller one for the larger one, and the reverse."""
    other = {"max": "min", "min": "max"}.get(one.words[0])
    return one.with_opcode(".".join([other, *one.words[1:]])) if other else None


def sign_lost(one: Instruction) -> str | None:
    """Take a byte or a bit field without its sign; what is shifted to the right rarely has one."""
    if one.words[0] == "bfe" and one.type in ("s32", "s64"):
        return one.with_opcode(one.opcode.removesuffix(one.type) + f"u{one.type[1:]}")
    if one.words[0] == "cvt" and one.type in ("s8", "s16"):
        return one.with_opcode(".".join([*one.words[:-1], f"u{one.type[1:]}"]).replace("cvt.s", "cvt.u"))
    return None


# -- multiplication -------------------------------------------------------------------------------------------------


def factor_dropped(one: Instruction) -> str | None:
    """Drop the second factor of a product, or the divisor of a quotient."""
    if one.words[0] in ("mul", "div") and one.type in PTX_BYTES and "hi" not in one.words:
        return one.moved(one.operands[1])
    return None


def product_dropped(one: Instruction) -> str | None:
    """Take ``c`` for ``a * b + c``."""
    if one.words[0] in ("fma", "mad") and one.type in PTX_BYTES:
        if ".wide." in one.opcode:
            return one.written(f"mov.b{16 * PTX_BYTES[one.type]}", one.operands[0], one.operands[3])
        return one.moved(one.operands[3])
    return None


def sum_dropped(one: Instruction) -> str | None:
    """Take ``a * b`` for ``a * b + c``."""
    if one.words[0] not in ("fma", "mad"):
        return None
    words = ["mul", *one.words[1:]]
    return one.written(".".join(words), *one.operands[:3])


def _fragments(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{} \t").split(",")]


def tile_product_dropped(one: Instruction) -> str | None:
    """Leave out a tensor core's product; the result is what it would be added to."""
    if one.opcode.startswith("mma.sync"):
        to, *_, summed = map(_fragments, one.operands)
        kind = "f32" if one.words[-4] == "f32" else "b32"
        names = [f"%kept{i}" for i in range(len(to))]  # a result may be another's summand
        return one.in_scope(
            f".reg .{kind} {', '.join(names)};",
            *(one.written(f"mov.{kind}", name, part) for name, part in zip(names, summed, strict=True)),
            *(one.written(f"mov.{kind}", part, name) for name, part in zip(names, to, strict=True)),
        )
    return "" if one.opcode.startswith(("wgmma.mma_async", "tcgen05.mma")) else None


def tile_sum_dropped(one: Instruction) -> str | None:
    """Start a tensor core's sum at zero."""
    if not one.opcode.startswith("mma.sync"):
        return None
    count = len(_fragments(one.operands[3]))
    zeros = ["0f00000000" if one.words[-1] == "f32" else "0"] * count
    return one.with_operand(3, "{" + ", ".join(zeros) + "}")


def base_not_changed(one: Instruction) -> str | None:
    """Take a power of e for one of 2."""
    if one.words[0] != "ex2" or one.type != "f32":
        return None
    scaled = one.written("mul.f32", "%scaled", one.operands[1], "0f3FB8AA3B")  # log2(e)
    return one.in_scope(".reg .f32 %scaled;", scaled, one.with_operand(1, "%scaled"))


# -- memory ---------------------------------------------------------------------------------------------------------

LOADS = ("ld.global", "ld.shared", "ldmatrix", "cp.async.ca", "cp.async.cg")


def next_element(one: Instruction) -> str | None:
    """Load from the element behind, or from the access behind where it takes several."""
    if not one.opcode.startswith(LOADS):
        return None
    if one.words[0] == "ldmatrix":
        size = 16
    elif one.words[0] == "cp":
        size = int(one.operands[2], 0)
    else:
        size = PTX_BYTES[one.type] * next((int(word[1]) for word in one.words if word in ("v2", "v4", "v8")), 1)
    address = one.operands[1].strip("[] ")
    base, _, offset = address.partition("+")
    return one.with_operand(1, f"[{base.strip()}+{(parse_number(offset.strip()) if offset else 0) + size}]")


STORES = ("st.global", "st.shared", "stmatrix", "red.", "cp.async.bulk.tensor", "cp.async.ca", "cp.async.cg")


# -- exchanges between lanes and registers ----------------------------------------------------------------------------


def other_distance(one: Instruction) -> str | None:
    """Shuffle over twice the distance."""
    if one.words[0] != "shfl":
        return None
    far = one.written("shl.b32", "%far", one.operands[2], "1")
    return one.in_scope(".reg .b32 %far;", far, one.with_operand(2, "%far"))


def shuffle_dropped(one: Instruction) -> str | None:
    """Take a lane's own value for that of another."""
    if one.words[0] != "shfl" or "|" in one.operands[0]:
        return one.with_operand(2, "0") if one.opcode.startswith("shfl.sync.bfly") else None
    return one.written("mov.b32", *one.operands[:2])


def _first_source(one: Instruction) -> int:
    return 0 if one.words[0] in ("st", "red") else 1


def wrong_register(one: Instruction) -> str | None:
    """Use for the last source the register that was written last of those with the name's prefix."""
    sources = one.operands[_first_source(one) :]
    found = [name for operand in sources for name in REGISTER.findall(operand)]
    if not found or one.words[0] in ("bra", "call", "ret"):
        return None
    own, used = found[-1], set(REGISTER.findall(one.statement.operands))
    prefix = own.rstrip("0123456789")
    for earlier in reversed(one.before):
        written = REGISTER.findall(earlier.operands[0]) if earlier.operands and "[" not in earlier.operands[0] else []
        for name in written:
            if name.rstrip("0123456789") == prefix and name not in used:
                first = _first_source(one)
                last = max(at for at in range(first, len(one.operands)) if own in REGISTER.findall(one.operands[at]))
                return one.with_operand(last, re.sub(rf"{own}(?!\d)", name, one.operands[last]))
    return None


def exchanged(one: Instruction) -> str | None:
    """Exchange two operands where their order matters; of a tensor core two registers of the second operand."""
    if one.opcode.startswith("mma.sync"):
        pieces = _fragments(one.operands[2])
        return one.with_operand(2, "{" + ", ".join(reversed(pieces)) + "}") if len(set(pieces)) > 1 else None
    if one.words[0] not in ("sub", "div", "prmt") or one.operands[1] == one.operands[2]:
        return None
    to, first, second, *others = one.operands
    return one.written(one.opcode, to, second, first, *others)


def kept_in_32_bits(one: Instruction) -> str | None:
    """Keep the low half of a 64-bit product, as C's int would."""
    wide = one.words[0] in ("mul", "mad") and (one.words[1] == "wide" or one.type in ("s64", "u64"))
    if not wide and one.opcode != "shl.b64":
        return None
    to = one.operands[0]
    cut = one.written("cvt.u32.u64", "%low", to), one.written("cvt.s64.s32", to, "%low")
    return one.in_scope(".reg .b32 %low;", one.with_opcode(one.opcode), *cut)


OPERATORS = (
    Operator("barrier dropped", "synchronisation", starting(BARRIERS, nothing)),
    Operator("vote without barrier", "synchronisation", without_vote),
    Operator("wait dropped", "synchronisation", starting(WAITS, nothing)),
    Operator("phase not awaited", "synchronisation", without_wait),
    Operator("waits for less", "synchronisation", waits_for_less),
    Operator("commit dropped", "synchronisation", starting(COMMITS, nothing)),
    Operator("guard ignored", "guard", guard_ignored, LANES[1]),
    Operator("branch always taken", "guard", branch_always, LANES[1]),
    Operator("branch never taken", "guard", branch_never),
    Operator("condition dropped", "guard", condition_dropped),
    Operator("comparison one off", "comparison", one_off),
    Operator("comparison negated", "comparison", negated),
    Operator("other choice", "comparison", other_choice),
    Operator("add for sub", "arithmetic", add_for_sub),
    Operator("immediate off by one", "arithmetic", immediate_off_by_one),
    Operator("stride halved", "arithmetic", stride_halved),
    Operator("max for min", "arithmetic", max_for_min),
    Operator("sign lost", "arithmetic", sign_lost),
    Operator("factor dropped", "multiplication", factor_dropped),
    Operator("product dropped", "multiplication", product_dropped),
    Operator("sum dropped", "multiplication", sum_dropped),
    Operator("tile product dropped", "multiplication", tile_product_dropped),
    Operator("tile sum dropped", "multiplication", tile_sum_dropped),
    Operator("base not changed", "multiplication", base_not_changed),
    Operator("next element", "load", next_element),
    Operator("store dropped", "store", starting(STORES, nothing)),
    Operator("other distance", "shuffle", other_distance),
    Operator("shuffle dropped", "shuffle", shuffle_dropped),
    Operator("wrong register", "operand", wrong_register),
    Operator("operands exchanged", "operand", exchanged),
)

KEPT_IN_32_BITS = Operator("kept in 32 bits", "address", kept_in_32_bits)
"""Operator that is none of `OPERATORS`: only memory of more than 2**31 elements shows it."""

KINDS = tuple(dict.fromkeys(operator.kind for operator in OPERATORS))
