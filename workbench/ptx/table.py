"""The instructions that the machine knows, as Markdown: ``python -m workbench.ptx.table``.

The rows come from the core's own table, so that the page cannot say what the code does not do.
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.ptx.families import memory, warp
from workbench.ptx.machine import OPCODES

_TYPES = {
    "pred", "b8", "s8", "u8", "b16", "s16", "u16", "f16", "bf16", "f16x2", "bf16x2", "s16x2", "u16x2", "b32", "s32",
    "u32", "f32", "tf32", "b64", "s64", "u64", "f64", "e4m3x2", "e5m2x2",
}  # fmt: skip
_INTERNAL = ("param.copy", "registers.", "nop")
_OUT_OF_SCOPE = ("wgmma, tcgen05 (warp-group and tensor-memory matrix products)", "TMA (cp.async.bulk) and mbarriers")
_REST = ("clusters", "wmma and sparse mma", "malloc and free on the device", "calls through pointers", "textures")


def rows() -> Iterator[tuple[str, str, str]]:
    """(class, instruction, forms): one row per instruction, its types and modifiers gathered."""
    gathered: dict[tuple[str, str], list[str]] = {}
    for opcode in OPCODES.values():
        if opcode.name.startswith(_INTERNAL):
            continue
        parts = opcode.name.split(".")
        # Types stand last; what comes before them is the instruction.
        cut = next((i for i, part in enumerate(parts) if i and part.split("/")[0] in _TYPES), len(parts))
        gathered.setdefault((opcode.group, ".".join(parts[:cut])), []).append(".".join(parts[cut:]))
    for (group, name), forms in sorted(gathered.items()):
        yield group, name, ", ".join(sorted({form for form in forms if form}))


def markdown() -> str:
    """The table, and what is out of scope."""
    out = [f"{len(OPCODES)} canonical instructions.", "", "| class | instruction | types |", "|---|---|---|"]
    out += [f"| {group} | `{name}` | {forms} |" for group, name, forms in rows()]
    spellings = sorted(set(memory.FAMILY) | set(warp.FAMILY))
    out += ["", "Spelled with their own operand rules: " + ", ".join(f"`{name}`" for name in spellings) + "."]
    out += ["", "Refused by name: " + "; ".join((*_OUT_OF_SCOPE, *_REST)) + "."]
    return "\n".join(out)


if __name__ == "__main__":
    print(markdown())
