"""Resources and disassembly of a kernel's machine code, from NVIDIA's own tools."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import MissingToolError
from workbench.toolchain import tools
from workbench.toolchain.occupancy import limits_of


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel.

    Registers, spilled bytes (stores plus loads) and stack bytes are per thread, static shared bytes per block.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int


_PROPERTIES = re.compile(r"Function properties for (\S+)\s*\n(.*)\n.*?Used (\d+) registers(.*)")
_USAGE = re.compile(r"Function (\S+?):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def parse_ptxas_log(log: str) -> dict[str, KernelResources]:
    """Parse the resources of each kernel from the output of ``ptxas -v``, which NVRTC and nvcc pass on."""
    resources = {}
    for name, frame, registers, rest in _PROPERTIES.findall(log):
        numbers = [int(number) for number in re.findall(r"(\d+) bytes", frame)]
        shared = re.search(r"(\d+) bytes smem", rest)
        resources[name] = KernelResources(
            int(registers), sum(numbers[1:3]), numbers[0], int(shared[1]) if shared else 0
        )
    return resources


def resources_of(cubin: bytes, arch: str) -> dict[str, KernelResources]:
    """Read the resources of each kernel from a cubin whose compiler reported none, as Triton does.

    cuobjdump gives all but the spills. A kernel without a stack frame has none; for the others the bytes of local loads
    and stores in the machine code are summed. ptxas reports the same sum unless the source has arrays in local memory,
    which Triton does not have. Raises MissingToolError without cuobjdump and nvdisasm.
    """
    with as_file(cubin, ".cubin") as file:
        usage = tools.run_program([tools.find_program("cuobjdump"), "-res-usage", file])
        found = {}
        for name, registers, stack, shared, local in _USAGE.findall(usage):
            stack_bytes = int(stack) + int(local)
            spilled = _local_traffic(section(disassembly(file, "-g"), name)) if stack_bytes else 0
            # From sm_90 on cuobjdump includes the shared memory that the system reserves per block; ptxas does not.
            system = limits_of(arch).shared_reserved if int(re.sub(r"\D", "", arch)) >= 90 else 0
            found[name] = KernelResources(int(registers), spilled, stack_bytes, max(int(shared) - system, 0))
    return found


def disassembly(file: Path, *options: str) -> str:
    """Return nvdisasm's output for a cubin. Raises MissingToolError without nvdisasm."""
    # -ndf skips the analysis of branches, which takes a third of the time and does not change the output.
    return tools.run_program([tools.find_program("nvdisasm"), *options, "-ndf", "-c", file])


def _local_traffic(sass: str) -> int:
    """Sum the bytes that a thread's local loads (LDL) and stores (STL) access, each instruction counted once."""
    total = 0
    for modifiers in re.findall(r"\b(?:LDL|STL)((?:\.\w+)*)", sass):
        width = re.search(r"\.[US]?(8|16|64|128)\b", modifiers)
        total += int(width[1]) // 8 if width else 4
    return total


def no_machine_code(label: str) -> MissingToolError:
    """Return the error for a request for the machine code of a kernel that was compiled to PTX only."""
    return MissingToolError(f"{label} has no machine code: it was compiled to PTX only.")


def section(text: str, name: str) -> str:
    """Return the part of nvdisasm's text that belongs to one kernel."""
    start = text.find(f".text.{name}:")
    if start < 0:
        return text
    end = text.find("\n//----", start)
    return text[start : end if end >= 0 else len(text)].rstrip() + "\n"


@contextmanager
def as_file(content: bytes, suffix: str) -> Iterator[Path]:
    """Give the content as a temporary file, for the duration of a block."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        path = Path(folder) / f"kernel{suffix}"
        path.write_bytes(content)
        yield path
