"""Kernels around mma with factors of 8 bits and less, mixed accumulators, saturation and f64."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER

FACTOR_BITS = {"f16": 16, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}


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
]  # fmt: skip
