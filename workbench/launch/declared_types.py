"""Checks of a launch's arguments against the types that the kernel's source declares; wrong dtypes are refused."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.errors import ArgumentError, UncheckedTypeWarning
from workbench.ptx.signature import DeclaredType
from workbench.toolchain.c_types import ANYTHING, CType

_RAW = ("void", "|V", "[", "{")
"""Prefixes of NumPy's names of record types."""


def rules_of(types: Sequence[CType | None]) -> tuple[DeclaredType, ...]:
    """Return the rule of each parameter by its declared type; None is a type that the source's text does not give."""
    return tuple(_rule_of(one) for one in types)


@functools.cache
def _rule_of(expected: CType | None) -> DeclaredType:
    if expected is None:
        return DeclaredType(_warn_unchecked, plain=True, written=False)
    if expected.pointer:
        return DeclaredType(_array_check(expected), plain=True, written=not expected.constant)
    half = expected.lanes == 1 and expected.dtype in ("float16", "bfloat16")
    return DeclaredType(functools.partial(_half, expected) if half else _as_it_is, plain=not half, written=False)


def declared_value(where: str, expected: CType | None, value: Any) -> Any:
    """Return one argument for a parameter of a declared type; a number for a half becomes its bytes.

    ``where`` names the parameter in an ArgumentError.
    """
    return _rule_of(expected).check(where, value)


def _as_it_is(where: str, value: Any) -> Any:
    return value


def _warn_unchecked(where: str, value: Any) -> Any:
    """Warn, once for a parameter, that the dtype of an array is not checked; raw bytes go anywhere."""
    if isinstance(value, np.ndarray) or hasattr(value, "data_ptr"):
        got = dtype_name(value)
        if got != "uint8" and not got.startswith(_RAW):
            told = f"{where}: the dtype of this array, {got}, is not checked: the source's text does not tell the type"
            warnings.warn(f"{told}. Spell it out in the parameter list.", UncheckedTypeWarning, stacklevel=2)
    return value


def dtype_name(array: Any) -> str:
    """Return the name of the dtype of a torch tensor or NumPy array, such as ``"float32"``."""
    return str(array.dtype).removeprefix("torch.")


def _array_check(expected: CType) -> Any:
    """Return the check of arrays for a pointer to elements of a type; it examines a dtype that fits only once."""
    fitting: set[object] = set()

    def check(where: str, value: Any) -> Any:
        dtype = getattr(value, "dtype", None)
        if dtype in fitting or not (isinstance(value, np.ndarray) or hasattr(value, "data_ptr")):
            return value
        assert dtype is not None  # of an array
        got = dtype_name(value)
        if expected.dtype != ANYTHING and not _fits(expected, got, dtype.itemsize):
            raise ArgumentError(
                where,
                f"an array of {got}",
                f"{expected.dtype} (the kernel declares it so), or uint8 for raw bytes",
                f"Convert it to {expected.dtype}, or use .view() to pass the same bits.",
            )
        fitting.add(dtype)
        return value

    return check


def _fits(expected: CType, got: str, itemsize: int) -> bool:
    if got == expected.dtype or got == "uint8" or got.startswith(_RAW):
        return True
    if expected.dtype.startswith(("int", "uint", "bool")):
        same_bits = itemsize == expected.itemsize and got.startswith(("int", "uint", "bool", "float8"))
        return same_bits and (got != "bool" or expected.itemsize == 1)
    return got.startswith("complex") and expected.lanes % 2 == 0 and itemsize == 2 * expected.itemsize


def _half(expected: CType, where: str, value: Any) -> Any:
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
        raise ArgumentError(where, value, f"a value that {expected.dtype} can hold", "Pass a smaller number.")
    return content
