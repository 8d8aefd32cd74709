"""What a launch passes, against the types that the kernel's source declares: wrong dtypes are refused, not read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.errors import ArgumentError, UncheckedTypeWarning
from workbench.toolchain import CompiledKernel
from workbench.toolchain.c_types import ANYTHING, CType


def converted(kernel: CompiledKernel, declared: Sequence[CType | None], args: Sequence[Any], device: str) -> list[Any]:
    """``args`` with numbers for ``__half`` and ``__nv_bfloat16`` parameters as their bytes.

    Raises ArgumentError for an array of another dtype than the declared one (raw bytes, uint8, go anywhere), and, on
    ``"cuda"``, for a read-only NumPy array where the kernel may write.
    """
    if len(declared) != len(args):
        return list(args)  # the device counts them, and names what is missing
    values = []
    for index, (expected, value) in enumerate(zip(declared, args, strict=True)):
        where = f"{kernel.label}(): argument {index} {kernel.parameters[index].name!r}"
        values.append(declared_value(where, expected, value, device))
    return values


def check_layout(kernel: CompiledKernel, args: Sequence[Any], *, strided: bool) -> None:
    """Raise ArgumentError for a torch tensor whose elements are not those at its address, one after the other.

    ``strided``: the kernel knows the strides of its tensors.
    """
    for parameter, value in zip(kernel.parameters, args, strict=False):
        if not hasattr(value, "is_contiguous"):
            continue
        where = f"{kernel.label}(): argument {parameter.name!r}"
        if value.is_conj() or value.is_neg():
            kind = "conjugate" if value.is_conj() else "negative"
            remedy = "Pass .resolve_conj()." if value.is_conj() else "Pass .resolve_neg()."
            raise ArgumentError(where, f"a view that is the {kind} of its memory", "its elements in memory", remedy)
        if not strided and not value.is_contiguous():
            got = f"a tensor of shape {tuple(value.shape)} with strides {tuple(value.stride())}"
            remedy = "Pass .contiguous(); or load with strided=True a kernel that knows its tensors' strides."
            raise ArgumentError(where, got, "a contiguous tensor: a kernel gets its address alone", remedy)


def declared_value(where: str, expected: CType | None, value: Any, device: str = "sim") -> Any:
    """One argument, for a parameter of a declared type; ``where`` names it in an ArgumentError."""
    if expected is None:
        _warn_unchecked(where, value)
        return value
    if expected.pointer:
        _check_array(where, expected, value, device)
        return value
    return _half(where, expected, value)


def _warn_unchecked(where: str, value: Any) -> None:
    """Warn, once for a parameter, that an array's dtype may be another than the kernel's; raw bytes go anywhere."""
    if isinstance(value, np.ndarray) or hasattr(value, "data_ptr"):
        got = dtype_name(value)
        if got != "uint8" and not got.startswith(_RAW):
            told = f"{where}: the dtype of this array, {got}, is not checked: the source's text does not tell the type"
            warnings.warn(f"{told}. Spell it out in the parameter list.", UncheckedTypeWarning, stacklevel=2)


_RAW = ("void", "|V", "[", "{")
"""How NumPy's names of records begin."""


def dtype_name(array: Any) -> str:
    """``"float32"`` of a torch tensor or NumPy array."""
    return str(array.dtype).removeprefix("torch.")


def _check_array(where: str, expected: CType, value: Any, device: str) -> None:
    if not isinstance(value, np.ndarray) and not hasattr(value, "data_ptr"):
        return
    got = dtype_name(value)
    if expected.dtype != ANYTHING and not _fits(expected, got, value.dtype.itemsize):
        raise ArgumentError(
            where,
            f"an array of {got}",
            f"{expected.dtype} (the kernel declares it so), or uint8 for raw bytes",
            f"Convert it to {expected.dtype}, or use .view() to pass the same bits.",
        )
    if device == "cuda" and isinstance(value, np.ndarray) and not value.flags.writeable and not expected.constant:
        raise ArgumentError(
            where, "a read-only array", "a writable one", "Pass a copy, or declare the parameter const in the kernel."
        )


def _fits(expected: CType, got: str, itemsize: int) -> bool:
    if got == expected.dtype or got == "uint8" or got.startswith(_RAW):
        return True
    if expected.dtype.startswith(("int", "uint", "bool")):
        same_bits = itemsize == expected.itemsize and got.startswith(("int", "uint", "bool", "float8"))
        return same_bits and (got != "bool" or expected.itemsize == 1)
    return got.startswith("complex") and itemsize == 2 * expected.itemsize


def _half(where: str, expected: CType, value: Any) -> Any:
    if expected.lanes > 1 or expected.dtype not in ("float16", "bfloat16"):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return value
    if expected.dtype == "float16":
        with np.errstate(over="ignore"):
            packed = np.float16(value)
        overflowed = bool(np.isinf(packed)) and not np.isinf(float(value))
        content = packed.tobytes()
    else:
        # Round to nearest even, as __float2bfloat16 does.
        bits = int(np.float32(value).view(np.uint32))
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        if np.isnan(float(value)):
            rounded = 0x7FFF
        overflowed = rounded & 0x7F80 == 0x7F80 and bool(np.isfinite(float(value)))
        content = (rounded & 0xFFFF).to_bytes(2, "little")
    if overflowed:
        raise ArgumentError(where, value, f"what {expected.dtype} holds", "Pass a smaller number.")
    return content
