"""Kernels for loads, stores, atomics and copies in every state space, shared by their tests and the coverage test."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import module

WIDTHS = {"b8": 8, "s8": 8, "u8": 8, "b16": 16, "s16": 16, "b32": 32, "s32": 32, "u32": 32, "b64": 64}
PREFIX = {16: "h", 32: "r", 64: "d"}
THREAD = "mov.u32 %r60, %tid.x;"


def place(space: str, stride: int) -> str:
    """Code that leaves in %d50 (or %r50 for 32-bit addresses) where this thread's ``stride`` bytes of a space are."""
    if space == "global":
        return f"ld.param.u64 %d51, [scratch]; mad.wide.u32 %d50, %r60, {stride}, %d51;"
    if space == "generic global":
        return f"ld.param.u64 %d51, [scratch]; mad.wide.u32 %d50, %r60, {stride}, %d51;"
    if space == "shared":
        return f".shared .align 16 .b8 tile[2048]; mov.u32 %r51, tile; mad.lo.u32 %r50, %r60, {stride}, %r51;"
    if space == "generic shared":
        return (
            ".shared .align 16 .b8 tile[2048]; mov.u64 %d51, tile; cvta.shared.u64 %d51, %d51; "
            f"mad.wide.u32 %d50, %r60, {stride}, %d51;"
        )
    local = ".local .align 16 .b8 depot[64]; mov.u64 %d50, depot;"
    return local if space == "local" else local + " cvta.local.u64 %d50, %d50;"


def base(space: str) -> str:
    return "%r50" if space == "shared" else "%d50"


def suffix(space: str) -> str:
    return "" if space.startswith("generic") else "." + space


SPACES = ("global", "shared", "local", "generic global", "generic shared", "generic local")
PARAMETERS = ".param .u64 out, .param .u64 in, .param .u64 scratch"


class RoundTrip(NamedTuple):
    """``width`` bits go to memory as ``type`` and come back, ``elements`` at a time."""

    space: str
    type: str
    width: int
    elements: int

    @property
    def text(self) -> str:
        prefix, size, n = PREFIX[self.width], self.width // 8, self.elements
        registers = [f"%{prefix}{i + 1}" for i in range(n)]
        body = [THREAD, place(self.space, 16 if n * WIDTHS[self.type] <= 128 else 32)]
        body += ["ld.param.u64 %d40, [in];", f"mad.wide.u32 %d40, %r60, {size * n}, %d40;"]
        body += ["ld.param.u64 %d41, [out];", f"mad.wide.u32 %d41, %r60, {size * n}, %d41;"]
        body += [f"ld.global.b{self.width} {r}, [%d40+{i * size}];" for i, r in enumerate(registers)]
        vector = f".v{n}" if n > 1 else ""
        data = "{" + ", ".join(registers) + "}" if n > 1 else registers[0]
        stored = f"b{WIDTHS[self.type]}"
        body += [f"st{suffix(self.space)}{vector}.{stored} [{base(self.space)}], {data};"]
        back = [f"%{prefix}{i + 11}" for i in range(n)]
        data = "{" + ", ".join(back) + "}" if n > 1 else back[0]
        body += [f"ld{suffix(self.space)}{vector}.{self.type} {data}, [{base(self.space)}];"]
        body += [f"st.global.b{self.width} [%d41+{i * size}], {r};" for i, r in enumerate(back)]
        return module("trip", PARAMETERS, "\n".join(body))


ROUND_TRIPS = [
    RoundTrip(space, kind, width, elements)
    for space in SPACES
    for kind in WIDTHS
    for width in PREFIX
    for elements in (1, 2, 4)
    if width >= WIDTHS[kind] and elements * WIDTHS[kind] <= 128 and (elements == 1 or WIDTHS[kind] * 2 >= width)
]


class ParameterLoad(NamedTuple):
    type: str
    width: int
    indirect: bool

    @property
    def text(self) -> str:
        register = f"%{PREFIX[self.width]}1"
        where = "mov.u64 %d45, data;" if self.indirect else ""
        operand = "[%d45+8]" if self.indirect else "[data+8]"
        body = [
            THREAD, where, f"ld.param.{self.type} {register}, {operand};", "ld.param.u64 %d41, [out];",
            f"mad.wide.u32 %d41, %r60, {self.width // 8}, %d41;", f"st.global.b{self.width} [%d41], {register};",
        ]  # fmt: skip
        return module("load", ".param .u64 out, .param .align 8 .b8 data[24]", "\n".join(body))


PARAMETER_LOADS = [
    ParameterLoad(kind, width, indirect)
    for kind in WIDTHS
    for width in PREFIX
    for indirect in (False, True)
    if width >= WIDTHS[kind]
]


CONSTANTS = bytes((37 * i + 11) % 256 for i in range(512))


class ConstantLoad(NamedTuple):
    """Each lane loads ``elements`` of its own from `CONSTANTS`."""

    type: str
    width: int
    elements: int

    @property
    def text(self) -> str:
        prefix, n, size = PREFIX[self.width], self.elements, self.width // 8
        registers = [f"%{prefix}{i + 1}" for i in range(n)]
        data, vector = ("{" + ", ".join(registers) + "}", f".v{n}") if n > 1 else (registers[0], "")
        body = [
            THREAD, "mov.u64 %d45, table;", f"mad.wide.u32 %d45, %r60, {n * WIDTHS[self.type] // 8}, %d45;",
            f"ld.const{vector}.{self.type} {data}, [%d45];", "ld.param.u64 %d41, [out];",
            f"mad.wide.u32 %d41, %r60, {n * size}, %d41;",
            *(f"st.global.b{self.width} [%d41+{i * size}], {register};" for i, register in enumerate(registers)),
        ]  # fmt: skip
        table = f".const .align 16 .b8 table[{len(CONSTANTS)}] = {{{', '.join(map(str, CONSTANTS))}}};\n"
        return module("load", ".param .u64 out", "\n".join(body)).replace(".visible", table + ".visible", 1)


CONSTANT_LOADS = [
    ConstantLoad(kind, width, elements)
    for kind in WIDTHS
    for width in PREFIX
    for elements in (1, 2, 4)
    if width >= WIDTHS[kind] and elements * WIDTHS[kind] <= 128 and (elements == 1 or WIDTHS[kind] * 2 >= width)
]


class Atomic(NamedTuple):
    """All 32 lanes of a warp work on one cell; every lane's old value comes back."""

    space: str
    operation: str
    type: str

    @property
    def width(self) -> int:
        return {"f16": 16, "bf16": 16, "b16": 16}.get(self.type) or (64 if self.type.endswith("64") else 32)

    @property
    def text(self) -> str:
        prefix, size = PREFIX[self.width], self.width // 8
        extra = f", %{prefix}3" if self.operation == "cas" else ""
        noftz = ".noftz" if self.type in ("f16", "bf16", "f16x2", "bf16x2") else ""
        where = base(self.space)
        body = [
            THREAD, place(self.space, 0), "ld.param.u64 %d40, [in];", f"mad.wide.u32 %d42, %r60, {size}, %d40;",
            "ld.param.u64 %d41, [out];", f"mad.wide.u32 %d43, %r60, {size}, %d41;",
            f"ld.global.b{self.width} %{prefix}1, [%d42+{size}];",
            f"ld.global.b{self.width} %{prefix}3, [%d42+{2 * size}];",
            f"ld.global.b{self.width} %{prefix}5, [%d40];",
            f"st{suffix(self.space)}.b{self.width} [{where}], %{prefix}5;", "bar.warp.sync -1;",
            f"atom{suffix(self.space)}.{self.operation}{noftz}.{self.type} %{prefix}2, [{where}], %{prefix}1{extra};",
            f"st.global.b{self.width} [%d43+{size}], %{prefix}2;", "bar.warp.sync -1;",
            f"ld{suffix(self.space)}.b{self.width} %{prefix}4, [{where}];",
            f"st.global.b{self.width} [%d41], %{prefix}4;",
        ]  # fmt: skip
        return module("cell", PARAMETERS, "\n".join(body))


class VectorAtomic(NamedTuple):
    """All lanes work on two elements next to each other; both elements' old values come back."""

    space: str
    operation: str
    type: str

    @property
    def text(self) -> str:
        size, prefix = (4, "r") if self.type.endswith("x2") else (2, "h")
        body = [
            THREAD, place(self.space, 0), f"ld.param.u64 %d40, [in]; mad.wide.u32 %d42, %r60, {2 * size}, %d40;",
            f"ld.param.u64 %d41, [out]; mad.wide.u32 %d43, %r60, {2 * size}, %d41;",
            f"ld.global.v2.b{8 * size} {{%{prefix}1, %{prefix}2}}, [%d42+{2 * size}];",
            f"atom{suffix(self.space)}.{self.operation}.noftz.v2.{self.type} {{%{prefix}3, %{prefix}4}}, [%d50],"
            f" {{%{prefix}1, %{prefix}2}};",
            f"st.global.v2.b{8 * size} [%d43], {{%{prefix}3, %{prefix}4}};",
        ]  # fmt: skip
        return module("cell", PARAMETERS, "\n".join(body)).replace("sm_80", "sm_90")


VECTOR_ATOMICS = [
    VectorAtomic(space, operation, kind)
    for space in ("global", "generic global")
    for operation in ("min", "max")
    for kind in ("f16", "bf16", "f16x2", "bf16x2")
]


class WideAtomic(NamedTuple):
    """Do the same with 128 bits: each lane has two halves in ``in``, and two that came back in ``out``."""

    space: str
    operation: str

    @property
    def text(self) -> str:
        where, extra = base(self.space), ", %w3" if self.operation == "cas" else ""
        body = [
            ".reg .b128 %w<8>;",
            THREAD,
            place(self.space, 0),
            "ld.param.u64 %d40, [in];",
            "mad.wide.u32 %d42, %r60, 16, %d40; ld.param.u64 %d41, [out]; mad.wide.u32 %d43, %r60, 16, %d41;",
            "ld.global.b128 %w1, [%d42+16]; ld.global.b128 %w3, [%d42+32]; ld.global.b128 %w5, [%d40];",
            f"st{suffix(self.space)}.b128 [{where}], %w5; bar.warp.sync -1;",
            f"atom{suffix(self.space)}.{self.operation}.b128 %w2, [{where}], %w1{extra};",
            "st.global.b128 [%d43+16], %w2; bar.warp.sync -1;",
            f"ld{suffix(self.space)}.b128 %w4, [{where}]; st.global.b128 [%d41], %w4;",
        ]
        return module("cell", PARAMETERS, "\n".join(body)).replace("sm_80", "sm_90")


WIDE_ATOMICS = [
    WideAtomic(space, operation)
    for space in ("global", "shared", "generic global", "generic shared")
    for operation in ("exch", "cas")
]


class BulkFill(NamedTuple):
    """st.bulk of every other 128 bytes of a tile that is full of ones."""

    space: str
    bits: int  # of the size's register; 0 for a literal

    @property
    def text(self) -> str:
        size = {0: "72", 32: "%r30", 64: "%d30"}[self.bits]
        body = [
            THREAD,
            place(self.space, 64),
            "mov.b64 %d1, -1; mov.u32 %r30, 72; mov.u64 %d30, 72;",
            *(f"st{suffix(self.space)}.b64 [{base(self.space)}+{i}], %d1;" for i in range(0, 64, 8)),
            "bar.warp.sync -1; and.b32 %r1, %r60, 1; setp.eq.u32 %p1, %r1, 0;",
            f"@%p1 st.bulk{'.weak.shared::cta' if self.space == 'shared' else ''} [{base(self.space)}+16], {size}, 0;",
            "bar.warp.sync -1; ld.param.u64 %d41, [out]; mad.wide.u32 %d41, %r60, 64, %d41;",
            *(
                f"ld{suffix(self.space)}.b64 %d2, [{base(self.space)}+{i}]; st.global.b64 [%d41+{i}], %d2;"
                for i in range(0, 64, 8)
            ),
        ]
        return module("filled", PARAMETERS, "\n".join(body)).replace("sm_80", "sm_100")


BULK_FILLS = [BulkFill(space, bits) for space in ("shared", "generic shared") for bits in (0, 32, 64)]


_TYPES = {
    "exch": ("b16", "b32", "b64"), "cas": ("b16", "b32", "b64"), "and": ("b32", "b64"), "or": ("b32", "b64"),
    "xor": ("b32", "b64"), "min": ("s32", "u32", "s64", "u64"), "max": ("s32", "u32", "s64", "u64"), "inc": ("u32",),
    "dec": ("u32",), "add": ("u32", "u64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"),
}  # fmt: skip
ATOMICS = [
    Atomic(space, operation, kind)
    for space in ("global", "shared", "generic global", "generic shared")
    for operation, kinds in _TYPES.items()
    for kind in kinds
]
