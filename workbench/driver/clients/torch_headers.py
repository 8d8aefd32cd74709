"""Shorter torch headers for the CUDA files of an extension.

nvcc reads torch/extension.h three times (its host front end, its device front end, the host compiler), which takes most
of the time of building a small extension. Most of that header is modules, optimizers, data loaders, TorchScript and
pybind11, which a file of kernels rarely uses. So nvcc first gets torch/types.h in its place, which has tensors,
operators and dispatch. A file that uses other names, or that does not compile this way, gets torch's own header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).with_name("headers_of_torch")
_REPLACED = re.compile(r'#\s*include\s*[<"]torch/(extension|torch|all)\.h[>"]')
_BEYOND = re.compile(r"PYBIND11_|\bpybind11\b|\bpy::|\bTHP|\btorch::(?:nn|optim|data|jit|autograd|serialize)\b")


def shorter_headers(words: Sequence[str]) -> list[str]:
    """Return nvcc's options for shorter headers.

    The list is empty unless the command compiles exactly one CUDA file and that file can do with the shorter headers.
    """
    sources = [Path(word) for word in words if word.endswith(".cu") and not word.startswith("-")]
    if not {"-c", "--compile"} & set(words) or len(sources) != 1:
        return []
    try:
        text = sources[0].read_text(errors="replace")
    except OSError:
        return []  # nvcc reports the unreadable file
    return [f"-I{FOLDER}"] if _REPLACED.search(text) and not _BEYOND.search(text) else []
