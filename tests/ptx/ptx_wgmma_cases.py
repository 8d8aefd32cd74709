"""Kernels around one wgmma: both factors from shared memory, or A from registers."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}


class Wgmma(NamedTuple):
    """``types`` are D.A.B; ``mode_a`` and ``mode_b`` those of the descriptors (None: A in registers)."""

    types: str
    columns: int = 16
    mode_a: int | None = 1
    mode_b: int = 1
    transposed_a: bool = False
    transposed_b: bool = False
    signs: tuple[int, int] = (1, 1)
    keep: bool = True
    saturating: bool = False
    sparse: bool = False
    selector: int = 0  # of the lanes that have the metadata

    @property
    def kinds(self) -> tuple[str, str, str]:
        d, a, b = self.types.split(".")
        return d, a, b

    @property
    def depth(self) -> int:
        return 256 // BITS[self.kinds[1]] * (1 + self.sparse)

    @property
    def registers(self) -> int:
        return self.columns // (4 if self.kinds[0] == "f16" else 2)

    @property
    def name(self) -> str:
        where = "registers" if self.mode_a is None else f"mode {self.mode_a}{' transposed' * self.transposed_a}"
        rest = f", A {where}, B mode {self.mode_b}{' transposed' * self.transposed_b}"
        marks = f"{', satfinite' * self.saturating}{f', sparse {self.selector}' * self.sparse}"
        return f"{self.types} n{self.columns}{rest}{marks}"

    def text(self, leading: tuple[int, int], stride: tuple[int, int]) -> str:
        """The kernel; the offsets of A's and B's descriptors are given in bytes.

        ``in`` has 8 KiB of A and 16 KiB of B as shared memory is to hold them, then A's registers, D's, and the
        metadata, register by register.
        """
        d_kind, a_kind, _ = self.kinds
        count, threads = self.registers, 128
        d = ", ".join(f"%v{i}" for i in range(count))
        a = "%a" if self.mode_a is not None else "{%r0, %r1, %r2, %r3}"
        operands = ["{" + d + "}", a, "%b", *(("%e", str(self.selector)) if self.sparse else ()), "%keep"]
        if d_kind != "s32":
            operands += map(str, self.signs)
        if BITS[a_kind] == 16:
            operands += ([] if self.mode_a is None else [str(int(self.transposed_a))]) + [str(int(self.transposed_b))]
        suffix = ".and.popc" if a_kind == "b1" else ""
        saturating = ".satfinite" if self.saturating else ""
        product = f"wgmma.mma_async{'.sp' * self.sparse}.sync.aligned"
        product += f".m64n{self.columns}k{self.depth}{saturating}.{self.types}{suffix}"

        def descriptor(which: int, base: int, mode: int) -> int:
            return base >> 4 | leading[which] >> 4 << 16 | stride[which] >> 4 << 32 | mode << 62

        described_a = descriptor(0, 0, self.mode_a or 0)
        lines = [
            f".reg .pred %keep, %p; .reg .b32 %v<{count}>, %r<4>, %t, %n, %at, %e;",
            ".reg .b64 %in, %out, %from, %to, %a, %b, %w;",
            ".shared .align 1024 .b8 tile[24576];",
            "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;",
            "mov.u32 %at, tile; shl.b32 %n, %t, 3; add.u32 %at, %at, %n; cvt.u64.u32 %from, %n;",
            "add.u64 %from, %in, %from;",
            "mov.u32 %n, 0;",
            "FILL: ld.global.b64 %w, [%from]; st.shared.b64 [%at], %w; add.u64 %from, %from, 1024;",
            "add.u32 %at, %at, 1024;",
            "add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 24; @%p bra FILL;",
            "fence.proxy.async.shared::cta; bar.sync 0;",
            "mad.wide.u32 %from, %t, 4, %in; mad.wide.u32 %to, %t, 4, %out;",
            *(f"ld.global.b32 %r{i}, [%from+{24576 + 4 * threads * i}];" for i in range(4)),
            *(f"ld.global.b32 %v{i}, [%from+{24576 + 4 * threads * (4 + i)}];" for i in range(count)),
            f"ld.global.b32 %e, [%from+{24576 + 4 * threads * (4 + count)}];",
            f"mov.b64 %a, {described_a}; mov.b64 %b, {descriptor(1, 8192, self.mode_b)};",
            f"mov.u32 %n, {int(self.keep)}; setp.ne.u32 %keep, %n, 0;",
            "wgmma.fence.sync.aligned;",
            f"{product} {', '.join(operands)};",
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            *(f"st.global.b32 [%to+{4 * threads * i}], %v{i};" for i in range(count)),
        ]
        header = HEADER.replace("sm_80", "sm_90a")
        inside = "\n".join(lines)
        return f"{header}.visible .entry tile_product(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


FLOATS = ("f32.e4m3.e4m3", "f32.e4m3.e5m2", "f32.e5m2.e4m3", "f32.e5m2.e5m2")
PRODUCTS = (
    *(Wgmma("f32.f16.f16", 24, mode, mode) for mode in range(4)),
    *(Wgmma("f32.bf16.bf16", 64, mode, mode, True, True) for mode in range(4)),
    Wgmma("f32.f16.f16", 256, 1, 1, False, True, (-1, 1)),
    Wgmma("f32.bf16.bf16", 8, None, 2, signs=(1, -1)),
    Wgmma("f16.f16.f16", 16, None, 3, False, True, keep=False),
    Wgmma("f16.f16.f16", 40, 1, 1, True, False),
    Wgmma("f32.tf32.tf32", 32, 1, 1), Wgmma("f32.tf32.tf32", 16, None, 2, keep=False),
    *(Wgmma(types, 16, 1, 2) for types in FLOATS),
    *(Wgmma(types.replace("f32", "f16", 1), 24, None, 1) for types in FLOATS),
    *(Wgmma(f"s32.{a}.{b}", 32, 1, 1) for a in ("s8", "u8") for b in ("s8", "u8")),
    *(Wgmma(f"s32.{a}.{b}", 16, None, 0, saturating=True) for a in ("s8", "u8") for b in ("s8", "u8")),
    Wgmma("s32.b1.b1", 48, 1, 1), Wgmma("s32.b1.b1", 8, None, 1, keep=False),
    *(Wgmma("f32.f16.f16", 24, mode, mode % 3, sparse=True, selector=mode % 2) for mode in range(4)),
    *(Wgmma("f32.bf16.bf16", 64, mode, mode, True, True, sparse=True, selector=mode % 2) for mode in range(4)),
    Wgmma("f32.f16.f16", 256, 1, 1, False, True, (-1, 1), sparse=True),
    Wgmma("f16.f16.f16", 16, None, 2, signs=(1, -1), keep=False, sparse=True, selector=1),
    Wgmma("f32.tf32.tf32", 32, 1, 0, sparse=True), Wgmma("f32.tf32.tf32", 16, None, 2, sparse=True, selector=1),
    *(Wgmma(types, 16, 3, 1, sparse=True) for types in FLOATS),
    *(Wgmma(types.replace("f32", "f16", 1), 24, None, 1, sparse=True) for types in FLOATS),
    *(Wgmma(f"s32.{a}.{b}", 32, 1, 1, sparse=True) for a in ("s8", "u8") for b in ("s8", "u8")),
    *(Wgmma(f"s32.{a}.{b}", 16, None, 0, saturating=True, sparse=True) for a in ("s8", "u8") for b in ("s8", "u8")),
)  # fmt: skip
