"""Names of the arguments of a client's kernels, as their source has them: the driver only sees PTX and bytes."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.driver.records import recording
from workbench.ptx.decode import readable
from workbench.toolchain.source import declared_kernels

if TYPE_CHECKING:
    from workbench.ptx import PtxKernel

SCRATCH = "Triton's scratch memory"
_given: dict[tuple[str, int], tuple[str, ...]] = {}
_known: weakref.WeakKeyDictionary[PtxKernel, tuple[str, ...]] = weakref.WeakKeyDictionary()


def give_names(ptx: str, kernel: str, names: Sequence[str]) -> None:
    """Keep the names of the arguments of a kernel that Triton compiled, until a module with this PTX is launched."""
    _given[kernel, hash(ptx)] = tuple(names)
    if recording.is_recorded():
        recording.log_names(kernel, names)


def names_of(kernel: PtxKernel) -> tuple[str, ...]:
    """Return a name for each parameter: the source's, else its number in the PTX."""
    names = _known.get(kernel)
    if names is None:
        names = _known[kernel] = _names_of(kernel)
    return names


def _names_of(kernel: PtxKernel) -> tuple[str, ...]:
    count = len(kernel.parameters)
    given = _given.get((kernel.name, hash(kernel.module.source)))
    if given is not None and len(given) <= count:
        return (*given, *[SCRATCH] * (count - len(given)))
    own = re.split(r"[<(]", readable(kernel.name))[0].rsplit("::", 1)[-1].split()[-1]
    for file in dict.fromkeys(kernel.source_of(pc)[0] for pc in range(len(kernel.decoded.code))):
        declared = _declared(file).get(own, ()) if file else ()
        if len(declared) == count:
            return declared
    return tuple(f"PTX parameter {number}" for number in range(count))


@functools.lru_cache(maxsize=64)
def _declared(file: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the parameters of each kernel that a CUDA source declares; none for any other file."""
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return {}
    return {name: found.parameters for name, found in declared_kernels(text).items()} if "__global__" in text else {}
