"""Instructions that the machine refuses by name: the reason, and a replacement. INSTRUCTIONS.md lists them, too."""

from __future__ import annotations

from workbench.ptx.instruction import Plan
from workbench.ptx.operands import Refused

TEXTURES = "textures and surfaces are out of the machine's scope: read from a pointer with ld.global"
VIDEO = "scalar video instructions are out of the machine's scope: use integer arithmetic, as GPUs since Maxwell do"
STACK = "stack allocation at run time is out of the machine's scope: use an array of fixed size"
OLD_SYNC = "without .sync it needs a GPU older than sm_70: use its .sync form"
MULTIMEM = "memory of several GPUs at once is out of the machine's scope, which runs one: use ld, st and red"
VOLTA = "products of 8 x 8 x 4 with f16 factors are Volta's: use m16n8k8 or m16n8k16"
WIDE_ATOMICS = "PTX has 128-bit atomics for exch and cas alone: use one of them, or 64 bits"
IM2COL = "copies by im2col are out of the machine's scope: use .tile"
REDUCED_IN_SHARED = "a bulk reduction in shared memory is out of the machine's scope: use red.async"
ASYNC_IN_GLOBAL = (
    "asynchronous stores and reductions in global memory are out of the machine's scope: use st.global and red.global"
)
INDIRECT_CALL = "an indirect call without a .callprototype: call the function by its name"
NARROW_ADDRESSES = "32-bit addresses: compile for a 64-bit address space (.address_size 64)"
SHAPES = (
    "PTX has no such matrix: use .m8n8 with .b16; ldmatrix .m16n16.trans with .b8, .b8x16.b6x16_p32 or "
    ".b8x16.b4x16_p64, .m8n16 with the latter two; stmatrix .m16n8.trans with .b8"
)

SPARSE_STATIONARY = (
    "products .ws with a sparse A are out of the machine's scope: use tcgen05.mma.sp without .ws, or the dense product"
)
SHIFTED_PRODUCT = (
    "PTX does not say whether a product with .ashift reads A before or after the shift, nor whether the shifted rows "
    "stay in tensor memory: use tcgen05.shift before the product"
)

# Refused forms of instructions that the machine supports in other forms.
FORMS: dict[str, str] = {
    "shfl, vote without .sync": OLD_SYNC,
    "atom with .b128 but exch and cas": WIDE_ATOMICS,
    "tcgen05.mma.ws.sp": SPARSE_STATIONARY,
    "tcgen05.mma with .ashift": SHIFTED_PRODUCT,
    "cp.async.bulk.tensor with .im2col": IM2COL,
    "cp.reduce.async.bulk in shared memory": REDUCED_IN_SHARED,
    "st.async, red.async with .global": ASYNC_IN_GLOBAL,
    "cvta with .u32": NARROW_ADDRESSES,
    "call through a register without .callprototype": INDIRECT_CALL,
}

# By the first words of the instruction; the longest match counts. Plans give reasons about operands and modifiers.
REASONS: dict[str, str] = {
    "multimem": MULTIMEM,
    "tex": TEXTURES, "tld4": TEXTURES, "txq": TEXTURES, "istypep": TEXTURES,
    "suld": TEXTURES, "sust": TEXTURES, "sured": TEXTURES, "suq": TEXTURES,
    "vadd": VIDEO, "vsub": VIDEO, "vabsdiff": VIDEO, "vmin": VIDEO, "vmax": VIDEO, "vshl": VIDEO, "vshr": VIDEO,
    "vmad": VIDEO, "vset": VIDEO, "vset2": VIDEO, "vset4": VIDEO,
    "alloca": STACK, "stacksave": STACK, "stackrestore": STACK,
    "mma.sync.aligned.m8n8k4": VOLTA,
}  # fmt: skip


def reason(text: str) -> str | None:
    """Return the reason why an opcode text is refused by name, or None."""
    parts = text.split(".")
    for length in range(min(len(parts), 4), 0, -1):
        found = REASONS.get(".".join(parts[:length]))
        if found is not None and not (found == VOLTA and "f64" in parts):
            return found
    return None


def plan(parts: list[str]) -> Plan:
    """Refuse an opcode that no family knows, with the reason."""
    raise Refused(reason(".".join(parts)) or "the machine does not support this instruction")
