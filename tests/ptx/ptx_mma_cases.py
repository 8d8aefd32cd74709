"""Kernels around mma with factors of 8 bits and less, mixed accumulators, saturation and f64."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER

FACTOR_BITS = {
    "f16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8, "s4": 4, "u4": 4, "b1": 1,
    "f64": 64,
}  # fmt: skip
NARROW = ("e3m2", "e2m3", "e2m1")


class Mma(NamedTuple):
    """``types`` are D.A.B.C, ``operation`` that of one-bit factors."""

    shape: str
    types: str
    suffix: str = ""
    operation: str = ""

    @property
    def extents(self) -> tuple[int, int, int]:
        m, rest = self.shape[1:].split("n")
        n, k = rest.split("k")
        return int(m), int(n), int(k)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.types.split("."))

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Registers per lane of D, A, B and C: every lane holds the same share of a matrix."""
        m, n, k = self.extents
        d, a, b, c = self.kinds
        factor = lambda kind, rows: rows * k * FACTOR_BITS[kind] // 32 // max(32, FACTOR_BITS[kind])  # noqa: E731
        total = lambda kind: m * n // 32 // (2 if kind == "f16" else 1)  # noqa: E731
        return total(d), factor(a, m), factor(b, n), total(c)

    @property
    def name(self) -> str:
        return ".".join(filter(None, (self.shape, self.types, self.suffix, self.operation)))

    @property
    def text(self) -> str:
        width = 8 if "f64" in self.types else 4
        counts = self.counts
        body = [f".reg .b{8 * width} %{x}<{count}>;" for x, count in zip("dabc", counts, strict=True)]
        body += [".reg .b64 %p<5>; .reg .b32 %t; ld.param.u64 %p0, [in]; ld.param.u64 %p1, [out]; mov.u32 %t, %tid.x;"]
        body += [f"mad.wide.u32 %p2, %t, {width}, %p0; mad.wide.u32 %p3, %t, {width}, %p1;"]
        names = [f"%{x}{i}" for x, count in zip("abc", counts[1:], strict=True) for i in range(count)]
        body += [f"ld.global.b{8 * width} {name}, [%p2+{32 * width * i}];" for i, name in enumerate(names)]
        group = ["{" + ", ".join(f"%{x}{i}" for i in range(n)) + "}" for x, n in zip("dabc", counts, strict=True)]
        suffix = f".{self.suffix}" if self.suffix else ""
        if {*self.kinds} & {*NARROW}:
            suffix = ".kind::f8f6f4"
        operation = f".{self.operation}.popc" if self.operation else ""
        body += [f"mma.sync.aligned.{self.shape}.row.col{suffix}.{self.types}{operation} {', '.join(group)};"]
        body += [f"st.global.b{8 * width} [%p3+{32 * width * i}], %d{i};" for i in range(counts[0])]
        inside = "\n".join(body)
        return f"{HEADER}.visible .entry tile(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


_SIGNS = lambda bits: [f"{a}{bits}.{b}{bits}" for a in "su" for b in "su"]  # noqa: E731
_EIGHT = [f"{a}.{b}" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
_BYTES = (("m8n8", 16), ("m16n8", 16), ("m16n8", 32))
_SUFFIXES = ("", "satfinite")
MMAS = [
    Mma("m16n8k16", "f32.f16.f16.f16"), Mma("m16n8k16", "f16.f16.f16.f32"), Mma("m8n8k4", "f64.f64.f64.f64"),
    *(Mma(f"m16n8k{k}", "f64.f64.f64.f64") for k in (4, 8, 16)),
    *(Mma(f"{mn}k{k}", f"s32.{t}.s32", s) for mn, k in _BYTES for t in _SIGNS(8) for s in _SUFFIXES),
    *(Mma(f"{mn}k{2 * k}", f"s32.{t}.s32", s) for mn, k in _BYTES for t in _SIGNS(4) for s in _SUFFIXES),
    *(Mma(shape, "s32.b1.b1.s32", "", o) for shape in ("m8n8k128", "m16n8k128", "m16n8k256") for o in ("xor", "and")),
    *(Mma(shape, f"{d}.{t}.{d}") for shape in ("m16n8k16", "m16n8k32") for t in _EIGHT for d in ("f32", "f16")),
    *(
        Mma("m16n8k32", f"{d}.{a}.{b}.{d}")
        for a in ("e4m3", "e5m2", *NARROW) for b in ("e4m3", "e5m2", *NARROW) for d in ("f32", "f16")
        if {a, b} & {*NARROW}
    ),
]  # fmt: skip


class ScaledMma(NamedTuple):
    """An mma with ``runs`` block scales along K; ``selectors`` are byte and thread of A, byte and thread of B."""

    kind: str
    runs: int
    a: str
    b: str
    scale: str
    selectors: tuple[int, int, int, int]
    registers: bool = False  # the selectors come from registers
    first: bool = False  # the kind stands before the shape

    @property
    def k(self) -> int:
        return 32 if self.kind == "mxf8f6f4" else 64

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.runs}X.{self.a}.{self.b}.{self.scale}.{'-'.join(map(str, self.selectors))}"

    @property
    def text(self) -> str:
        """The PTX: the fragments of A, B and C and both scales come in, register by register, and D goes out."""
        kind, shape = f"kind::{self.kind}.block_scale.scale_vec::{self.runs}X", f"m16n8k{self.k}.row.col"
        opcode = f"{kind}.{shape}" if self.first else f"{shape}.{kind}"
        values = [f"%h{i}" if self.registers else str(value) for i, value in enumerate(self.selectors)]
        moves = [f"mov.b16 %h{i}, {value};" for i, value in enumerate(self.selectors)]
        names = [f"%r{i}" for i in range(12)]
        group = lambda some: "{" + ", ".join(some) + "}"  # noqa: E731
        body = [
            ".reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %p<4>; ld.param.u64 %p0, [in]; ld.param.u64 %p1, [out];",
            "mov.u32 %r19, %tid.x; mad.wide.u32 %p2, %r19, 4, %p0; mad.wide.u32 %p3, %r19, 4, %p1;", *moves,
            *(f"ld.global.b32 {name}, [%p2+{128 * i}];" for i, name in enumerate(names)),
            f"mma.sync.aligned.{opcode}.f32.{self.a}.{self.b}.f32.{self.scale}",
            f"{group(f'%r{12 + i}' for i in range(4))},",
            f"{group(names[:4])}, {group(names[4:6])}, {group(names[6:10])},",
            f"%r10, {group(values[:2])}, {{%r11}}, {group(values[2:])};",
            *(f"st.global.b32 [%p3+{128 * i}], %r{12 + i};" for i in range(4)),
        ]  # fmt: skip
        inside = "\n".join(body)
        return f"{HEADER}.visible .entry tile(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


_TYPES = ("e4m3", "e5m2", *NARROW)
SCALED_MMAS = [
    *(
        ScaledMma("mxf8f6f4", 1, a, b, "ue8m0", ((i + j) % 4, i % 2, i % 4, j % 4), i == j, i > j)
        for i, a in enumerate(_TYPES) for j, b in enumerate(_TYPES)
    ),
    *(ScaledMma("mxf4", 2, "e2m1", "e2m1", "ue8m0", (byte, 1, 2 - byte, 3)) for byte in (0, 2)),
    ScaledMma("mxf4nvf4", 2, "e2m1", "e2m1", "ue8m0", (2, 0, 2, 1), first=True),
    ScaledMma("mxf4nvf4", 4, "e2m1", "e2m1", "ue8m0", (0, 0, 0, 2)),
    ScaledMma("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3", (0, 1, 0, 0), registers=True),
    ScaledMma("mxf4nvf4", 4, "e2m1", "e2m1", "ue4m3", (0, 0, 0, 0), first=True),
]  # fmt: skip
