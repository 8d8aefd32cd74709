"""Triton's compiled kernel without its last stage: PTX, which runs here, and machine code on demand."""

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

from workbench.driver.argument_names import give_names
from workbench.errors import ArgumentError
from workbench.ptx.parse import without_contraction
from workbench.toolchain import disk_cache
from workbench.toolchain.triton_aot import assembly_of, kernel_of
from workbench.toolchain.triton_descriptors import descriptor_names, is_descriptor

if TYPE_CHECKING:
    from workbench.toolchain import CompiledKernel

ELF = b"\x7fELF"
_FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.MULTILINE)
# Of the assembler's stage; the metadata's num_warps includes those of warp specialization, which Triton then refuses.
_OPTIONS = ("num_ctas", "num_stages", "maxnreg", "ptx_options", "enable_fp_fusion")


_KEPT = ("ttir", "ttgir", "llir")
_BY_HASH: weakref.WeakValueDictionary[str, TritonKernel] = weakref.WeakValueDictionary()
"""The kernels that Triton has loaded, by hash: code that has only a kernel's PTX finds its earlier stages here."""


class TritonKernel(triton_compiler.CompiledKernel):
    """Triton's compiled kernel with its last stage deferred: the assembler runs if machine code or registers are read.

    ``compiled`` is the same kernel as a CompiledKernel of the workbench.
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
        give_names(self.kernel.decode(), self.metadata.name, parameter_names(src, self.metadata))
        if not machine_code:
            rest = {name: text for name, text in self.asm.items() if name not in ("cubin", "ptx")}
            self.asm = _Stages(rest | {"ptx": self.kernel.decode()})

    @property
    def asm(self) -> Any:
        """Text of every stage by its name, and the machine code."""
        stages = self.__dict__["asm"]
        if isinstance(stages, _Stages):
            stages.owner = self  # a copy from another process lacks it
        return stages

    @asm.setter
    def asm(self, stages: Any) -> None:
        """Store the stages."""
        self.__dict__["asm"] = stages

    @functools.cached_property
    def compiled(self) -> CompiledKernel:
        """CompiledKernel of the workbench for this kernel, with its stages, assembled on first use."""
        return compiled_of(self.src, self.metadata, self.kernel.decode())

    @property
    def n_regs(self) -> int:
        """Registers per thread."""
        return self.compiled.registers

    @n_regs.setter
    def n_regs(self, value: int) -> None:
        """Ignore the value, which Triton writes after loading, when the number is not known yet."""

    @property
    def n_spills(self) -> int:
        """Spilled registers per thread, of 4 bytes each, as the driver counts them."""
        return self.compiled.spill_bytes // 4

    @n_spills.setter
    def n_spills(self, value: int) -> None:
        """Ignore the value, as ``n_regs`` does."""

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
    """Return PTX whose line information names the function's own file.

    Triton's cache identifies a function by its text alone, so it may answer with the result of compiling a copy of the
    file.
    """
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
    """The text of every stage; the machine code is made when it is read."""

    owner: TritonKernel

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
    """Discard what started programs write to stderr within the block, such as cuobjdump's warnings on formats."""
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
    """A stage in the assembler's place, which returns PTX unchanged: the machine runs PTX."""

    def __init__(self, assemble: Callable[[str, Any], bytes]):
        self.assemble = assemble

    def __call__(self, ptx: str, metadata: Any) -> bytes:
        """Return the PTX as bytes, with the assembler's option for ``enable_fp_fusion=False``."""
        return (ptx if metadata["enable_fp_fusion"] else without_contraction(ptx)).encode()


class WithoutAssembler:
    """Triton's hook for its stages, called after ``outer``, that defers the assembler.

    Called without arguments it returns its name for the cache's keys.
    """

    def __init__(self, outer: Callable[..., Any] | None):
        self._outer: Callable[..., Any] | None = outer._outer if isinstance(outer, WithoutAssembler) else outer

    def __call__(self, *stage: Any) -> Any:
        """Return the hook's key, or put `Deferred` in the place of the stage "cubin"."""
        from triton import knobs

        if not stage:
            key, digest = self._outer() if self._outer is not None else ("", "")
            return f"{key}workbench without assembler", f"{digest}0"
        if self._outer is not None:
            self._outer(*stage)
        stages = stage[1]
        if "cubin" in stages and not knobs.compilation.dump_ir:  # a dump includes machine code
            stages["cubin"] = Deferred(stages["cubin"])
        return None


def compiled_of(src: Any, metadata: Any, ptx: str) -> CompiledKernel:
    """Return a kernel that Triton compiled as a CompiledKernel, from Triton's source and metadata."""
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
    kernel = kernel_of(ptx, fields, label, parameter_names(src, metadata), promises, arch, key)
    options = {name: fields[name] for name in _OPTIONS if fields.get(name) is not None}
    made = _BY_HASH.get(metadata.hash)
    stages = {name: str(made.asm[name]) for name in _KEPT if name in made.asm} if made else {}
    return replace(kernel, assembly=assembly_of(kernel, options), stages=stages)


def parameter_names(src: Any, metadata: Any) -> list[str]:
    """Return the names that the source gives the parameters of the PTX, in their order."""
    names, mapped = [], bool(getattr(metadata, "tensordesc_meta", None))
    for path, kind in _leaves(src.signature.values()):
        name = name_of(src, path)
        names += [name] if not is_descriptor(kind) else descriptor_names(name, kind, mapped=mapped)
    return names


def _leaves(kinds: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield (path, type) of each argument that a launch passes, also of those in tuples; constants are compiled in."""
    for index, kind in enumerate(kinds):
        if isinstance(kind, tuple):
            yield from _leaves(kind, (*path, index))
        elif kind != "constexpr":
            yield (*path, index), kind


def name_of(src: Any, path: tuple[int, ...]) -> str:
    """Return the source's name of the argument at ``path``: ``"x"``, or ``"x[1]"`` for one in a tuple."""
    head = src.fn.arg_names[path[0]] if hasattr(src, "fn") else f"argument_{path[0]}"
    return head + "".join(f"[{index}]" for index in path[1:])
