"""The result of a compiler: a kernel with its PTX, and, on first use, its machine code and resources."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from workbench.errors import ArgumentError, UnknownKeyError, WorkbenchError
from workbench.ptx.parse import Parameter
from workbench.ptx.shapes import BlockRules
from workbench.ptx.signature import KernelSignature
from workbench.toolchain.assembly import Assembly
from workbench.toolchain.cubin import Cubin
from workbench.toolchain.disassembly import disassemble
from workbench.toolchain.occupancy import Occupancy, occupancy
from workbench.toolchain.remarks import AssemblerRemark, remarks_on
from workbench.toolchain.sass import KernelResources, no_machine_code

_STAGE = "stage "
_STATIC_SHARED_LIMIT = 48 * 1024  # the assembler's limit; the machine runs code that was not assembled


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """One compiled kernel. Two are equal if they have the same ``key``, the hash of all inputs of their compilation.

    ``name`` is the entry in the PTX, ``label`` the readable name (``"scale<float, 4>"``). ``shared_bytes`` is the
    static shared memory per block; for Triton, whose shared memory is all dynamic, it includes
    ``dynamic_shared_bytes``, which a launch adds by itself. ``front_log`` holds the warnings of the compiler without
    the assembler, ``scratch_bytes`` is the memory that a launch allocates for every program of Triton, ``stages`` are
    the texts of Triton's stages before the PTX: ``ttir``, ``ttgir``, ``llir``.

    The PTX machine needs no more to run a kernel. ``assembly`` makes the rest on first use: ``cubin``, ``registers``,
    ``spill_bytes``, ``stack_bytes``, ``occupancy``, ``remarks``, ``sass``. Each of them may raise
    CompileError, with the assembler's lines, for code that only the assembler refuses.
    """

    name: str
    label: str
    language: str
    arch: str
    ptx: str
    key: str
    shared_bytes: int
    threads_per_block: int | None
    dynamic_shared_bytes: int
    compiler: str
    compile_seconds: float
    from_cache: bool
    parameters: tuple[Parameter, ...]
    front_log: str = ""
    scratch_bytes: int = 0
    assembly: Assembly | None = None
    stages: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledKernel) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def static_shared_bytes(self) -> int:
        """Shared memory per block that the code itself declares, without the dynamic part that a launch adds."""
        return self.shared_bytes - (self.dynamic_shared_bytes if self.language == "triton" else 0)

    @cached_property
    def thread_bound(self) -> tuple[int, bool] | None:
        """Bound of the threads per block, and True if a block must have exactly that number; None without a bound."""
        found = re.search(rf"\.entry\s+{re.escape(self.name)}\b[^{{]*?\.(maxntid|reqntid)\s+([\d,\s]+)", self.ptx)
        return (math.prod(int(number) for number in found[2].split(",")), found[1] == "reqntid") if found else None

    @cached_property
    def signature(self) -> KernelSignature:
        """Signature of a launch: parameters that the PTX declares, and promises that the compiler relied on."""
        triton = self.language == "triton"
        threads, exact = self.thread_bound or (None, False)
        blocks = BlockRules(
            self.label,
            self.static_shared_bytes,
            _STATIC_SHARED_LIMIT,
            self.dynamic_shared_bytes,
            triton,
            threads,
            exact,
        )
        return KernelSignature(blocks, self.parameters, self.scratch_parameters, self.scratch_bytes, repeats=triton)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Source names of the parameters that a launch passes."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.scratch)

    @cached_property
    def scratch_parameters(self) -> int:
        """Number of parameters at the end that a launch fills by itself."""
        return sum(parameter.scratch for parameter in self.parameters)

    @property
    def cubin(self) -> bytes | None:
        """Machine code; None for a kernel that is only PTX."""
        return None if self.assembly is None else self.assembly.result().cubin

    @property
    def registers(self) -> int:
        """Registers per thread. Raises MissingToolError for a kernel that is only PTX."""
        return self._resources.registers

    @property
    def spill_bytes(self) -> int:
        """Spill stores and loads per thread, in bytes. Raises MissingToolError for a kernel that is only PTX."""
        return self._resources.spill_bytes

    @property
    def stack_bytes(self) -> int:
        """Stack per thread, in bytes. Raises MissingToolError for a kernel that is only PTX."""
        return self._resources.stack_bytes

    @cached_property
    def barriers(self) -> int:
        """Named barriers per block, 16 if one is named by a register. Raises MissingToolError without machine code."""
        if self.cubin is None:
            raise no_machine_code(self.label)
        return Cubin(self.cubin).barriers(self.name)

    @property
    def _resources(self) -> KernelResources:
        if self.assembly is None:
            raise no_machine_code(self.label)
        return self.assembly.result().resources.get(self.name, KernelResources(0, 0, 0, 0))

    @cached_property
    def remarks(self) -> tuple[AssemblerRemark, ...]:
        """Statements of ptxas about this kernel, such as "'setmaxnreg' ignored", each with its place in the source.

        Empty for a kernel that is only PTX.
        """
        made = None if self.assembly is None else self.assembly.result()
        return remarks_on(made.log, self.ptx, self.name, lambda: self.sass) if made else ()

    @property
    def log(self) -> str:
        """Warnings of the compiler, and of the assembler if the machine code is already made."""
        made = self.assembly.made if self.assembly is not None else None
        return "\n".join(text for text in (self.front_log, made.log if made else "") if text)

    @property
    def occupancy(self) -> Occupancy:
        """Occupancy on this kernel's own architecture with its own block size and shared memory.

        Raises ArgumentError if the block size is unknown: pass ``threads_per_block`` when compiling.
        """
        if self.threads_per_block is None:
            raise ArgumentError(
                "threads_per_block",
                "None",
                "the threads of a block",
                f"Compile {self.label} with threads_per_block=, or call workbench.toolchain.occupancy.occupancy.",
            )
        shared = self.static_shared_bytes + self.dynamic_shared_bytes
        return occupancy(self.arch, self.threads_per_block, self.registers, shared, self.barriers)

    @cached_property
    def sass(self) -> str:
        """Machine code as text, with source lines. Raises MissingToolError without a disassembler."""
        return disassemble(self)

    def __repr__(self) -> str:
        try:
            made = f"{self.registers} registers, {self.spill_bytes} bytes spilled"
        except WorkbenchError:
            made = "no machine code"
        return f"<{self.language} kernel {self.label} for {self.arch}: {made}, {self.shared_bytes} bytes shared>"

    def to_blobs(self) -> dict[str, bytes]:
        """Serialize the kernel as a cache entry; its machine code has an entry of its own."""
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del header["ptx"], header["assembly"], header["stages"]
        header["parameters"] = [dataclasses.asdict(parameter) for parameter in self.parameters]
        stages = {_STAGE + name: zlib.compress(text.encode()) for name, text in self.stages.items()}
        return {"header": json.dumps(header).encode(), "ptx": self.ptx.encode(), **stages}

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> CompiledKernel:
        """Restore the kernel from a cache entry, without an ``assembly``; its ``from_cache`` is True."""
        header = json.loads(blobs["header"])
        header["parameters"] = tuple(Parameter(**one) for one in header["parameters"])
        header["from_cache"] = True
        stages = {
            name.removeprefix(_STAGE): zlib.decompress(blob).decode()
            for name, blob in blobs.items()
            if name.startswith(_STAGE)
        }
        return cls(**header, ptx=blobs["ptx"].decode(), stages=stages)


class CompiledModule(Mapping[str, CompiledKernel]):
    """Kernels of one source by their readable names, in the order of the source."""

    def __init__(self, kernels: Mapping[str, CompiledKernel]):
        self.kernels = dict(kernels)

    def __getitem__(self, name: str) -> CompiledKernel:
        if name not in self.kernels:
            raise UnknownKeyError("kernel", repr(name), ", ".join(self.kernels) or "none", "The source defines these.")
        return self.kernels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def for_launch(self, threads_per_block: int | None, dynamic_shared_bytes: int) -> CompiledModule:
        """Return these kernels with the block size and dynamic shared memory (bytes per block) of a future launch."""
        return self._with(threads_per_block=threads_per_block, dynamic_shared_bytes=dynamic_shared_bytes)

    def with_assembly(self, assembly: Assembly) -> CompiledModule:
        """Return these kernels with one lazy assembly for all of them, because they are one program."""
        return self._with(assembly=assembly)

    def _with(self, **changes: Any) -> CompiledModule:
        return CompiledModule({name: dataclasses.replace(kernel, **changes) for name, kernel in self.kernels.items()})

    def to_blobs(self) -> dict[str, bytes]:
        """Serialize the module as a cache entry: the code once, and a header for each kernel."""
        blobs = {}
        for index, kernel in enumerate(self.kernels.values()):
            own = kernel.to_blobs()
            blobs[f"header {index}"] = own.pop("header")
            blobs |= own
        return blobs

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> CompiledModule:
        """Restore the module from a cache entry; ``from_cache`` of each kernel is True."""
        headers = [blob for name, blob in blobs.items() if name.startswith("header ")]
        kernels = [CompiledKernel.from_blobs({**blobs, "header": header}) for header in headers]
        return cls({kernel.label: kernel for kernel in kernels})

    def __repr__(self) -> str:
        return f"<module of {', '.join(self.kernels) or 'no kernel'}>"
