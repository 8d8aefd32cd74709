"""Kernels of ``torch.cuda._compile_kernel``: a warning for numbers that torch passes in another size than declared.

torch passes a Python float as a double and an integer as an int, whatever the kernel declares. A GPU, and the machine,
then read the first bytes of a larger number, or beyond a smaller one; nothing else reports that.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PASSED = {float: ("a Python float as a double", 8), int: ("an integer as an int", 4), bool: ("a bool as an int", 4)}


def warn_of_sizes(driver: Path) -> None:
    """Compare the numbers of each launch with the kernel's parameters, as the driver at this path knows them."""
    from torch.cuda import _utils

    kernel: Any = getattr(_utils, "_CudaKernel", None)
    if kernel is None:  # torch before 2.8
        return
    call, library = kernel.__call__, ctypes.CDLL(str(driver))

    @functools.wraps(call)
    def compared(
        self: Any, grid: Any = (1, 1, 1), block: Any = (1, 1, 1), args: Any = None, *rest: Any, **named: Any
    ) -> Any:
        for text in _differences(library, self.func, args or ()):
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return call(self, grid, block, args, *rest, **named)

    kernel.__call__ = compared


def _differences(library: ctypes.CDLL, function: Any, arguments: Sequence[Any]) -> list[str]:
    found, offset, size, name = [], ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_char_p()
    for index, value in enumerate(arguments):
        how, passed = _PASSED.get(type(value), ("", 0))
        if not passed or library.cuFuncGetParamInfo(function, index, ctypes.byref(offset), ctypes.byref(size)):
            continue
        if size.value != passed:
            library.cuFuncGetName(ctypes.byref(name), function)
            found.append(
                f"{(name.value or b'').decode()}: torch passes argument {index}, {value!r}, {how} of {passed} bytes. "
                f"The kernel's parameter has {size.value} bytes and gets another number, as on a GPU. Declare it as "
                f"{how.split()[-1]}."
            )
    return found
