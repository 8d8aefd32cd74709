"""Disassembly of kernels by nvdisasm, cached on disk."""

from __future__ import annotations

import re
from typing import Protocol

from workbench.toolchain import disk_cache
from workbench.toolchain.assembly import Assembly
from workbench.toolchain.sass import as_file, disassembly, no_machine_code, section

_ENCODING = re.compile(r"^ */\* 0x[0-9a-f]{16} \*/\n| +/\* 0x[0-9a-f]{16} \*/$", re.M)


class WithMachineCode(Protocol):
    """Protocol of a kernel with machine code, such as `CompiledKernel`."""

    @property
    def name(self) -> str:
        """Name of the entry in the PTX."""

    @property
    def label(self) -> str:
        """Readable name."""

    @property
    def key(self) -> str:
        """Key of the compilation."""

    @property
    def assembly(self) -> Assembly | None:
        """Assembly that makes the machine code; None if there is none."""


def disassemble(kernel: WithMachineCode) -> str:
    """Return the SASS of one kernel, with the source line above each group of instructions; cached on disk.

    Raises MissingToolError without nvdisasm, and for a kernel without machine code.
    """
    return _cached_disassembly(kernel, "sass", "-g")


def disassemble_with_schedule(kernel: WithMachineCode) -> str:
    """Return the SASS of one kernel by PTX line, with the encoding of each instruction, which holds its schedule.

    Raises MissingToolError without nvdisasm, and for a kernel without machine code.
    """
    return _cached_disassembly(kernel, "sass with schedule", "-gp", "-hex")


def disassemble_by_ptx_line(kernel: WithMachineCode) -> str:
    """Return the SASS of one kernel by PTX line, without encodings.

    Raises MissingToolError without nvdisasm, and for a kernel without machine code.
    """
    return _ENCODING.sub("", disassemble_with_schedule(kernel))


def _cached_disassembly(kernel: WithMachineCode, what: str, *options: str) -> str:
    if kernel.assembly is None:
        raise no_machine_code(kernel.label)
    key = disk_cache.content_key([what, kernel.key, kernel.name])
    cached = disk_cache.load(key)
    if cached is not None:
        return cached["sass"].decode()
    with as_file(kernel.assembly.result().cubin, ".cubin") as file:
        text = disassembly(file, *options)
    sass = section(text, kernel.name)
    disk_cache.store(key, {"sass": sass.encode()})
    return sass
