"""Tensor maps in the form that a GPU reads, encoded by the driver."""

from __future__ import annotations

import ctypes

from workbench.errors import ArgumentError
from workbench.ptx.tensor_map import DRIVER_ELEMENTS, DRIVER_SWIZZLES, TENSOR_MAP_BYTES, TensorMap


def encoded(tensor_map: TensorMap) -> bytes:
    """Return a tensor map as the driver's bytes. Raises ArgumentError if the driver refuses it."""
    rank, index = len(tensor_map.sizes), DRIVER_ELEMENTS.index(tensor_map.element)
    room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + 64)
    at = (ctypes.addressof(room) + 63) // 64 * 64  # the driver asks for this alignment
    sizes, strides = (ctypes.c_uint64 * rank)(*tensor_map.sizes), (ctypes.c_uint64 * 4)(*tensor_map.strides)
    box, steps = (ctypes.c_uint32 * rank)(*tensor_map.box), (ctypes.c_uint32 * rank)(*tensor_map.steps)
    result = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(at), index, rank, ctypes.c_void_p(tensor_map.address), sizes, strides, box, steps,
        0, DRIVER_SWIZZLES.index((tensor_map.swizzle, tensor_map.atom)), 0, int(tensor_map.fill == "nan"),
    )  # fmt: skip
    if result:
        remedy = "See cuTensorMapEncodeTiled; it needs compute capability 9.0."
        raise ArgumentError("tensor map", tensor_map, f"a map that the driver accepts (it returned {result})", remedy)
    return ctypes.string_at(at, TENSOR_MAP_BYTES)
