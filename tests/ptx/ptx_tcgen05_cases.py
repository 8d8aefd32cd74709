"""Kernels around one tcgen05.mma: operands from shared memory, or A from tensor memory, and D in tensor memory."""

from __future__ import annotations

from typing import NamedTuple

from ptx_support import HEADER

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "s8": 8, "u8": 8,
}  # fmt: skip
NUMBERS = {
    "f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1}, "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1}, "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
}  # fmt: skip
NUMBERS["mxf8f6f4"] = NUMBERS["f8f6f4"]
# Where the parts of shared memory begin: A, B, the scales of A and of B, the metadata of a sparse A; and where in
# tensor memory, by columns.
A_AT, B_AT, SCALES_AT, METADATA_AT, SHARED_BYTES = 0, 16384, 32768, 34816, 36864
A_COLUMN, SCALE_COLUMNS, METADATA_COLUMN = 256, (272, 280), 290
LAYOUTS = (0, 2, 4, 6, 1)  # by the mode that wgmma numbers them with; the last is 128 bytes in atoms of 32


class ZeroColumns(NamedTuple):
    """A mask of columns of B that count as zeros: spans of ``used`` and ``zeros`` columns by turns."""

    zeros: int
    used: int
    starts: tuple[int, ...] = (0, 0, 0, 0)
    zeros_first: tuple[int, ...] = (0, 0, 0, 0)
    shift: int = 0
    enabled: bool = True

    @property
    def descriptor(self) -> int:
        bits = (self.zeros - 1) << 40 | (self.used - 1) << 48 | self.shift << 56 | self.enabled << 39
        for i in range(4):
            bits |= self.starts[i] << 8 * i | self.zeros_first[i] << 32 + i
        return bits

    def columns(self, part: int, count: int) -> list[bool]:
        """Return True for each column of a part that counts as zeros."""
        spans = (False,) * self.used, (True,) * self.zeros
        pattern = (spans[1] + spans[0] if self.zeros_first[part] else spans[0] + spans[1]) * count
        return [*pattern[self.starts[part] :][:count]] if self.enabled else [False] * count


class Tcgen05(NamedTuple):
    """``mode_a`` and ``mode_b`` are those of the descriptors as wgmma numbers them (None: A in tensor memory)."""

    kind: str
    a: str
    b: str
    rows: int = 128
    columns: int = 32
    mode_a: int | None = 1
    mode_b: int = 1
    transposed_a: bool = False
    transposed_b: bool = False
    signs: tuple[int, int] = (1, 1)
    sums: str = "f32"
    keep: bool = True
    saturating: bool = False
    shift: int = 0
    masks: tuple[int, ...] | None = None
    scales: str = ""
    powers: bool = True
    scale_ids: tuple[int, int] = (0, 0)
    stationary: bool = False
    lane: int = 0
    pair: bool = False
    mask: ZeroColumns | None = None
    sparse: bool = False
    selector: int = 0
    base_offset: int = 0

    @property
    def is_packed(self) -> bool:
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def stored_depth(self) -> int:
        """Elements in a row of A, half of K's if A is sparse."""
        return 64 if self.is_packed else {"f16": 16, "tf32": 8}.get(self.kind, 32)

    @property
    def depth(self) -> int:
        return self.stored_depth * (1 + self.sparse)

    @property
    def parts(self) -> int:
        """Scales along K of a row."""
        return 1 if self.kind == "mxf8f6f4" else 4 if self.scales in ("scale_vec::4X", "block16") else 2

    @property
    def name(self) -> str:
        differing = {key: value for key, value in self._asdict().items() if value != self._field_defaults.get(key)}
        return " ".join(
            f"{value}" if key in ("kind", "a", "b") else f"{key}={value}" for key, value in differing.items()
        )

    @property
    def descriptor(self) -> int:
        numbers = NUMBERS[self.kind]
        bits = numbers[self.a] << 7 | numbers[self.b] << 10 | (self.signs[0] < 0) << 13 | (self.signs[1] < 0) << 14
        bits |= self.transposed_a << 15 | self.transposed_b << 16 | self.columns >> 3 << 17 | self.rows >> 4 << 24
        bits |= self.sparse << 2 | self.selector
        if self.scales:
            return bits | self.powers << 23 | self.scale_ids[1] << 4 | self.scale_ids[0] << 29
        if self.mask:
            bits |= next(code for code, most in enumerate((0, 8, 16, 32)) if self.mask.shift <= most) << 30
        return bits | {"f16": 0, "f32": 1, "s32": 2}[self.sums] << 4 | self.saturating << 3

    def text(self, leading: tuple[int, int], stride: tuple[int, int]) -> str:
        """The kernel of 128 threads; the offsets of A's and B's descriptors are given in bytes.

        ``in`` has for each block shared memory as it is to be; then for each thread eight words of A and D's columns,
        word by word; ``out`` gets D's columns.
        """

        def matrix(which: int, base: int, mode: int) -> int:
            fields = base >> 4 | leading[which] >> 4 << 16 | stride[which] >> 4 << 32 | 1 << 46
            return fields | self.base_offset << 49 | LAYOUTS[mode] << 61

        threads, columns, lane = 128, self.columns, self.lane << 16
        group = f"cta_group::{1 + self.pair}"
        meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if self.pair else "bar.sync 0;"
        many, blocks = (".multicast::cluster", ", 3") if self.pair else ("", "")
        operands = ["[%d]", "%a" if self.mode_a is not None else "[%ta]", "%b"]
        operands += [*(["[%md]"] if self.sparse else []), str(self.descriptor)]
        if self.scales:
            operands += ["[%sa]", "[%sb]"]
        if self.masks:
            operands.append("{" + ", ".join(map(str, self.masks)) + "}")
        operands.append("%keep")
        if self.shift:
            operands.append(str(self.shift))
        if self.mask:
            operands.append(str(self.mask.descriptor))
        scaling = f".block_scale.{self.scales}" if self.scales else ""
        product = f"tcgen05.mma{'.ws' * self.stationary}{'.sp' * self.sparse}.{group}.kind::{self.kind}{scaling}"

        def eight(first: int) -> str:
            return "{" + ", ".join(f"%v{i}" for i in range(first, first + 8)) + "}"

        lines = [
            f".reg .pred %keep, %p, %first, %leads; .reg .b32 %v<{8 + columns}>, %t, %n, %at, %bar, %w, %rank;",
            ".reg .b32 %tm, %d, %ta, %sa, %sb, %md;",
            ".reg .b64 %in, %out, %from, %to, %a, %b, %x;",
            f".shared .align 1024 .b8 tile[{SHARED_BYTES}]; .shared .align 8 .b64 done; .shared .align 4 .b32 where;",
            "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %rank, %ctaid.x;",
            f"mad.wide.u32 %in, %rank, {SHARED_BYTES + 4 * threads * (8 + columns)}, %in;",
            f"mad.wide.u32 %out, %rank, {4 * threads * columns}, %out;",
            "mov.u32 %at, tile; shl.b32 %n, %t, 3; add.u32 %at, %at, %n; cvt.u64.u32 %from, %n;",
            "add.u64 %from, %in, %from; mov.u32 %n, 0;",
            "FILL: ld.global.b64 %x, [%from]; st.shared.b64 [%at], %x; add.u64 %from, %from, 1024;",
            f"add.u32 %at, %at, 1024; add.u32 %n, %n, 1; setp.lt.u32 %p, %n, {SHARED_BYTES // 1024}; @%p bra FILL;",
            "fence.proxy.async.shared::cta;",
            "shr.u32 %w, %t, 5; setp.eq.u32 %first, %w, 0; setp.eq.u32 %leads, %t, 0;",
            "mov.u32 %bar, done; mov.u32 %n, where;",
            "@%leads mbarrier.init.shared.b64 [%bar], 1;",
            f"@%first tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%n], 512;",
            f"@%first tcgen05.relinquish_alloc_permit.{group}.sync.aligned;",
            "bar.sync 0; ld.shared.b32 %tm, [where];",
            f"add.u32 %d, %tm, {lane}; add.u32 %ta, %tm, {A_COLUMN + lane};",
            f"add.u32 %sa, %tm, {SCALE_COLUMNS[0]}; add.u32 %sb, %tm, {SCALE_COLUMNS[1]};",
            f"add.u32 %md, %tm, {METADATA_COLUMN};",
            "mad.wide.u32 %from, %t, 4, %in; mad.wide.u32 %to, %t, 4, %out;",
            *(f"ld.global.b32 %v{i}, [%from+{SHARED_BYTES + 4 * threads * i}];" for i in range(8 + columns)),
            "shl.b32 %w, %w, 21; add.u32 %w, %w, %tm;",
            f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%w+{A_COLUMN}], {eight(0)};",
            *(f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%w+{i}], {eight(8 + i)};" for i in range(0, columns, 8)),
            f"tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; {meet}",
            "tcgen05.fence::after_thread_sync; @%leads setp.eq.u32 %leads, %rank, 0;",
            f"mov.b64 %a, {matrix(0, A_AT, self.mode_a or 0)}; mov.b64 %b, {matrix(1, B_AT, self.mode_b)};",
            f"mov.u32 %n, {int(self.keep)}; setp.ne.u32 %keep, %n, 0;",
        ]
        for i, column in enumerate(("%sa", "%sb", "%sb+4") if self.scales else ()):
            described = SCALES_AT + 512 * i >> 4 | 128 >> 4 << 32 | 1 << 46
            lines.append(f"mov.b64 %x, {described};")
            lines.append(f"@%leads tcgen05.cp.{group}.32x128b.warpx4 [{column}], %x;")
        if self.sparse:
            lines.append(f"mov.b64 %x, {METADATA_AT >> 4 | 128 >> 4 << 32 | 1 << 46};")
            lines.append(f"@%leads tcgen05.cp.{group}.128x128b [%md], %x;")
        lines += [
            f"@%leads {product} {', '.join(operands)};",
            f"@%leads tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{many}.b64 [%bar]{blocks};",
            "WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0; @!%p bra WAIT;",
            "tcgen05.fence::after_thread_sync;",
            *(f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {eight(8 + i)}, [%w+{i}];" for i in range(0, columns, 8)),
            f"tcgen05.wait::ld.sync.aligned; tcgen05.fence::before_thread_sync; {meet}",
            *(f"st.global.b32 [%to+{4 * threads * i}], %v{8 + i};" for i in range(columns)),
            f"@%first tcgen05.dealloc.{group}.sync.aligned.b32 %tm, 512;",
        ]
        header = HEADER.replace("sm_80", "sm_100a")
        inside = "\n".join(lines)
        return f"{header}.visible .entry tile_product(.param .u64 in, .param .u64 out)\n{{\n{inside}\nret;\n}}\n"


TCGEN05 = (
    *(Tcgen05("f16", "f16", "f16", 128, 48, mode, mode) for mode in range(4)),
    *(Tcgen05("f16", "bf16", "f16", 64, 24, mode, mode, True, True) for mode in range(4)),
    Tcgen05("f16", "f16", "f16", 128, 16, 0, 0, base_offset=4),
    Tcgen05("f16", "f16", "bf16", 128, 256, 2, 3, transposed_a=True, signs=(-1, 1)),
    Tcgen05("f16", "bf16", "bf16", 64, 8, None, 2, signs=(1, -1), lane=16),
    Tcgen05("f16", "f16", "f16", 128, 16, None, 3, transposed_b=True, sums="f16", keep=False),
    Tcgen05("f16", "f16", "f16", 64, 40, 1, 1, sums="f16", masks=(0xF0, 0, 0x3, 0)),
    Tcgen05("f16", "f16", "f16", shift=3, masks=(1, 2, 0xFFFFFFFF, 0x80000000)),
    Tcgen05("tf32", "tf32", "tf32", 128, 64), Tcgen05("tf32", "tf32", "tf32", 64, 16, None, 2, keep=False, shift=1),
    Tcgen05("tf32", "tf32", "tf32", 128, 64, 4, 4, True, True),
    Tcgen05("tf32", "tf32", "tf32", 64, 48, 2, 4, False, True),
    Tcgen05("tf32", "tf32", "tf32", 128, 32, 4, 0, True, False),
    Tcgen05("tf32", "tf32", "tf32", 256, 64, 4, 4, True, True, pair=True),
    *(Tcgen05("f8f6f4", a, b, 128, 16) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    Tcgen05("f8f6f4", "e4m3", "e5m2", 64, 16, 1, 2, True, True), Tcgen05("f8f6f4", "e5m2", "e4m3", 128, 16, None, 0),
    Tcgen05("f8f6f4", "e2m1", "e2m3"), Tcgen05("f8f6f4", "e3m2", "e2m1", sums="f16", signs=(-1, -1)),
    *(Tcgen05("i8", a, b, 128, 32, sums="s32") for a in ("s8", "u8") for b in ("s8", "u8")),
    Tcgen05("i8", "s8", "s8", 64, 16, None, 0, sums="s32", saturating=True),
    Tcgen05("i8", "u8", "s8", 128, 16, 1, 1, True, True, sums="s32", keep=False),
    Tcgen05("mxf8f6f4", "e4m3", "e5m2", scales="scale_vec::1X", scale_ids=(1, 3)),
    Tcgen05("mxf8f6f4", "e2m1", "e3m2", 128, 224, 2, 3, scales="block32"),
    Tcgen05("mxf4", "e2m1", "e2m1", scales="scale_vec::2X", scale_ids=(2, 0)),
    Tcgen05("mxf4nvf4", "e2m1", "e2m1", scales="scale_vec::4X", powers=False, signs=(-1, 1)),
    Tcgen05("mxf4nvf4", "e2m1", "e2m1", 128, 128, 2, 3, scales="block32"),
    Tcgen05("f8f6f4", "e2m1", "e3m2", 128, 32, None, 1), Tcgen05("f8f6f4", "e2m3", "e4m3", 64, 32, None, 2, lane=16),
    Tcgen05("mxf8f6f4", "e3m2", "e2m1", 128, 32, None, 3, scales="scale_vec::1X"),
    *(Tcgen05("f16", "f16", "f16", rows, 64, stationary=True) for rows in (32, 64, 128)),
    Tcgen05("f16", "f16", "f16", 128, 64, stationary=True, mask=ZeroColumns(3, 4)),
    Tcgen05("tf32", "tf32", "tf32", 64, 64, stationary=True, mask=ZeroColumns(3, 4, zeros_first=(1, 0, 0, 0))),
    Tcgen05("f16", "f16", "f16", 32, 128, None, 2, stationary=True,
            mask=ZeroColumns(3, 4, (0, 1, 2, 1), (1, 1, 0, 0), 2)),
    Tcgen05("i8", "s8", "u8", 128, 64, 1, 1, True, True, sums="s32", stationary=True, mask=ZeroColumns(1, 9, shift=13)),
    Tcgen05("tf32", "tf32", "tf32", 64, 64, 4, 4, True, True, stationary=True, mask=ZeroColumns(256, 1, shift=32)),
    Tcgen05("f16", "bf16", "f16", 128, 64, 1, 3, False, True, stationary=True,
            mask=ZeroColumns(5, 6, shift=7, enabled=False)),
    Tcgen05("tf32", "tf32", "tf32", 64, 64, None, 2, stationary=True),
    Tcgen05("f16", "f16", "f16", 256, 64, pair=True),
    Tcgen05("f16", "bf16", "f16", 128, 64, 1, 2, True, True, pair=True),
    Tcgen05("tf32", "tf32", "tf32", 128, 32, None, 2, pair=True),
    Tcgen05("f8f6f4", "e4m3", "e5m2", 256, 32, None, 1, keep=False, pair=True),
    Tcgen05("mxf8f6f4", "e4m3", "e4m3", 256, 32, scales="scale_vec::1X", scale_ids=(2, 1), pair=True),
    *(Tcgen05("f16", "f16", "f16", 128, 48, mode, mode % 3, sparse=True, selector=mode % 2) for mode in range(4)),
    Tcgen05("f16", "bf16", "f16", 128, 32, 2, 3, True, True, (-1, 1), sparse=True),
    Tcgen05("f16", "f16", "f16", 128, 16, None, 1, sums="f16", keep=False, sparse=True, selector=1),
    *(Tcgen05("tf32", "tf32", "tf32", 128, 32, mode, 1, sparse=True, selector=1 - bool(mode)) for mode in (None, 1)),
    *(Tcgen05("f8f6f4", a, b, 128, 16, sparse=True) for a in ("e4m3", "e2m3") for b in ("e5m2", "e2m1")),
    Tcgen05("f8f6f4", "e4m3", "e5m2", 128, 32, 1, 2, True, True, sparse=True, masks=(1, 2, 0, 1 << 31)),
    Tcgen05("i8", "s8", "u8", 128, 32, None, 0, sums="s32", saturating=True, sparse=True),
    Tcgen05("mxf8f6f4", "e4m3", "e3m2", scales="scale_vec::1X", scale_ids=(1, 3), sparse=True),
    Tcgen05("mxf4", "e2m1", "e2m1", scales="scale_vec::2X", scale_ids=(2, 0), sparse=True),
    Tcgen05("mxf4nvf4", "e2m1", "e2m1", scales="scale_vec::4X", powers=False, sparse=True),
    Tcgen05("f16", "f16", "bf16", 256, 64, sparse=True, selector=1, pair=True),
    Tcgen05("f8f6f4", "e5m2", "e4m3", 256, 32, None, 1, sparse=True, pair=True),
    Tcgen05("mxf8f6f4", "e4m3", "e4m3", 256, 32, scales="scale_vec::1X", scale_ids=(2, 1), sparse=True, pair=True),
)  # fmt: skip
