"""tcgen05: tensor memory and its products."""

from __future__ import annotations

from collections.abc import Callable

from workbench.ptx.families.memory import place
from workbench.ptx.families.refused import SHIFTED_PRODUCT, SPARSE_STATIONARY
from workbench.ptx.instruction import Instruction, Plan, destination, expect, opcode, source, vector
from workbench.ptx.machine import ADDRESS, ASYNC_PROXY, CLUSTER_BASE, FLAGS, FRAGMENT, core
from workbench.ptx.operands import Constant, Operand, Refused, Symbols

_MOVE, _PRODUCT, _COMMIT = core.TensorMove, core.TensorProduct, core.TensorCommit
_SHAPE, _KIND, _FLAGS = core.TensorShape, core.TensorKind, core.TensorFlags
_UNKNOWN = "the machine does not support this tcgen05"
# Registers of .x1 by shape, and the most of them that an instruction moves.
_MOVED = {"32x32b": (_SHAPE.l32_b32, 1), "16x64b": (_SHAPE.l16_b64, 1), "16x128b": (_SHAPE.l16_b128, 2),
          "16x256b": (_SHAPE.l16_b256, 4), "16x32bx2": (_SHAPE.l16_b32_x2, 1)}  # fmt: skip
_MOST_REGISTERS = 128
_COPIED = {
    ("128x256b", ""): _SHAPE.l128_b256,
    ("128x128b", ""): _SHAPE.l128_b128,
    ("64x128b", "warpx2::02_13"): _SHAPE.l64_b128_02_13,
    ("64x128b", "warpx2::01_23"): _SHAPE.l64_b128_01_23,
    ("32x128b", "warpx4"): _SHAPE.l32_b128_x4,
    ("4x256b", ""): _SHAPE.l4_b256,
}
_WIDENED = {"": 0, "b8x16.b4x16_p64": 4, "b8x16.b6x16_p32": 6}  # bits of an element that a copy widens to eight
_REDUCTION = core.TensorReduction
_REDUCED = {"u32": 0, "s32": _REDUCTION.of_signed, "f32": _REDUCTION.of_floats}
_SCALED = (_KIND.mxf8f6f4, _KIND.mxf4, _KIND.mxf4nvf4)
# Elements that a scale is for, by its qualifier; of kind mxf8f6f4 it is 32.
_SCALES = {"block16": 16, "block32": 32, "scale_vec::1X": 32, "scale_vec::2X": 32, "scale_vec::4X": 16}


def tcgen05(parts: list[str]) -> Plan:
    """Plan an instruction of tensor memory by its second word."""
    family = _PLANS.get(parts[1])
    if family is None:
        raise Refused(_UNKNOWN)
    return family(parts)


def _is_pair(parts: list[str]) -> bool:
    """Return True for ``.cta_group::2``; raise Refused without a group."""
    if "cta_group::2" not in parts and "cta_group::1" not in parts:
        raise Refused("a tcgen05 without .cta_group::1 or .cta_group::2")
    return "cta_group::2" in parts


def _tensor_address(symbols: Symbols, token: str, slots: dict[int, Operand], slot: int) -> int:
    """Put the base of an address in tensor memory into a slot; return its offset."""
    address = symbols.address(token if token[0] == "[" else f"[{token}]")
    if address.base.width != 4 and not isinstance(address.base, Constant):
        raise Refused(f"the address {token}, which has {8 * address.base.width} bits where 32 belong")
    slots[slot] = address.base
    return address.offset


def _allocation(parts: list[str]) -> Plan:
    name = parts[1]
    row = opcode(f"tcgen05.{name}")
    _is_pair(parts)

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        if name == "relinquish_alloc_permit":
            expect(operands, 0)
            return Instruction(row, {})
        expect(operands, 2)
        slots: dict[int, Operand] = {_MOVE.columns: source(symbols, operands[1], "u32", 4)}
        if name == "dealloc":
            offset = _tensor_address(symbols, operands[0], slots, ADDRESS)
            return Instruction(row, slots, (), {}, offset)
        address = symbols.address(operands[0])
        return Instruction(
            row, slots, (), {FLAGS: place(symbols, address, slots, ADDRESS, "shared")}, address.offset, 1, 4
        )

    return bind


def _move(parts: list[str]) -> Plan:
    """Plan ``tcgen05.ld|st.sync.aligned.shape.num{.pack::16b|.unpack::16b}.b32``."""
    is_load = parts[1] == "ld"
    if parts[2] == "red":
        return _reduced_load(parts)
    shape, registers = _MOVED[parts[4]]
    count = registers * int(parts[5].removeprefix("x"))
    packed = parts[6] == ("pack::16b" if is_load else "unpack::16b")
    if parts[2:4] != ["sync", "aligned"] or parts[-1] != "b32" or len(parts) != 7 + packed or count > _MOST_REGISTERS:
        raise Refused(_UNKNOWN)
    row = opcode(f"tcgen05.{parts[1]}")
    apart = shape == _SHAPE.l16_b32_x2

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 3 if apart else 2)
        where, data = (operands[-1 - apart], operands[0]) if is_load else (operands[0], operands[-1])
        tokens = vector(data)
        if len(tokens) != count:
            raise Refused(f"{len(tokens)} registers, where {count} belong")
        targets = tuple(destination(symbols, token, 4) for token in tokens) if is_load else ()
        values: tuple[Operand, ...] = targets or tuple(source(symbols, token, "b32", 4) for token in tokens)
        slots: dict[int, Operand] = {FRAGMENT + i: value for i, value in enumerate(values)}
        offset = _tensor_address(symbols, where, slots, ADDRESS)
        raw = {_MOVE.shape: int(shape), _MOVE.packed: int(packed), _MOVE.apart: 0}
        if apart:
            raw[_MOVE.apart] = int(operands[-1 if is_load else 1], 0)
        return Instruction(row, slots, targets, raw, offset)

    return bind


def _reduced_load(parts: list[str]) -> Plan:
    """Plan ``tcgen05.ld.red.sync.aligned.shape.num.min|max{.abs}{.NaN}.type``, or with the type before the rest."""
    shape, registers = _MOVED.get(parts[5], (None, 0))
    count, rest = registers * int(parts[6].removeprefix("x")), parts[7:]
    kind = next((part for part in rest if part in _REDUCED), "")
    operation = [part for part in rest if part != kind]
    allowed = ("abs", "NaN") if kind == "f32" else ()
    if (
        parts[3:5] != ["sync", "aligned"]
        or shape not in (_SHAPE.l32_b32, _SHAPE.l16_b32_x2)
        or not 2 <= count <= _MOST_REGISTERS
        or not kind
        or operation[:1] not in (["min"], ["max"])
        or operation[1:] != [part for part in allowed if part in operation]
    ):
        raise Refused(_UNKNOWN)
    flags = int(_REDUCED[kind]) | _REDUCTION.max * (operation[0] == "max")
    flags |= _REDUCTION.absolute * ("abs" in operation) | _REDUCTION.nan * ("NaN" in operation)
    plain = _move(["tcgen05", "ld", "sync", "aligned", parts[5], parts[6], "b32"])
    row = opcode("tcgen05.ld.red")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        if len(operands) < 3:
            raise Refused(f"{len(operands)} operands, where at least 3 belong")
        made = plain(symbols, [operands[0], *operands[2:]])
        assert isinstance(made, Instruction)
        target = destination(symbols, operands[1], 4)
        slots = {**made.slots, _MOVE.reduced: target}
        raw = {**made.raw, _MOVE.reduction: int(flags)}
        return Instruction(row, slots, (*made.destinations, target), raw, made.imm)

    return bind


def _copy(parts: list[str]) -> Plan:
    """Plan ``tcgen05.cp.cta_group.shape{.multicast}{.b8x16.source} [taddr], descriptor;``."""
    pair, rest = _is_pair(parts), [part for part in parts[2:] if not part.startswith("cta_group")]
    # The shape may stand behind the warps that get a copy.
    shapes = {part for part, _ in _COPIED}
    size = next((part for part in rest if part in shapes), "")
    warps = ".".join(part for part in rest if part.startswith("warpx"))
    shape = _COPIED.get((size, warps))
    bits = _WIDENED.get(".".join(part for part in rest if part != size and not part.startswith("warpx")))
    if shape is None or bits is None:
        raise Refused(_UNKNOWN)
    row = opcode("tcgen05.cp")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2)
        slots: dict[int, Operand] = {_MOVE.matrix: source(symbols, operands[1], "b64", 8)}
        offset = _tensor_address(symbols, operands[0], slots, ADDRESS)
        raw = {_MOVE.shape: int(shape), _MOVE.two_blocks: int(pair), _MOVE.bits: bits, FLAGS: ASYNC_PROXY}
        return Instruction(row, slots, (), raw, offset)

    return bind


def _shift(parts: list[str]) -> Plan:
    """Plan ``tcgen05.shift.cta_group.down [taddr];``, or with the words in the other order."""
    pair = _is_pair(parts)
    if len(parts) != 4 or "down" not in parts:
        raise Refused(_UNKNOWN)
    row = opcode("tcgen05.shift")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 1)
        slots: dict[int, Operand] = {}
        offset = _tensor_address(symbols, operands[0], slots, ADDRESS)
        return Instruction(row, slots, (), {_MOVE.two_blocks: int(pair)}, offset)

    return bind


def _order(parts: list[str]) -> Plan:
    """Plan ``tcgen05.wait::ld|st.sync.aligned`` and ``tcgen05.fence::before_thread_sync|after_thread_sync``."""
    row = opcode(f"tcgen05.{parts[1].replace('::', '.')}")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 0)
        return Instruction(row, {})

    return bind


def _commit(parts: list[str]) -> Plan:
    """Plan ``tcgen05.commit.cta_group.mbarrier::arrive::one{.shared::cluster}{.multicast::cluster}.b64``."""
    _is_pair(parts)
    known = ("cta_group::1", "cta_group::2", "mbarrier::arrive::one", "shared::cluster", "multicast::cluster", "b64")
    if any(part not in known for part in parts[2:]) or parts[-1] != "b64":
        raise Refused(_UNKNOWN)
    multicast = "multicast::cluster" in parts
    row = opcode("tcgen05.commit")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        expect(operands, 2 if multicast else 1)
        slots: dict[int, Operand] = {}
        if multicast:
            slots[_COMMIT.blocks] = source(symbols, operands[1], "b16", 2)
        address = symbols.address(operands[0])
        flags = CLUSTER_BASE | place(symbols, address, slots, ADDRESS, "shared")
        return Instruction(row, slots, (), {FLAGS: flags}, address.offset, 1, 8)

    return bind


def _product(parts: list[str]) -> Plan:
    """Plan ``tcgen05.mma{.ws|.sp}.cta_group.kind{.block_scale{.scale_vectorsize}}{.collector...}``."""
    if "ashift" in parts:
        raise Refused(SHIFTED_PRODUCT)
    stationary, sparse, pair = "ws" in parts, "sp" in parts, _is_pair(parts)
    if stationary and sparse:
        raise Refused(SPARSE_STATIONARY)
    named = [part.removeprefix("kind::") for part in parts if part.startswith("kind::")]
    known = [*_KIND.__members__]
    if len(named) != 1 or named[0] not in known:
        got = f".kind::{named[0]}" if named else "no .kind"
        raise Refused(f"a tcgen05.mma with {got}, where one of {', '.join(known)} belongs")
    kind = _KIND[named[0]]
    block_scaled, size = "block_scale" in parts, [_SCALES[part] for part in parts if part in _SCALES]
    # The collector's buffers change no value.
    kept = ("tcgen05", "mma", "ws", "sp", "block_scale", *_SCALES)
    if any(not (part in kept or part.startswith(("kind::", "cta_group::", "collector::"))) for part in parts):
        raise Refused(_UNKNOWN)
    if block_scaled != (kind in _SCALED) or (stationary and (block_scaled or pair)):
        raise Refused("scales that this kind of product does not take, or no scales where it needs some")
    if kind == _KIND.mxf4nvf4 and not size:
        raise Refused("a product .kind::mxf4nvf4 without its .scale_vec")
    flags = (_FLAGS.two_blocks * pair) | (_FLAGS.stationary * stationary) | (_FLAGS.sparse * sparse)
    flags |= _FLAGS.scales_of_16 * (bool(size) and size[0] == 16)
    row = opcode("tcgen05.mma.sp" if sparse else "tcgen05.mma")

    def bind(symbols: Symbols, operands: list[str]) -> Instruction:
        slots: dict[int, Operand] = {}
        marks, shift = int(flags), 0
        if len(operands) < 5 + sparse:
            raise Refused(f"{len(operands)} operands, where at least {5 + sparse} belong")
        d, a, b, *rest = operands
        metadata = rest.pop(0) if sparse else ""
        descriptor = rest.pop(0)
        offset = _tensor_address(symbols, d, slots, ADDRESS)
        raw = {_PRODUCT.a_offset: 0, _PRODUCT.scale_a_offset: 0, _PRODUCT.scale_b_offset: 0}
        if a[0] == "[":
            marks |= int(_FLAGS.a_in_tensor_memory)
            raw[_PRODUCT.a_offset] = _tensor_address(symbols, a, slots, _PRODUCT.a)
        else:
            slots[_PRODUCT.a] = source(symbols, a, "b64", 8)
        slots[_PRODUCT.b] = source(symbols, b, "b64", 8)
        if sparse:
            raw[_PRODUCT.metadata_offset] = _tensor_address(symbols, metadata, slots, _PRODUCT.metadata)
        slots[_PRODUCT.descriptor] = source(symbols, descriptor, "b32", 4)
        if block_scaled:
            raw[_PRODUCT.scale_a_offset] = _tensor_address(symbols, rest.pop(0), slots, _PRODUCT.scale_a)
            raw[_PRODUCT.scale_b_offset] = _tensor_address(symbols, rest.pop(0), slots, _PRODUCT.scale_b)
        elif rest[0][0] == "{":
            masks = vector(rest.pop(0))
            if len(masks) != (8 if pair else 4):
                raise Refused(f"{len(masks)} masks of lanes, where {8 if pair else 4} belong")
            marks |= int(_FLAGS.masked)
            slots |= {FRAGMENT + i: source(symbols, mask, "b32", 4) for i, mask in enumerate(masks)}
        keeps = rest.pop(0)
        if keeps.lstrip("-").isdigit():
            slots[_PRODUCT.keeps_d] = Constant(0, int(int(keeps) != 0))
        else:
            slots[_PRODUCT.keeps_d] = source(symbols, keeps, "pred", 0)
        if rest and stationary:
            slots[_PRODUCT.zero_columns] = source(symbols, rest.pop(0), "b64", 8)
        elif rest:
            shift = int(rest.pop(0), 0)
        if rest or not 0 <= shift <= 15 or (shift and kind not in (_KIND.f16, _KIND.tf32)):
            raise Refused(f"{len(operands)} operands")
        raw |= {_PRODUCT.kind: int(kind), _PRODUCT.flags: marks, _PRODUCT.shift: shift, FLAGS: ASYNC_PROXY}
        return Instruction(row, slots, (), raw, offset)

    return bind


_PLANS: dict[str, Callable[[list[str]], Plan]] = {
    "alloc": _allocation, "dealloc": _allocation, "relinquish_alloc_permit": _allocation, "ld": _move, "st": _move,
    "cp": _copy, "shift": _shift, "commit": _commit, "mma": _product,
    "wait::ld": _order, "wait::st": _order, "fence::before_thread_sync": _order, "fence::after_thread_sync": _order,
}  # fmt: skip
FAMILY = {"tcgen05": tcgen05}
