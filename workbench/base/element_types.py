"""Element types of tensors: their sizes, their names in torch, PTX, CUDA C++, Triton and tensor maps, their poison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """One element type; "" stands for a name that a language does not have.

    ``name`` is torch's, and NumPy's where it has the type. ``letter`` is the type's in the formats of the module
    ``struct``, where a bfloat16 is its bits. ``tensor_map`` is the name in a tensor map. ``poison`` are bit patterns,
    one for each of two runs, that no computation gives: NaN with payloads of their own; of integers each pattern is a
    value, and there are none.
    """

    name: str
    bytes: int
    ptx: str = ""
    cpp: str = ""
    triton: str = ""
    letter: str = ""
    tensor_map: str = ""
    poison: tuple[int, int] | tuple[()] = ()

    @property
    def numpy(self) -> str:
        """Name of the NumPy dtype that holds such elements: for a type that NumPy lacks, an integer of as many bits."""
        return f"uint{8 * self.bytes}" if self.name.startswith(("bfloat", "float8")) else self.name


_FLOAT, _DOUBLE = (0x7FADBEEF, 0x7FA5BEEF), (0x7FFADBEEFDEADBEE, 0x7FFA5BEEFDEADBEE)

ELEMENT_TYPES = {
    one.name: one
    for one in (
        ElementType("bool", 1, "u8", "bool", "i1", "?", "u8", (0xFF, 0xFE)),
        ElementType("int8", 1, "s8", "signed char", "i8", "b", "u8"),
        ElementType("uint8", 1, "u8", "unsigned char", "u8", "B", "u8"),
        ElementType("int16", 2, "s16", "short", "i16", "h", "u16"),
        ElementType("uint16", 2, "u16", "unsigned short", "u16", "H", "u16"),
        ElementType("int32", 4, "s32", "int", "i32", "i", "s32"),
        ElementType("uint32", 4, "u32", "unsigned int", "u32", "I", "u32"),
        ElementType("int64", 8, "s64", "long long", "i64", "q", "s64"),
        ElementType("uint64", 8, "u64", "unsigned long long", "u64", "Q", "u64"),
        ElementType("float8_e4m3fn", 1, "b8", "__nv_fp8_e4m3", "fp8e4nv", "", "u8", (0x7F, 0xFF)),
        ElementType("float8_e5m2", 1, "b8", "__nv_fp8_e5m2", "fp8e5", "", "u8", (0x7F, 0xFF)),
        ElementType("float16", 2, "f16", "__half", "fp16", "e", "f16", (0x7EAD, 0x7EA5)),
        ElementType("bfloat16", 2, "bf16", "__nv_bfloat16", "bf16", "H", "bf16", (0x7FAD, 0x7FA5)),
        ElementType("float32", 4, "f32", "float", "fp32", "f", "f32", _FLOAT),
        ElementType("float64", 8, "f64", "double", "fp64", "d", "f64", _DOUBLE),
        ElementType("complex64", 8, "", "float2", poison=_FLOAT),
        ElementType("complex128", 16, "", "double2", poison=_DOUBLE),
    )
}
"""The element types by name. The poison of a complex type is that of its parts."""

PTX_BYTES = {one.ptx: one.bytes for one in ELEMENT_TYPES.values() if one.ptx} | {
    "b16": 2, "b32": 4, "tf32": 4, "b64": 8, "b128": 16, "pred": 0, "f16x2": 4, "bf16x2": 4,
    "e4m3x2": 2, "e5m2x2": 2, "e2m3x2": 2, "e3m2x2": 2, "e2m1x2": 1, "ue8m0x2": 2, "s2f6x2": 2, "e4m3x4": 4,
    "e5m2x4": 4, "e2m3x4": 4, "e3m2x4": 4, "e2m1x4": 2, "s16x2": 4, "u16x2": 4,
}  # fmt: skip
"""Bytes of each type of a register or variable in PTX."""

PTX_FLOAT_LETTERS = {one.ptx: one.letter for one in ELEMENT_TYPES.values() if one.ptx in ("f16", "f32", "f64")}
"""Letters of PTX's types for floats in the formats of the module ``struct``."""
