"""Triton's compiled kernel without its last stage: PTX, which runs here, and machine code when it is asked for."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton.compiler import compiler as triton_compiler
from triton.runtime import driver

from workbench.errors import ArgumentError
from workbench.toolchain import disk_cache
from workbench.toolchain.triton_aot import assembly_of, kernel_of

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

ELF = b"\x7fELF"
_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ptx_options", "enable_fp_fusion")


_KEPT = ("ttir", "ttgir", "llir")
_BY_HASH: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
"""The kernels that Triton has loaded: who only has the PTX of one finds the stages before it here."""


class Kernel(triton_compiler.CompiledKernel):
    """Triton's compiled kernel with its last stage put off: the assembler runs when machine code or registers are read.

    ``compiled`` is the same kernel as the workbench's own value.
    """

    kernel: bytes

    def __init__(self, src: Any, metadata_group: Mapping[str, str], hash: str):
        super().__init__(src, metadata_group, hash)
        if self.metadata.target.backend != "cuda":
            return
        machine_code = self.kernel.startswith(ELF)
        if machine_code and "ptx" not in self.asm:
            return
        self.kernel = _at_home(self.asm["ptx"] if machine_code else self.kernel.decode(), src).encode()
        _BY_HASH[hash] = self
        if not machine_code:
            rest = {name: text for name, text in self.asm.items() if name not in ("cubin", "ptx")}
            self.asm = _Stages(rest | {"ptx": self.kernel.decode()})

    @property
    def asm(self) -> Any:
        """The text of every stage by its name, and the machine code."""
        stages = self.__dict__["asm"]
        if isinstance(stages, _Stages):
            stages.owner = self  # which a copy from another process has not
        return stages

    @asm.setter
    def asm(self, stages: Any) -> None:
        self.__dict__["asm"] = stages

    @functools.cached_property
    def compiled(self) -> CompiledKernel:
        """With its stages, and what assembles it when asked."""
        return compiled_of(self.src, self.metadata, self.kernel.decode())

    @property
    def n_regs(self) -> int:
        """Registers per thread."""
        return self.compiled.registers

    @n_regs.setter
    def n_regs(self, value: int) -> None:
        """Triton writes what loading returned, where nobody knows them yet."""

    @property
    def n_spills(self) -> int:
        """Spilled registers per thread, as the driver counts: of 4 bytes."""
        return self.compiled.spill_bytes // 4

    @n_spills.setter
    def n_spills(self, value: int) -> None:
        """As that of ``n_regs``."""

    def _init_handles(self) -> None:
        current = driver.active.get_current_target()
        target = self.metadata.target
        if (target.backend, target.arch) != (current.backend, current.arch):
            raise ArgumentError(
                f"kernel {self.name}",
                f"one compiled for {target.backend} {target.arch}",
                f"{current.backend} {current.arch}",
                "Compile it for the active target, or make the other one active: wb.simulated_triton(arch).",
            )
        super()._init_handles()


def _at_home(ptx: str, src: Any) -> str:
    """PTX whose lines are those of the function's own file: Triton's cache knows a function by its text alone, and may
    answer with what was compiled from a copy of the file."""
    if not hasattr(src, "fn"):
        return ptx
    own = src.fn.fn.__code__.co_filename
    files = _FILE.findall(ptx)
    if own in files or not files:
        return ptx
    copies = [file for file in files if Path(file).name == Path(own).name]
    main = (copies or files)[0]
    return ptx.replace(f'"{main}"', f'"{own}"')


class _Stages(triton_compiler.AsmDict):
    """The text of every stage; the machine code comes when it is asked for."""

    owner: Kernel

    def __getstate__(self) -> None:
        """Leave the kernel out of a copy for another process: torch.compile makes a new one there."""

    def __missing__(self, key: str) -> Any:
        if key == "sass":
            with _quiet_programs():
                return super().__missing__(key)
        if key != "cubin":
            return super().__missing__(key)
        self[key] = self.owner.compiled.cubin
        return self[key]


@contextlib.contextmanager
def _quiet_programs() -> Iterator[None]:
    """A block in which programs that are started write no warnings: cuobjdump's about formats help nobody."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Deferred:
    """The stage in the assembler's place: PTX as it is, which is what the machine runs."""

    def __init__(self, assemble: Callable[[str, Any], bytes]):
        self.assemble = assemble

    def __call__(self, ptx: str, metadata: Any) -> bytes:
        return ptx.encode()


class WithoutAssembler:
    """Triton's hook for its stages, behind ``outer``: without arguments it names itself for the cache's keys, with them
    it puts the assembler off."""

    def __init__(self, outer: Callable[..., Any] | None):
        self._outer: Callable[..., Any] | None = outer._outer if isinstance(outer, WithoutAssembler) else outer

    def __call__(self, *stage: Any) -> Any:
        from triton import knobs

        if not stage:
            key, digest = self._outer() if self._outer is not None else ("", "")
            return f"{key}workbench without assembler", f"{digest}0"
        if self._outer is not None:
            self._outer(*stage)
        stages = stage[1]
        if "cubin" in stages and not knobs.compilation.dump_ir:  # a dump has machine code in it
            stages["cubin"] = Deferred(stages["cubin"])
        return None


def compiled_of(src: Any, metadata: Any, ptx: str) -> CompiledKernel:
    """The workbench's own value of a kernel that Triton compiled, by Triton's source and metadata of it."""
    promises = {}
    for path, _ in _leaves(src.signature.values()):
        name = name_of(src, path)
        for what, value in getattr(src, "attrs", {}).get(path, ()):
            if what == "tt.divisibility":
                promises[name] = value
    label = src.fn.__name__ if hasattr(src, "fn") else metadata.name
    arch = f"sm_{metadata.target.arch}"
    fields = metadata._asdict()
    key = disk_cache.content_key(["triton jit", metadata.hash])
    kernel = kernel_of(ptx, fields, label, parameter_names(src, metadata), promises, arch, key, None)
    options = {name: fields[name] for name in _OPTIONS if fields.get(name) is not None}
    made = _BY_HASH.get(metadata.hash)
    stages = {name: str(made.asm[name]) for name in _KEPT if name in made.asm} if made else {}
    return replace(kernel, assembly=assembly_of(kernel, options), stages=stages)


def parameter_names(src: Any, metadata: Any) -> list[str]:
    """What the source calls the parameters of the PTX, in their order."""
    names, mapped = [], bool(getattr(metadata, "tensordesc_meta", None))
    for path, kind in _leaves(src.signature.values()):
        name = name_of(src, path)
        names += [name] if not is_descriptor(kind) else _descriptor_names(name, kind, mapped)
    return names


def _leaves(kinds: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    """(path, type) of the arguments that a launch passes, those in tuples one by one; constants are compiled in."""
    for index, kind in enumerate(kinds):
        if isinstance(kind, tuple):
            yield from _leaves(kind, (*path, index))
        elif kind != "constexpr":
            yield (*path, index), kind


def name_of(src: Any, path: tuple[int, ...]) -> str:
    """What the source calls the argument at ``path``: ``"x"``, or ``"x[1]"`` of one in a tuple."""
    head = src.fn.arg_names[path[0]] if hasattr(src, "fn") else f"argument_{path[0]}"
    return head + "".join(f"[{index}]" for index in path[1:])


def is_descriptor(kind: str) -> bool:
    """Whether a type in Triton's signature is that of a tensor descriptor."""
    return kind.startswith("tensordesc")


def _descriptor_names(name: str, kind: str, mapped: bool) -> list[str]:
    """``mapped``: TMA copies, and the first parameter is a tensor map."""
    axes = range(kind[kind.index("[") :].split("]")[0].count(",") + 1)
    sizes = [f"{name}.{what}[{axis}]" for what in ("shape", "strides") for axis in axes]
    return [name, *sizes] if mapped else [name, *sizes, f"{name}.padding", f"{name}.round_f32_to_tf32", *sizes]
