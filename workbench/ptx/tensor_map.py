"""Tensor maps: the tensor, and the box of it, that a bulk tensor copy (TMA) moves.

The 128 bytes are opaque to programs: the driver writes them (``cuTensorMapEncodeTiled``), a compiler's host code (CuTe
DSL's) or, field by field, a kernel (``tensormap.replace``). They have the hardware's form:
``ptx/core/memory/tensor_map.hpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.base.element_types import ELEMENT_TYPES, PTX_BYTES
from workbench.errors import ArgumentError
from workbench.ptx.machine import core
from workbench.ptx.tensors import address_of

TENSOR_MAP_BYTES = 128
MOST_DIMENSIONS, MOST_BOX, MOST_STEP = 5, 256, 8
# The element types by their number in the PTX ISA (tensormap.replace.tile.elemtype).
ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
)  # fmt: skip
# Element types in the order of the driver's CUtensorMapDataType, which differs from f64 on.
DRIVER_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz",
)  # fmt: skip
PACKED_ELEMENTS = ("16U4_ALIGN8B", "16U4_ALIGN16B", "16U6_ALIGN16B")  # the driver's types behind them
_NUMBERS = {name: number for number, name in enumerate(ELEMENTS)}
SWIZZLES = (0, 32, 64, 128)  # bytes that a pattern spans, by the number of the mode in tensormap.replace
ATOMS = {16: 0, 32: 1, 64: 3}  # bytes that a swizzle keeps together: their number there; 2 is FLIP_8B
# (swizzle, atom) in the order of the driver's CUtensorMapSwizzle; None for 128B_ATOM_32B_FLIP_8B, which the machine
# does not know: the documents say that it flips every other line, and not which ones.
DRIVER_SWIZZLES = ((0, 16), (32, 16), (64, 16), (128, 16), (128, 32), None, (128, 64))
_OF_TORCH = {one.name: one.tensor_map for one in ELEMENT_TYPES.values() if one.tensor_map}
_FLOATS = ("f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
_FIELDS = {name: number for number, (name, _) in enumerate(core.TENSOR_MAP_FIELDS)}
_WHERE = "CUDA driver API, cuTensorMapEncodeTiled"


@dataclass(frozen=True)
class TensorMap:
    """Arguments of ``cuTensorMapEncodeTiled``; pass one for a ``const __grid_constant__ CUtensorMap`` parameter.

    `TensorMap.of` makes the map of a tensor. Sequences have the innermost dimension first.

    ``element`` is one of `ELEMENTS`, ``address`` that of the first element. ``sizes`` are in elements, ``strides`` in
    bytes and of all dimensions but the innermost. ``box`` is the part that one copy moves, ``steps`` the distance
    between copied elements (default: 1 each). ``swizzle`` is 0, 32, 64 or 128 bytes; ``fill`` replaces elements outside
    the tensor, ``"zero"`` or ``"nan"``. ``owner`` keeps the memory. ``atom`` is the number of bytes that a swizzle of
    128 bytes keeps together: 16, 32 (for transposed tf32 operands of tcgen05.mma) or 64.

    Raises ArgumentError for a map that breaks a rule of the CUDA driver API's cuTensorMapEncodeTiled.
    """

    element: str
    address: int
    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    steps: Sequence[int] = ()
    swizzle: int = 0
    fill: str = "zero"
    owner: Any = field(default=None, repr=False)
    atom: int = 16

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        object.__setattr__(self, "steps", tuple(self.steps) or (1,) * rank)
        self._check(rank)

    @classmethod
    def of(cls, tensor: Any, box: Sequence[int], *, swizzle: int = 0, fill: str = "zero", atom: int = 16) -> TensorMap:
        """Return the map of a tensor whose last dimension is contiguous; ``box`` is in the order of its shape.

        That of a tensor on meta can be described and not launched.
        """
        if not hasattr(tensor, "data_ptr"):  # such as the placeholders in the declaration of a user's op
            remedy = "An op of your own passes no tensor maps: launch its kernel with wb.load_cuda."
            raise ArgumentError("tensor", type(tensor).__name__, "a tensor in memory", remedy)
        address = 0 if getattr(tensor, "is_meta", False) else address_of("tensor", tensor)
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in _OF_TORCH:
            raise ArgumentError("tensor", f"a tensor of {name}", ", ".join(sorted(_OF_TORCH)), "Take a view of it.")
        if tensor.dim() != len(box):
            raise ArgumentError(
                "box", f"{len(box)} extents", f"{tensor.dim()}, as the tensor has", "Give one for each."
            )
        if tensor.dim() and tensor.stride(-1) != 1:
            raise ArgumentError("tensor", f"a last stride of {tensor.stride(-1)}", "1", "Pass .contiguous().")
        size = tensor.element_size()
        strides = tuple(stride * size for stride in reversed(tensor.stride()[:-1]))
        sizes, box = tuple(reversed(tensor.shape)), tuple(reversed([int(extent) for extent in box]))
        return cls(_OF_TORCH[name], address, sizes, strides, box, (), swizzle, fill, tensor, atom)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return PTX_BYTES[self.element.removesuffix(".ftz")]

    def __bytes__(self) -> bytes:
        """Return the 128 bytes in the form that GPUs and the PTX machine read."""
        values = {
            "global_address": [self.address],
            "rank": [len(self.sizes) - 1],
            "elemtype": [_NUMBERS[self.element]],
            "swizzle_mode": [SWIZZLES.index(self.swizzle)],
            "swizzle_atomicity": [ATOMS[self.atom]],
            "fill_mode": [int(self.fill == "nan")],
            "global_stride": self.strides,
            "global_dim": self.sizes,
            "element_stride": self.steps,
            "box_dim": self.box,
        }
        return core.encode_tensor_map(
            [(_FIELDS[name], ordinal, value) for name, row in values.items() for ordinal, value in enumerate(row)]
        )

    def _check(self, rank: int) -> None:
        def refuse(name: str, got: object, allowed: str, remedy: str) -> None:
            raise ArgumentError(f"tensor map: {name}", got, allowed, f"{remedy} ({_WHERE}).")

        if self.element not in _NUMBERS:
            refuse("element", repr(self.element), ", ".join(_NUMBERS), "Use one of these")
        if not 1 <= rank <= MOST_DIMENSIONS:
            refuse("sizes", f"{rank} dimensions", "1 to 5", "Fold or add some")
        for name, values, count in (
            ("strides", self.strides, rank - 1), ("box", self.box, rank), ("steps", self.steps, rank),
        ):  # fmt: skip
            if len(values) != count:
                refuse(name, f"{len(values)} numbers", f"{count} for {rank} dimensions", "Give one for each")
        if self.swizzle not in SWIZZLES:
            refuse("swizzle", self.swizzle, "0, 32, 64, 128 bytes", "Use one of these")
        if self.atom not in ATOMS or (self.atom != 16 and self.swizzle != 128):
            refuse("atom", self.atom, "16; with a swizzle of 128 bytes also 32 and 64", "Use one of these")
        if self.fill not in ("zero", "nan") or (self.fill == "nan" and self.element not in _FLOATS):
            refuse("fill", repr(self.fill), "'zero', and 'nan' for floating point", "Use one of these")
        if self.address % 16:
            refuse("address", hex(self.address), "a multiple of 16", "Align the tensor")
        if any(not 1 <= size <= 1 << 32 for size in self.sizes):
            refuse("sizes", tuple(self.sizes), "1 to 2**32 each", "Leave empty dimensions out")
        if any(stride % 16 or not 0 <= stride < 1 << 40 for stride in self.strides):
            refuse("strides", tuple(self.strides), "multiples of 16 bytes below 2**40", "Pad the rows")
        if any(not 1 <= extent <= MOST_BOX for extent in self.box):
            refuse("box", tuple(self.box), f"1 to {MOST_BOX} each", "Use a smaller box and more copies")
        if any(not 1 <= step <= MOST_STEP for step in self.steps):
            refuse("steps", tuple(self.steps), f"1 to {MOST_STEP} each", "Copy a view of the tensor")
        row = -(-self.box[0] // self.steps[0]) * self.element_bytes
        if row % 16:
            refuse("box", f"rows of {row} bytes", "a multiple of 16", "Widen the innermost extent")
        if self.swizzle and row > self.swizzle:
            refuse("box", f"rows of {row} bytes", f"at most {self.swizzle}, what the swizzle spans", "Narrow it")
