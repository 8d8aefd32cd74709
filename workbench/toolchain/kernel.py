"""What a compiler returns: one kernel, its PTX, and when asked for its machine code and the resources that it takes."""

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
from workbench.toolchain.assembly import Assembly, Resources
from workbench.toolchain.occupancy import Occupancy, occupancy
from workbench.toolchain.sass import disassemble, no_machine_code

_SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
_SIZES |= {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}

_STAGE = "stage "
_ENTRY = re.compile(r"^[^/\n]*\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?", re.MULTILINE)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([^,]*?)([\w$]+)(?:\[(\d+)\])?\s*$")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel as its PTX declares it.

    ``name`` is the name in the source where it is known, else the PTX's. ``type`` is the PTX type (``"u64"`` for
    pointers and 64-bit integers, ``"b8"`` for a struct by value); ``size`` and ``align`` are in bytes.
    ``divisibility`` is what the code relies on: an argument (a pointer's address) that is not a multiple of it makes
    the kernel fail. ``scratch`` marks a pointer that the compiler appended, to the kernel's scratch memory or null.
    ``pointer`` says that source or PTX declare a pointer; of a kernel whose source is not known it may be one without.
    """

    name: str
    type: str
    size: int
    align: int
    divisibility: int = 1
    scratch: bool = False
    pointer: bool = False

    @property
    def kind(self) -> str:
        """What it is in the source: ``pointer``, ``struct of 24 bytes``, or the PTX type of a number."""
        if self.pointer:
            return "pointer"
        return f"struct of {self.size} bytes" if self.type == "b8" else self.type


def target_of(ptx: str) -> str | None:
    """The architecture that a PTX text is for, such as "sm_90a"; None where it does not say."""
    target = re.search(r"^\s*\.target\s+(sm_\d+[af]?)", ptx, re.MULTILINE)
    return target and target[1]


def entry_parameters(ptx: str) -> dict[str, tuple[Parameter, ...]]:
    """Every ``.entry`` of a PTX text with its parameters, in the order of the text."""
    return {
        match[1]: tuple(_parse_parameter(text) for text in (match[2] or "").split(",") if ".param" in text)
        for match in _ENTRY.finditer(ptx)
    }


def _parse_parameter(text: str) -> Parameter:
    match = _PARAMETER.search(text.strip())
    if match is None or match[2] not in _SIZES:
        allowed = ".param, a type and a name, as in .param .u64 x"
        raise ArgumentError("ptx", f"the parameter {text.strip()[:80]!r}", allowed, "Pass what a compiler wrote.")
    align, kind, attributes, name, count = match.groups()
    size = _SIZES[kind]
    return Parameter(name, kind, size * int(count or 1), int(align or size), pointer=".ptr" in attributes)


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """One compiled kernel. Two are equal if they have the same ``key``, the hash of all that went into them.

    ``name`` is the entry in the PTX, ``label`` the name for people (``"scale<float, 4>"``). ``shared_bytes`` is the
    static shared memory per block; for Triton, whose shared memory is all dynamic, it includes
    ``dynamic_shared_bytes``, what a launch adds by itself. ``front_log`` holds the warnings of the compiler proper,
    ``scratch_bytes`` is the memory that a launch brings along for every program of Triton, ``stages`` the texts that it
    made on the way to the PTX: ``ttir``, ``ttgir``, ``llir``.

    Running a kernel in the PTX machine needs no more than that. ``assembly`` makes the rest when it is first asked for:
    ``cubin``, ``registers``, ``spill_bytes``, ``stack_bytes``, ``occupancy``, ``sass``. Each of them may raise
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
        """Shared memory that the code itself declares, without what a launch adds."""
        return self.shared_bytes - (self.dynamic_shared_bytes if self.language == "triton" else 0)

    @cached_property
    def thread_bound(self) -> tuple[int, bool] | None:
        """Threads per block that the code was compiled for, and whether exactly so many; None without a bound."""
        found = re.search(rf"\.entry\s+{re.escape(self.name)}\b[^{{]*?\.(maxntid|reqntid)\s+([\d,\s]+)", self.ptx)
        return (math.prod(int(number) for number in found[2].split(",")), found[1] == "reqntid") if found else None

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Of the parameters that a launch passes, as the source names them."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.scratch)

    @cached_property
    def scratch_parameters(self) -> int:
        """How many parameters at the end a launch fills by itself."""
        return sum(parameter.scratch for parameter in self.parameters)

    @property
    def cubin(self) -> bytes | None:
        """The machine code; None where the kernel is PTX and nothing else."""
        return None if self.assembly is None else self.assembly.result().cubin

    @property
    def registers(self) -> int:
        """Registers per thread. Raises MissingToolError where the kernel is PTX and nothing else, as all below."""
        return self._resources.registers

    @property
    def spill_bytes(self) -> int:
        """Spill stores and loads per thread, in bytes."""
        return self._resources.spill_bytes

    @property
    def stack_bytes(self) -> int:
        """Stack per thread, in bytes."""
        return self._resources.stack_bytes

    @property
    def _resources(self) -> Resources:
        if self.assembly is None:
            raise no_machine_code(self.label)
        return self.assembly.result().resources.get(self.name, Resources(0, 0, 0, 0))

    @property
    def log(self) -> str:
        """The compiler's warnings; the assembler's too where there is machine code by now."""
        made = self.assembly.made if self.assembly is not None else None
        return "\n".join(text for text in (self.front_log, made.log if made else "") if text)

    @property
    def occupancy(self) -> Occupancy:
        """Occupancy on this kernel's own architecture with its own block size and shared memory.

        Raises ArgumentError where the block size is unknown: pass ``threads_per_block`` when compiling.
        """
        if self.threads_per_block is None:
            raise ArgumentError(
                "threads_per_block",
                "None",
                "the threads of a block",
                f"Compile {self.label} with threads_per_block=, or call workbench.toolchain.occupancy.occupancy.",
            )
        shared = self.static_shared_bytes + self.dynamic_shared_bytes
        return occupancy(self.arch, self.threads_per_block, self.registers, shared)

    @cached_property
    def sass(self) -> str:
        """The machine code as text, with source lines. Raises MissingToolError without a disassembler."""
        return disassemble(self)

    def __repr__(self) -> str:
        try:
            made = f"{self.registers} registers, {self.spill_bytes} bytes spilled"
        except WorkbenchError:
            made = "no machine code"
        return f"<{self.language} kernel {self.label} for {self.arch}: {made}, {self.shared_bytes} bytes shared>"

    def to_blobs(self) -> dict[str, bytes]:
        """The kernel as a cache entry; its machine code has one of its own."""
        header = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del header["ptx"], header["assembly"], header["stages"]
        header["parameters"] = [dataclasses.asdict(parameter) for parameter in self.parameters]
        stages = {_STAGE + name: zlib.compress(text.encode()) for name, text in self.stages.items()}
        return {"header": json.dumps(header).encode(), "ptx": self.ptx.encode(), **stages}

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> CompiledKernel:
        """The kernel of a cache entry, without an ``assembly``; its ``from_cache`` is True."""
        header = json.loads(blobs["header"])
        header["parameters"] = tuple(Parameter(**parameter) for parameter in header["parameters"])
        header["from_cache"] = True
        stages = {
            name.removeprefix(_STAGE): zlib.decompress(blob).decode()
            for name, blob in blobs.items()
            if name.startswith(_STAGE)
        }
        return cls(**header, ptx=blobs["ptx"].decode(), stages=stages)


class CompiledModule(Mapping[str, CompiledKernel]):
    """The kernels of one source, by the names for people, in the order of the source."""

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
        """The same kernels with the block size and dynamic shared memory (bytes per block) of the launch meant."""
        return self._with(threads_per_block=threads_per_block, dynamic_shared_bytes=dynamic_shared_bytes)

    def with_assembly(self, assembly: Assembly) -> CompiledModule:
        """The same kernels with what makes their machine code: one for all, since they are one program."""
        return self._with(assembly=assembly)

    def _with(self, **changes: Any) -> CompiledModule:
        return CompiledModule({name: dataclasses.replace(kernel, **changes) for name, kernel in self.kernels.items()})

    def to_blobs(self) -> dict[str, bytes]:
        """The module as a cache entry: the code once, a header for each kernel."""
        blobs = {}
        for index, kernel in enumerate(self.kernels.values()):
            own = kernel.to_blobs()
            blobs[f"header {index}"] = own.pop("header")
            blobs |= own
        return blobs

    @classmethod
    def from_blobs(cls, blobs: Mapping[str, bytes]) -> CompiledModule:
        """The module of a cache entry; ``from_cache`` of each kernel is True."""
        headers = [blob for name, blob in blobs.items() if name.startswith("header ")]
        kernels = [CompiledKernel.from_blobs({**blobs, "header": header}) for header in headers]
        return cls({kernel.label: kernel for kernel in kernels})

    def __repr__(self) -> str:
        return f"<module of {', '.join(self.kernels) or 'no kernel'}>"
