"""What the machine code of a kernel needs and looks like, from NVIDIA's own tools."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import MissingToolError
from workbench.toolchain import disk_cache, tools
from workbench.toolchain.assembly import Resources
from workbench.toolchain.occupancy import limits_of

if TYPE_CHECKING:
    from workbench.toolchain.kernel import CompiledKernel


_PROPERTIES = re.compile(r"Function properties for (\S+)\s*\n(.*)\n.*?Used (\d+) registers(.*)")
_ENCODING = re.compile(r"^ */\* 0x[0-9a-f]{16} \*/\n| +/\* 0x[0-9a-f]{16} \*/$", re.M)
_USAGE = re.compile(r"Function (\S+?):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def parse_ptxas_log(log: str) -> dict[str, Resources]:
    """The resources of each kernel in what ``ptxas -v`` prints, which is also what NVRTC and nvcc pass on."""
    resources = {}
    for name, frame, registers, rest in _PROPERTIES.findall(log):
        numbers = [int(number) for number in re.findall(r"(\d+) bytes", frame)]
        shared = re.search(r"(\d+) bytes smem", rest)
        resources[name] = Resources(int(registers), sum(numbers[1:3]), numbers[0], int(shared[1]) if shared else 0)
    return resources


def split_log(log: str) -> tuple[str, str]:
    """A compiler's log as the warnings of its front end and those of its assembler, without the resource lines."""
    front, assembler = list[str](), list[str]()
    for line in log.splitlines():
        if not re.match(r"ptxas (info|\s+\.)|\s+\d+ bytes stack frame", line):
            (assembler if line.startswith("ptxas") else front).append(line)
    return "\n".join(front).strip(), "\n".join(assembler).strip()


def resources_of(cubin: bytes, arch: str) -> dict[str, Resources]:
    """The resources of each kernel of a cubin whose compiler told none, which is the case for Triton.

    cuobjdump gives all but the spills. A kernel without a stack frame has none; for the others the loads and stores of
    local memory in the machine code are added up, which is what ptxas reports as long as the source has no arrays in
    local memory of its own; Triton has none. Raises MissingToolError without these tools.
    """
    with _as_file(cubin, ".cubin") as file:
        usage = tools.run_program([tools.find_program("cuobjdump"), "-res-usage", file])
        found = {}
        for name, registers, stack, shared, local in _USAGE.findall(usage):
            stack_bytes = int(stack) + int(local)
            spilled = _local_traffic(_section(_disassembly(file, "-g"), name)) if stack_bytes else 0
            # From sm_90 on cuobjdump counts what the system keeps of each block; ptxas does not, and neither do we.
            system = limits_of(arch).shared_reserved if int(re.sub(r"\D", "", arch)) >= 90 else 0
            found[name] = Resources(int(registers), spilled, stack_bytes, max(int(shared) - system, 0))
    return found


def _disassembly(file: Path, *options: str) -> str:
    # Without the analysis of branches, which takes a third of its time and changes nothing in what it prints.
    return tools.run_program([tools.find_program("nvdisasm"), *options, "-ndf", "-c", file])


def _local_traffic(sass: str) -> int:
    """The bytes that one thread's local loads (LDL) and stores (STL) name, each instruction counted once."""
    total = 0
    for modifiers in re.findall(r"\b(?:LDL|STL)((?:\.\w+)*)", sass):
        width = re.search(r"\.[US]?(8|16|64|128)\b", modifiers)
        total += int(width[1]) // 8 if width else 4
    return total


def disassemble(kernel: CompiledKernel) -> str:
    """The SASS of one kernel with the source line above each group of instructions; cached on disk.

    Raises MissingToolError where neither nvdisasm nor cuobjdump is there, or the kernel has no machine code.
    """
    return _cached_disassembly(kernel, "sass", "-g")


def disassemble_with_schedule(kernel: CompiledKernel) -> str:
    """The same by line of the kernel's PTX, with the encoding of each instruction, which holds its schedule."""
    return _cached_disassembly(kernel, "sass with schedule", "-gp", "-hex")


def disassemble_by_ptx_line(kernel: CompiledKernel) -> str:
    """Likewise by PTX line, without the encoding."""
    return _ENCODING.sub("", disassemble_with_schedule(kernel))


def _cached_disassembly(kernel: CompiledKernel, what: str, *options: str) -> str:
    if kernel.assembly is None:
        raise no_machine_code(kernel.label)
    key = disk_cache.content_key([what, kernel.key, kernel.name])
    cached = disk_cache.load(key)
    if cached is not None:
        return cached["sass"].decode()
    with _as_file(kernel.assembly.result().cubin, ".cubin") as file:
        text = _disassembly(file, *options)
    sass = _section(text, kernel.name)
    disk_cache.store(key, {"sass": sass.encode()})
    return sass


def no_machine_code(label: str) -> MissingToolError:
    """The error of who asks for the machine code of a kernel that is PTX and nothing else."""
    return MissingToolError(f"{label} has no machine code: it was compiled to PTX only.")


def _section(text: str, name: str) -> str:
    """The part of nvdisasm's text that belongs to one kernel."""
    start = text.find(f".text.{name}:")
    if start < 0:
        return text
    end = text.find("\n//----", start)
    return text[start : end if end >= 0 else len(text)].rstrip() + "\n"


@contextmanager
def _as_file(content: bytes, suffix: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        path = Path(folder) / f"kernel{suffix}"
        path.write_bytes(content)
        yield path
