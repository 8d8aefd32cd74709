"""Kernels around wmma, shared by their tests and the coverage test."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER


class Product(NamedTuple):
    """``D = A B + C`` with every fragment loaded from, and the result stored to, ``space``."""

    shape: str
    types: str  # D.A.B.C
    layouts: str = "row.col.row.col"  # of A, B, C and D
    space: str = "global"
    suffix: str = ""
    operation: str = ""
    stride: bool = True

    @property
    def extents(self) -> tuple[int, int, int]:
        m, rest = self.shape[1:].split("n")
        n, k = rest.split("k")
        return int(m), int(n), int(k)

    @property
    def name(self) -> str:
        return ".".join(filter(None, (self.shape, self.operation, self.types, self.layouts, self.space, self.suffix)))

    @property
    def text(self) -> str:
        d, a, b, c = self.types.split(".")
        la, lb, lc, ld = self.layouts.split(".")
        m, n, _ = self.extents
        sizes = {"a": registers("a", a, m, n), "b": registers("b", b, m, n), "c": sums(c, m, n), "d": sums(d, m, n)}
        bits = {name: "d" if kind == "f64" else "r" for name, kind in zip("dabc", (d, a, b, c), strict=True)}
        declared = " ".join(f".reg .b{64 if bits[x] == 'd' else 32} %{x}<{sizes[x]}>;" for x in "abcd")
        group = {x: "{" + ", ".join(f"%{x}{i}" for i in range(sizes[x])) + "}" for x in "abcd"}
        space = "" if self.space == "generic" else "." + self.space
        body = [declared, ".reg .b64 %p<9>; .reg .b32 %s<9>;"]
        body += [f"ld.param.u64 %p{i}, [p{i}];" for i in range(4)]
        body += [f"ld.param.u32 %s{i}, [s{i}];" for i in range(4)]
        where = [f"%p{i}" for i in range(4)]
        strides = [f", %s{i}" if self.stride else "" for i in range(4)]
        if self.space == "shared":
            body += [STAGE]
            where = [f"tile+{8192 * i}" for i in range(4)]
        head = "sync.aligned"
        for i, (x, kind, layout) in enumerate((("a", a, la), ("b", b, lb), ("c", c, lc))):
            body += [f"wmma.load.{x}.{head}.{layout}.{self.shape}{space}.{kind} {group[x]}, [{where[i]}]{strides[i]};"]
        kinds = f"{d}.{c}" if a == "f16" else self.types
        operation = f".{self.operation}.popc" if self.operation else ""
        suffix = f".{self.suffix}" if self.suffix else ""
        product = f"wmma.mma{operation}.{head}.{la}.{lb}.{self.shape}.{kinds}{suffix}"
        body += [f"{product} {', '.join(group[x] for x in 'dabc')};"]
        body += [f"wmma.store.d.{head}.{ld}.{self.shape}{space}.{d} [{where[3]}], {group['d']}{strides[3]};"]
        if self.space == "shared":
            body += [BACK]
        parameters = ", ".join([f".param .u64 p{i}" for i in range(4)] + [f".param .u32 s{i}" for i in range(4)])
        inside = "\n".join(body)
        return f"{HEADER}.visible .entry tile({parameters})\n{{\n{inside}\nret;\n}}\n"


# Every pointer leads to 8192 bytes, which travel through shared memory and back.
STAGE = """.shared .align 128 .b8 tile[32768]; .reg .b32 %i; .reg .b32 %w; .reg .b64 %q<5>; .reg .pred %more;
.reg .b32 %t; mov.u32 %t, %tid.x; mul.lo.u32 %i, %t, 4; mov.u32 %w, tile; add.u32 %w, %w, %i;
cvt.u64.u32 %q4, %i; add.u64 %q0, %p0, %q4; add.u64 %q1, %p1, %q4; add.u64 %q2, %p2, %q4; add.u64 %q3, %p3, %q4;
IN: ld.global.b32 %t, [%q0]; st.shared.b32 [%w], %t; ld.global.b32 %t, [%q1]; st.shared.b32 [%w+8192], %t;
ld.global.b32 %t, [%q2]; st.shared.b32 [%w+16384], %t; ld.global.b32 %t, [%q3]; st.shared.b32 [%w+24576], %t;
add.u64 %q0, %q0, 128; add.u64 %q1, %q1, 128; add.u64 %q2, %q2, 128; add.u64 %q3, %q3, 128;
add.u32 %w, %w, 128; add.u32 %i, %i, 128; setp.lt.u32 %more, %i, 8192; @%more bra IN; bar.sync 0;"""
BACK = """bar.sync 0; mov.u32 %t, %tid.x; mul.lo.u32 %i, %t, 4; mov.u32 %w, tile; add.u32 %w, %w, %i;
add.u64 %q3, %p3, %q4;
OUT: ld.shared.b32 %t, [%w+24576]; st.global.b32 [%q3], %t; add.u64 %q3, %q3, 128; add.u32 %w, %w, 128;
add.u32 %i, %i, 128; setp.lt.u32 %more, %i, 8192; @%more bra OUT;"""


def registers(role: str, kind: str, m: int, n: int) -> int:
    """Registers of a factor, from the table of the PTX ISA."""
    if kind == "f16":
        return 8
    if kind == "tf32":
        return 4
    if kind in ("f64", "s4", "u4", "b1"):
        return 1
    rows = m if role == "a" else n
    return {"bf16": {8: 2, 16: 4, 32: 8}, "s8": {8: 1, 16: 2, 32: 4}, "u8": {8: 1, 16: 2, 32: 4}}[kind][rows]


def sums(kind: str, m: int, n: int) -> int:
    if m == n == 8:
        return 2
    return 4 if kind == "f16" else 8


_LAYOUTS = [f"{a}.{b}.{c}.{d}" for a, b, c, d in ("rrrr", "rccr", "crrc", "cccc")]
_LAYOUTS = [x.replace("r", "row").replace("c", "col") for x in _LAYOUTS]
_HALVES = ("f16.f16.f16.f16", "f32.f16.f16.f32", "f32.f16.f16.f16", "f16.f16.f16.f32", "f32.bf16.bf16.f32")
_BYTES = ("s32.s8.s8.s32", "s32.u8.u8.s32")
PRODUCTS = [
    Product(shape, types, layouts)
    for shape in ("m16n16k16", "m32n8k16", "m8n32k16")
    for types in _HALVES + _BYTES
    for layouts in _LAYOUTS
]
PRODUCTS += [Product("m16n16k8", "f32.tf32.tf32.f32", layouts) for layouts in _LAYOUTS]
PRODUCTS += [Product("m8n8k4", "f64.f64.f64.f64", layouts, suffix="rn") for layouts in _LAYOUTS]
PRODUCTS += [
    Product(shape, types, "row.col.row.row", space)
    for space in ("shared", "generic")
    for shape, types in (
        ("m16n16k16", "f32.f16.f16.f32"), ("m32n8k16", "s32.s8.s8.s32"), ("m8n32k16", "f32.bf16.bf16.f32"),
        ("m16n16k8", "f32.tf32.tf32.f32"), ("m8n8k4", "f64.f64.f64.f64"),
    )
]  # fmt: skip
PRODUCTS += [Product("m16n16k16", "f32.f16.f16.f32", layouts, stride=False) for layouts in _LAYOUTS]
PRODUCTS += [Product("m16n16k16", types, suffix="satfinite") for types in _BYTES]
PRODUCTS += [
    Product("m8n8k32", f"s32.{t}.{t}.s32", "row.col.row.col", suffix=s) for t in ("s4", "u4") for s in ("", "satfinite")
]
PRODUCTS += [Product("m8n8k128", "s32.b1.b1.s32", "row.col.row.col", operation=op) for op in ("xor", "and")]
