"""Kernels around one mma.sp: half of A's elements, and metadata that says which they are."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
    "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8,
}  # fmt: skip


class SparseMma(NamedTuple):
    """``types`` are D.A.B.C; ``runs`` and ``scale`` those of block scales, with ``kind``."""

    k: int
    types: str
    selector: int = 0
    ordered: bool = False
    saturating: bool = False
    kind: str = ""
    runs: int = 0
    scale: str = ""
    places: tuple[int, int, int, int] = (0, 0, 0, 0)  # byte and thread of A's scales, byte and thread of B's

    @property
    def kinds(self) -> tuple[str, str, str, str]:
        d, a, b, c = self.types.split(".")
        return d, a, b, c

    @property
    def is_packed(self) -> bool:
        """Two elements of A take a byte."""
        return BITS[self.kinds[1]] == 4 or self.kind.startswith("mxf4")

    @property
    def element_bits(self) -> int:
        return 4 if self.is_packed else BITS[self.kinds[1]]

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Registers per lane of D, A, B and C."""
        factors = self.k * self.element_bits // 128
        total = 2 if self.kinds[0] == "f16" else 4
        return total, factors, factors, total

    @property
    def name(self) -> str:
        differing = {key: value for key, value in self._asdict().items() if value != self._field_defaults.get(key)}
        return " ".join(f"{key}={value}" for key, value in differing.items())

    @property
    def text(self) -> str:
        """The PTX: A, B, C, the metadata and both scales come in, register by register, and D goes out."""
        mark = "sp::ordered_metadata" if self.ordered else "sp"
        kind = f".kind::{self.kind}" if self.kind else ""
        scaled = f".block_scale.scale_vec::{self.runs}X" if self.runs else ""
        last = ".satfinite" if self.saturating and self.selector else ""  # as CUTLASS writes it
        first = ".satfinite" if self.saturating and not last else ""
        counts = self.counts
        names = [[f"%{x}{i}" for i in range(count)] for x, count in zip("dabc", counts, strict=True)]
        loaded = [*names[1], *names[2], *names[3], "%e", "%sa", "%sb"]
        operands = [f"{{{', '.join(group)}}}" for group in names] + ["%e", str(self.selector)]
        if self.runs:
            byte_a, thread_a, byte_b, thread_b = self.places
            operands += ["%sa", f"{{{byte_a}, {thread_a}}}", "{%sb}", f"{{{byte_b}, {thread_b}}}"]
        types = f"{self.types}{'.' * bool(self.scale)}{self.scale}"
        body = [
            ".reg .b32 %a<4>, %b<4>, %c<4>, %d<4>, %e, %sa, %sb, %t; .reg .b64 %p<4>;",
            "ld.param.u64 %p0, [in]; ld.param.u64 %p1, [out];",
            "mov.u32 %t, %tid.x; mad.wide.u32 %p2, %t, 4, %p0; mad.wide.u32 %p3, %t, 4, %p1;",
            *(f"ld.global.b32 {name}, [%p2+{128 * i}];" for i, name in enumerate(loaded)),
            f"mma.{mark}.sync.aligned.m16n8k{self.k}.row.col{kind}{scaled}{first}.{types}{last}",
            f"{', '.join(operands)};",
            *(f"st.global.b32 [%p3+{128 * i}], {name};" for i, name in enumerate(names[0])),
        ]
        inside = "\n".join(body)
        return f"{HEADER}.visible .entry tile(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


_FLOATS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_PAIRS = [(a, b) for a in _FLOATS for b in _FLOATS]
_INTEGERS = [(8, 32, 2), (8, 64, 1), (4, 64, 2), (4, 128, 1)]  # bits, K, selectors
SPARSE_MMAS = [
    *(
        SparseMma(k, types, selector, ordered=selector % 2 == 1)
        for types in ("f32.f16.f16.f32", "f16.f16.f16.f16", "f32.bf16.bf16.f32")
        for k, selectors in ((16, 4), (32, 2)) for selector in range(selectors)
    ),
    *(SparseMma(k, "f32.tf32.tf32.f32", s, s % 2 == 0) for k, selectors in ((8, 4), (16, 2)) for s in range(selectors)),
    *(
        SparseMma(k, f"s32.{a}{bits}.{b}{bits}.s32", (i + j) % selectors, i == j, saturating)
        for bits, k, selectors in _INTEGERS for i, a in enumerate("su") for j, b in enumerate("su")
        for saturating in (False, True)
    ),
    *(SparseMma(64, f"f32.{a}.{b}.f32", ordered=a == b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(SparseMma(64, f"{d}.{a}.{b}.{d}", 0, True, kind="f8f6f4") for a, b in _PAIRS for d in ("f32", "f16")),
    *(
        SparseMma(64, f"f32.{a}.{b}.f32", 0, True, False, "mxf8f6f4", 1, "ue8m0", (i % 4, i % 2, i % 3, i // 4 % 4))
        for i, (a, b) in enumerate(_PAIRS)
    ),
    SparseMma(128, "f32.e2m1.e2m1.f32", 0, True, False, "mxf4", 2, "ue8m0", (2, 1, 0, 3)),
    SparseMma(128, "f32.e2m1.e2m1.f32", 0, True, False, "mxf4nvf4", 2, "ue8m0", (0, 0, 2, 1)),
    SparseMma(128, "f32.e2m1.e2m1.f32", 0, True, False, "mxf4nvf4", 4, "ue8m0", (0, 0, 0, 2)),
    SparseMma(128, "f32.e2m1.e2m1.f32", 0, True, False, "mxf4nvf4", 4, "ue4m3", (0, 1, 0, 0)),
]  # fmt: skip
