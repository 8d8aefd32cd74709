"""Output elements that a kernel left unwritten: they still hold the pattern with which they were filled before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

# A NaN with a payload that no computation produces, for each floating-point dtype; other dtypes hold random bytes.
_NAN = {
    "float16": 0x7EAD, "bfloat16": 0x7FAD, "float32": 0x7FADBEEF, "float64": 0x7FFADBEEFDEADBEE,
}  # fmt: skip
_TELLS_ALONE = 4  # from this many bytes an element on, a kernel does not write the random value by chance


class Outputs:
    """Never-written arguments of a launch, given by position and filled with a recognizable pattern before it."""

    def __init__(self, values: Sequence[Any], names: Sequence[str], positions: Sequence[int]):
        self._arrays: list[tuple[str, np.ndarray, np.ndarray, bool]] = []
        for at in positions:
            found = _elements(values[at]) if at < min(len(values), len(names)) else None
            if found is not None:
                dtype, elements = found
                filling = np.frombuffer(os.urandom(elements.nbytes), elements.dtype)
                elements[:] = _NAN.get(dtype, filling)
                certain = dtype in _NAN or elements.itemsize >= _TELLS_ALONE
                self._arrays.append((names[at], elements, elements.copy(), certain))

    def notes(self) -> tuple[str, ...]:
        """Return one note for each argument of which the launch left elements unwritten."""
        found = []
        for name, elements, before, certain in self._arrays:
            kept = elements == before
            count = int(kept.sum())
            if count and (certain or count == kept.size):  # a small number may be right by chance
                found.append(
                    f"{name}, which nobody had written, keeps {count:,} of its {kept.size:,} elements unwritten, the "
                    f"first of them element {int(kept.argmax()):,}"
                )
        return tuple(found)


def _elements(value: Any) -> tuple[str, np.ndarray] | None:
    """Return the dtype's name and an unsigned integer view of the elements, not a copy.

    Returns None for everything but a contiguous, non-empty tensor (of real numbers) or array (that can be written).
    """
    if hasattr(value, "untyped_storage"):
        import torch

        if not value.is_contiguous() or not value.numel() or value.is_complex():
            return None
        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        whole = value.detach().reshape(-1).view(kinds[value.element_size()]).numpy()
        return str(value.dtype).removeprefix("torch."), whole.view(f"u{whole.itemsize}")
    if isinstance(value, np.ndarray) and value.flags.c_contiguous and value.flags.writeable and value.size:
        size = value.itemsize if value.itemsize in (1, 2, 4, 8) else 1
        return str(value.dtype), value.reshape(-1).view(f"u{size}")
    return None
