"""Generator of INSTRUCTIONS.md, the instructions that the machine supports and refuses.

``python -m workbench.ptx.table`` prints the page. Its rows come from the core's own table and from the decoder's, so
that the page agrees with the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workbench.base.tables import Table
from workbench.ptx.families import refused
from workbench.ptx.findings import GRID_SYNC
from workbench.ptx.machine import OPCODES

PAGE = Path(__file__).with_name("INSTRUCTIONS.md")
_TYPES = {
    "pred", "b8", "s8", "u8", "b16", "s16", "u16", "f16", "bf16", "f16x2", "bf16x2", "b16x2", "s16x2", "u16x2", "b32",
    "s32", "u32", "f32", "tf32", "b64", "s64", "u64", "f64", "e4m3x2", "e5m2x2",
    "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2", "s2f6x2", "e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4", "e2m1x4",
}  # fmt: skip
INTERNAL = ("param.copy", "registers.", "nop", "tcgen05.wait.assembler", "contract.")
_MADE_OF_OTHERS = {
    "mul, then add or sub, without .rn": "`contract`, an fma with two signs, where ptxas fuses them",
    "wmma.mma": "`mma`, one or two; the fragments are those of the hardware",
    "mma.m16n8k4, mma.m16n8k8, mma.m16n8k16 of f64": "`mma.m8n8k4`, two for each four columns of A",
    "set, slct": "`setp` and `selp`",
    "setp.f16x2, setp.bf16x2": "`unpack` and two `setp`",
    "brx.idx": "`setp` and `bra` for each label",
    "add, sub, mul, fma with .rz, .rm, .rp and .sat": "the operation, then `cvt.sat`",
    "add.f32, sub.f32, fma.f32 of .f16 or .bf16 with .rz, .rm, .rp": "`cvt.f32` of those, then the operation",
    "min.f32, max.f32 of three": "`min3`, `max3`",
    "mma with .kind::f8f6f4": "`mma.m16n8k32` of the same types",
    "cvt with .ftz or .sat where no form of its own is listed": "`cvt.ftz`, the conversion, `cvt.sat`",
    "mbarrier.try_wait": "`mbarrier.test_wait`; a warp that waits lets the other warps go on",
    "cvta, cvta.to": "`add` and `sub` of the window of shared or local memory",
    "red": "`atom` without a result",
    "red.async": "`red`, then `mbarrier.complete_tx` of its bytes",
}
_LAST_BITS = """\
`add`, `sub`, `mul`, `fma`, `div`, `rcp` and `sqrt` with a rounding are exact. Without `.rn` the assembler may fuse
`mul` with `add` or `sub`, and the machine fuses where ptxas does (12.8 to 13.1; the rule is in `contraction.py`).
`fmad=False` at a launch, in `check_kernel` and `trace_kernel`, and `workbench run --no-fmad` keep both roundings, as
does code compiled with `--fmad=false` or `-G`, or by Triton with `enable_fp_fusion=False`.

The last bits of these may differ from a GPU's:

* approximate functions (`.approx`, `.full`), and a sum that ptxas fuses with the product inside of a division of these
* sums inside of a product of tensor cores (`mma`, `wmma`, `wgmma`, `tcgen05.mma`)
* products that ptxas fuses across the iterations of a loop that it unrolls, or the sides of a branch that it joins
* float atomics that meet in another order
"""
_WITHOUT_EFFECT = (
    "prefetch", "prefetchu", "applypriority", "discard", "createpolicy", "L1:: and L2:: qualifiers", "nanosleep",
    "griddepcontrol", "pmevent",
)  # fmt: skip


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield (class, instruction, forms): one row per instruction, its types and modifiers gathered."""
    gathered: dict[tuple[str, str], list[str]] = {}
    for opcode in OPCODES.values():
        if opcode.name.startswith(INTERNAL):
            continue
        parts = opcode.name.split(".")
        # Types stand last; the instruction comes before them.
        cut = next((i for i, part in enumerate(parts) if i and part.split("/")[0] in _TYPES), len(parts))
        gathered.setdefault((opcode.group, ".".join(parts[:cut])), []).append(".".join(parts[cut:]))
    for (group, name), forms in sorted(gathered.items()):
        yield group, name, ", ".join(sorted({form for form in forms if form}))


def refusals() -> Iterator[tuple[str, str]]:
    """Yield (instructions, reason and replacement): one row per reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in (*refused.REASONS.items(), *refused.FORMS.items()):
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        yield ", ".join(f"`{name}`" if name in refused.REASONS else name for name in names), why
    yield "grid.sync() of cooperative groups", GRID_SYNC.removeprefix("; grid.sync() ")


def markdown() -> str:
    """Return the page: supported instructions, those made of others, and those refused with the reason."""
    out = [
        "# Instructions of the PTX machine", "",
        "Output of `python -m workbench.ptx.table`; a test compares the two. The machine is meant to run all PTX that",
        "NVRTC, nvcc and Triton emit for sm_80 to sm_120a; it refuses the rest before anything runs, with the line.",
        "",
        f"## Supported: {len(OPCODES)} canonical instructions", "",
        "The last column has types and widths: `s8/32` is 8 signed bits in a 32-bit register. Where the sign does",
        "not matter the bits stand for both (`add.b32` is `add.s32` and `add.u32`).", "",
    ]  # fmt: skip
    supported = [(group, f"`{name}`", forms) for group, name, forms in rows()]
    out += [Table(("class", "instruction", "types"), supported, "lll").markdown()]
    out += ["", "## Made of others", "", Table(("instruction", "done by"), [*_MADE_OF_OTHERS.items()], "ll").markdown()]
    out += [
        "",
        "## Accepted, without effect on any value",
        "",
        ", ".join(f"`{name}`" for name in _WITHOUT_EFFECT) + ".",
    ]
    out += ["", "## Last bits", "", _LAST_BITS.rstrip()]
    out += ["", "## Refused", ""]
    out += [Table(("instruction", "why, and what to use instead"), [*refusals()], "ll").markdown()]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
