"""Kernels for matrix and warp-wide instructions, shared by their tests and the coverage test."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import lane_kernel, module


class Mma(NamedTuple):
    """``m`` is 16 and ``n`` 8 throughout; registers per lane of A, B and of the accumulator."""

    shape: str
    types: str
    a: int
    b: int
    c: int

    @property
    def k(self) -> int:
        return int(self.shape.split("k")[1])

    @property
    def text(self) -> str:
        names = [f"%r{i}" for i in range(1, 1 + self.a + self.b + self.c)]
        a, b = names[: self.a], names[self.a : self.a + self.b]
        c = names[self.a + self.b :]
        d = [f"%r{40 + i}" for i in range(self.c)]
        body = ["mov.u32 %r60, %tid.x;", "ld.param.u64 %d1, [in];", "ld.param.u64 %d2, [out];"]
        body += ["mad.wide.u32 %d3, %r60, 4, %d1;", "mad.wide.u32 %d4, %r60, 4, %d2;"]
        body += [f"ld.global.b32 {name}, [%d3+{128 * i}];" for i, name in enumerate(names)]
        fragments = ", ".join("{" + ", ".join(group) + "}" for group in (d, a, b, c))
        body += [f"mma.sync.aligned.{self.shape}.row.col.{self.types} {fragments};"]
        body += [f"st.global.b32 [%d4+{128 * i}], {name};" for i, name in enumerate(d)]
        return module("tile", ".param .u64 in, .param .u64 out", "\n".join(body))


MMAS = [
    Mma("m16n8k16", "f32.f16.f16.f32", 4, 2, 4), Mma("m16n8k8", "f32.f16.f16.f32", 2, 1, 4),
    Mma("m16n8k16", "f32.bf16.bf16.f32", 4, 2, 4), Mma("m16n8k8", "f32.bf16.bf16.f32", 2, 1, 4),
    Mma("m16n8k16", "f16.f16.f16.f16", 4, 2, 2), Mma("m16n8k8", "f16.f16.f16.f16", 2, 1, 2),
    Mma("m16n8k8", "f32.tf32.tf32.f32", 4, 2, 4), Mma("m16n8k4", "f32.tf32.tf32.f32", 2, 1, 4),
    Mma("m16n8k32", "s32.s8.s8.s32", 4, 2, 4), Mma("m16n8k32", "s32.u8.u8.s32", 4, 2, 4),
    Mma("m16n8k32", "s32.s8.u8.s32", 4, 2, 4), Mma("m16n8k32", "s32.u8.s8.s32", 4, 2, 4),
    Mma("m16n8k16", "s32.s8.s8.s32", 2, 1, 4), Mma("m16n8k16", "s32.u8.u8.s32", 2, 1, 4),
]  # fmt: skip


def matrix_text(
    name: str, count: int, transposed: bool, *, wide: bool = False, moved: int = 0, form: str = ""
) -> str:  # fmt: skip
    """ldmatrix from, or stmatrix to, ``count`` registers of eight rows each, given in reverse order of lanes.

    ``wide``: addresses in 64-bit registers. ``moved``: bytes that lane 5 adds to its address. ``form``: the
    instruction's shape, number and type, unless it is of 8 x 8 matrices.
    """
    names = [f"%r{i + 1}" for i in range(count)]
    registers = "{" + ", ".join(names) + "}"
    trans = ".trans" if transposed else ""
    body = [
        ".shared .align 16 .b8 tile[512];", "mov.u32 %r60, %tid.x; mov.u32 %r50, tile;", "ld.param.u64 %d1, [in];",
        "ld.param.u64 %d2, [out];", f"rem.u32 %r51, %r60, {8 * count}; sub.u32 %r52, {8 * count - 1}, %r51;",
        "mad.lo.u32 %r53, %r52, 16, %r50; mad.wide.u32 %d3, %r60, 4, %d1; mad.wide.u32 %d4, %r60, 4, %d2;",
        "mad.lo.u32 %r54, %r60, 4, %r50;", f"setp.eq.u32 %p1, %r60, 5; @%p1 add.u32 %r53, %r53, {moved};",
        "cvt.u64.u32 %d5, %r53;",
    ]  # fmt: skip
    address = "%d5" if wide else "%r53"
    access = f"{name}.sync.aligned.{form or f'm8n8.x{count}{trans}.shared.b16'}"
    for i in range(count):
        body += [
            f"ld.global.b32 %r40, [%d3+{128 * i}]; st.shared.b32 [%r54+{128 * i}], %r40; mov.b32 {names[i]}, %r40;"
        ]
    body += ["bar.sync 0;"]
    if name == "ldmatrix":
        body += [f"{access} {registers}, [{address}];"]
        body += [f"st.global.b32 [%d4+{128 * i}], {r};" for i, r in enumerate(names)]
    else:
        body += [f"{access} [{address}], {registers};", "bar.sync 0;"]
        body += [f"ld.shared.b32 %r40, [%r54+{128 * i}]; st.global.b32 [%d4+{128 * i}], %r40;" for i in range(count)]
    return module("tile", ".param .u64 in, .param .u64 out", "\n".join(body))


# Matrices of bytes, and of elements that become bytes: registers, and the instruction's form.
BYTE_MATRICES = {
    **{f"m16n16.x{n}.trans.shared.{t}": 2 * n for n in (1, 2) for t in ("b8", "b8x16.b6x16_p32", "b8x16.b4x16_p64")},
    **{f"m8n16.x{n}.shared.{t}": n for n in (1, 2, 4) for t in ("b8x16.b6x16_p32", "b8x16.b4x16_p64")},
    **{f"m16n8.x{n}.trans.shared.b8": n for n in (1, 2, 4)},
}


def byte_matrix_text(form: str) -> str:
    name = "stmatrix" if form.startswith("m16n8.") else "ldmatrix"
    return matrix_text(name, BYTE_MATRICES[form], False, form=form)


MATRIX_ACCESSES = [(n, c, t) for n in ("ldmatrix", "stmatrix") for c in (1, 2, 4) for t in (False, True)]

# Warp-wide instructions as lane kernels: text, destinations, sources.
WARP_OPERATIONS = {
    "shfl.up": ("shfl.sync.up.b32 {d0}|{d1}, {s0}, {s1}, {s2}, -1;", ["b32", "pred"], ["b32", "b32", "b32"]),
    "shfl.down": ("shfl.sync.down.b32 {d0}|{d1}, {s0}, {s1}, {s2}, -1;", ["b32", "pred"], ["b32", "b32", "b32"]),
    "shfl.bfly": ("shfl.sync.bfly.b32 {d0}|{d1}, {s0}, {s1}, {s2}, -1;", ["b32", "pred"], ["b32", "b32", "b32"]),
    "shfl.idx": ("shfl.sync.idx.b32 {d0}|{d1}, {s0}, {s1}, {s2}, -1;", ["b32", "pred"], ["b32", "b32", "b32"]),
    "vote.ballot": ("vote.sync.ballot.b32 {d0}, {s0}, -1;", ["b32"], ["pred"]),
    "vote.ballot.not": ("vote.sync.ballot.b32 {d0}, !{s0}, -1;", ["b32"], ["pred"]),
    "vote.ballot.sync": ("vote.ballot.sync.b32 {d0}, {s0}, -1;", ["b32"], ["pred"]),
    "vote.all": ("vote.sync.all.pred {d0}, {s0}, -1;", ["pred"], ["pred"]),
    "vote.any": ("vote.sync.any.pred {d0}, {s0}, -1;", ["pred"], ["pred"]),
    "vote.uni": ("vote.sync.uni.pred {d0}, {s0}, -1;", ["pred"], ["pred"]),
    "match.any.b32": ("match.any.sync.b32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "match.any.b64": ("match.any.sync.b64 {d0}, {s0}, -1;", ["b32"], ["b64"]),
    "match.all.b32": ("match.all.sync.b32 {d0}|{d1}, {s0}, -1;", ["b32", "pred"], ["b32"]),
    "match.all.b64": ("match.all.sync.b64 {d0}|{d1}, {s0}, -1;", ["b32", "pred"], ["b64"]),
    "redux.add": ("redux.sync.add.s32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.and": ("redux.sync.and.b32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.or": ("redux.sync.or.b32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.xor": ("redux.sync.xor.b32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.min.u32": ("redux.sync.min.u32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.max.u32": ("redux.sync.max.u32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "redux.min.s32": ("redux.sync.min.s32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    **{
        f"redux.{operation}{form}.f32": (f"redux.sync.{operation}{form}.f32 {{d0}}, {{s0}}, -1;", ["f32"], ["f32"])
        for operation in ("min", "max")
        for form in ("", ".abs", ".NaN", ".abs.NaN")
    },
    "redux.max.s32": ("redux.sync.max.s32 {d0}, {s0}, -1;", ["b32"], ["b32"]),
    "movmatrix": ("movmatrix.sync.aligned.m8n8.trans.b16 {d0}, {s0};", ["b32"], ["b32"]),
    "activemask": ("activemask.b32 {d0};", ["b32"], []),
    "elect": ("elect.sync {d0}|{d1}, -1;", ["b32", "pred"], []),
}
BARRIER_REDUCTIONS = {
    "popc": ("bar.red.popc.u32 {d0}, 0, {s0};", ["b32"], ["pred"]),
    "and": ("bar.red.and.pred {d0}, 0, !{s0};", ["pred"], ["pred"]),
    "or": ("barrier.cta.red.or.pred {d0}, 0, {s0};", ["pred"], ["pred"]),
}


def texts() -> list[str]:
    """Every kernel of this module as PTX."""
    found = [mma.text for mma in MMAS] + [matrix_text(*access) for access in MATRIX_ACCESSES]
    found += [byte_matrix_text(form) for form in BYTE_MATRICES]
    for table in (WARP_OPERATIONS, BARRIER_REDUCTIONS):
        found += [lane_kernel(*row) for row in table.values()]
    return found
