"""Instructions that the machine refuses by name: the reason, and a replacement. INSTRUCTIONS.md lists them, too."""

from __future__ import annotations

from workbench.ptx.instruction import Plan
from workbench.ptx.operands import Refused

TEXTURES = "textures and surfaces are out of the machine's scope: read from a pointer with ld.global"
VIDEO = "scalar video instructions are out of the machine's scope: use integer arithmetic, as GPUs since Maxwell do"
STACK = "stack allocation at run time is out of the machine's scope: use an array of fixed size"
OLD_SYNC = "without .sync it needs a GPU older than sm_70: use its .sync form"
MULTIMEM = "memory of several GPUs at once needs sm_90 and is out of the machine's scope: use ld, st and red"
VOLTA = "products of 8 x 8 x 4 with f16 factors are Volta's: use m16n8k8 or m16n8k16"
WIDE_ATOMICS = "128-bit atomics need sm_90: use 64 bits"
INDIRECT_CALL = "an indirect call without a .callprototype: call the function by its name"
NARROW_ADDRESSES = "32-bit addresses: compile for a 64-bit address space (.address_size 64)"
SHAPES = (
    "PTX has no such matrix: use .m8n8 with .b16; ldmatrix .m16n16.trans with .b8, .b8x16.b6x16_p32 or "
    ".b8x16.b4x16_p64, .m8n16 with the latter two; stmatrix .m16n8.trans with .b8"
)

SPARSE_STATIONARY = (
    "products .ws with a sparse A are out of the machine's scope: use tcgen05.mma.sp without .ws, or the dense product"
)
TENSOR_SHIFT = "shifts of tensor memory are out of the machine's scope: load and store it by tcgen05.ld and st"
WIDENING_COPY = "copies to tensor memory that widen elements are out of the machine's scope: widen them before the copy"
COPY_OF_FOUR = "copies of four lanes are out of the machine's scope: use .32x128b.warpx4"
REDUCED_LOAD = "loads of tensor memory with a reduction are out of the machine's scope: use tcgen05.ld, then max or min"
ZERO_COLUMNS = "products with a mask of zero columns are out of the machine's scope: set those columns of B to zero"

# Refused forms of instructions that the machine knows in other forms.
FORMS: dict[str, str] = {
    "shfl, vote without .sync": OLD_SYNC,
    "atom with .b128": WIDE_ATOMICS,
    "tcgen05.mma.ws.sp": SPARSE_STATIONARY,
    "tcgen05.shift, tcgen05.mma with .ashift": TENSOR_SHIFT,
    "tcgen05.cp with .b8x16": WIDENING_COPY,
    "tcgen05.cp.4x256b": COPY_OF_FOUR,
    "tcgen05.ld.red": REDUCED_LOAD,
    "tcgen05.mma.ws with a mask of zero columns": ZERO_COLUMNS,
    "cvta with .u32": NARROW_ADDRESSES,
    "call through a register without .callprototype": INDIRECT_CALL,
}

# By the first words of the instruction; the longest match counts. Plans give reasons about operands and modifiers.
REASONS: dict[str, str] = {
    "st.bulk": "it fills shared memory through the async proxy, which needs sm_100: use st.shared",
    "multimem": MULTIMEM,
    "tex": TEXTURES, "tld4": TEXTURES, "txq": TEXTURES, "istypep": TEXTURES,
    "suld": TEXTURES, "sust": TEXTURES, "sured": TEXTURES, "suq": TEXTURES,
    "vadd": VIDEO, "vsub": VIDEO, "vabsdiff": VIDEO, "vmin": VIDEO, "vmax": VIDEO, "vshl": VIDEO, "vshr": VIDEO,
    "vmad": VIDEO, "vset": VIDEO, "vset2": VIDEO, "vset4": VIDEO,
    "alloca": STACK, "stacksave": STACK, "stackrestore": STACK,
    "mma.sync.aligned.m8n8k4": VOLTA,
    "fma.rn.oob": "fma with .oob needs sm_90: use fma.rn",
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
    raise Refused(reason(".".join(parts)) or "the machine does not know this instruction")
