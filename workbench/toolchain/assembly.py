"""Machine code made late: running and checking need a kernel's PTX only, and its assembler takes half of a compilation.

The kernels of one program share one ``Assembly``. It is asked when somebody wants the cubin, registers, spills,
occupancy or SASS; what it made is kept in the object, and on disk in an entry beside the PTX's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.toolchain import disk_cache


@dataclass(frozen=True)
class Resources:
    """What one kernel takes: registers, spill stores plus loads and stack per thread, static shared bytes per block."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Assembled:
    """What the assembler made of one program: the ``resources`` of each kernel by its name in the PTX, and its own
    warnings in ``log``."""

    cubin: bytes
    resources: Mapping[str, Resources]
    log: str = ""

    def to_blobs(self) -> dict[str, bytes]:
        """The machine code as a cache entry."""
        resources = {name: dataclasses.astuple(used) for name, used in self.resources.items()}
        return {"header": json.dumps({"resources": resources, "log": self.log}).encode(), "cubin": self.cubin}

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> Assembled:
        """The machine code of a cache entry."""
        header = json.loads(blobs["header"])
        resources = {name: Resources(*figures) for name, figures in header["resources"].items()}
        return cls(blobs["cubin"], resources, header["log"])


class Assembly:
    """The way from one program to its machine code, taken when first asked for.

    ``key`` is that of the program's PTX in the disk cache; with None nothing is kept on disk. ``make`` assembles; where
    it can be pickled, so can this, with what was made. Two threads that ask at once may both assemble: they make the
    same.
    """

    def __init__(self, key: str | None, make: Callable[[], Assembled]):
        self._key = None if key is None else disk_cache.content_key(["machine code", key])
        self._make = make
        self._made: Assembled | None = None

    @property
    def made(self) -> Assembled | None:
        """The machine code if this process has it."""
        return self._made

    def find(self) -> Assembled | None:
        """The machine code if it was made before, by whatever process."""
        if self._made is None and self._key is not None:
            blobs = disk_cache.load(self._key)
            self._made = None if blobs is None else Assembled.from_blobs(blobs)
        return self._made

    def keep(self, made: Assembled) -> None:
        """Take what was made together with the PTX."""
        self._made = made
        if self._key is not None:
            disk_cache.store(self._key, made.to_blobs())

    def result(self) -> Assembled:
        """The machine code, made now if it never was. Raises what ``make`` raises: CompileError, MissingToolError."""
        found = self.find()
        if found is None:
            found = self._make()
            self.keep(found)
        return found
