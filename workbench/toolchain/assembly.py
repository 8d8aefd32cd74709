"""Lazy assembly of machine code.

Running and checking a kernel need only its PTX, and the assembler takes half of a compilation. The kernels of one
program share one ``Assembly``. It assembles when the cubin, registers, spills, occupancy or SASS are first read. The
object keeps the result, and so does an entry on disk beside the PTX's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.base.progress import waiting
from workbench.toolchain import disk_cache
from workbench.toolchain.sass import KernelResources


@dataclass(frozen=True)
class Assembled:
    """Machine code of one program.

    ``resources`` are those of each kernel by its name in the PTX; ``log`` holds what the assembler says about
    the code.
    """

    cubin: bytes
    resources: Mapping[str, KernelResources]
    log: str = ""

    def to_blobs(self) -> dict[str, bytes]:
        """Serialize the machine code as a cache entry."""
        resources = {name: dataclasses.astuple(used) for name, used in self.resources.items()}
        return {"header": json.dumps({"resources": resources, "log": self.log}).encode(), "cubin": self.cubin}

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> Assembled:
        """Restore the machine code from a cache entry."""
        header = json.loads(blobs["header"])
        resources = {name: KernelResources(*figures) for name, figures in header["resources"].items()}
        return cls(blobs["cubin"], resources, header["log"])


class Assembly:
    """Assembly of one program to machine code, on first use.

    ``key`` is that of the program's PTX in the disk cache; with None nothing is kept on disk. ``make`` assembles. If it
    can be pickled, so can this object, together with its result. Two threads may both assemble at once; their results
    are equal.
    """

    def __init__(self, key: str | None, make: Callable[[], Assembled]):
        self._key = None if key is None else disk_cache.content_key(["machine code and remarks", key])
        self._make = make
        self._made: Assembled | None = None

    @property
    def made(self) -> Assembled | None:
        """Machine code that this process already has, or None."""
        return self._made

    def find(self) -> Assembled | None:
        """Return the machine code if any process has made it and the cache has it, else None."""
        if self._made is None and self._key is not None:
            blobs = disk_cache.load(self._key)
            self._made = None if blobs is None else Assembled.from_blobs(blobs)
        return self._made

    def keep(self, made: Assembled) -> None:
        """Keep machine code, here and in the disk cache; a compiler may have made it together with the PTX."""
        self._made = made
        if self._key is not None:
            disk_cache.store(self._key, made.to_blobs())

    def result(self) -> Assembled:
        """Return the machine code, assembled now if necessary. Raises CompileError and MissingToolError of ``make``."""
        found = self.find()
        if found is None:
            with waiting("assembling machine code"):
                found = self._make()
            self.keep(found)
        return found
