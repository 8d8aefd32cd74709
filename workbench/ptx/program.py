"""PTX modules ready to launch: kernels are decoded on first use, device variables keep their values."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from collections.abc import Callable, Iterator, Mapping

from workbench.errors import UnknownNameError
from workbench.ptx import parse
from workbench.ptx.assemble import Decoded
from workbench.ptx.launch import PtxKernel
from workbench.ptx.library_functions import with_functions
from workbench.ptx.module_memory import ModuleMemory
from workbench.ptx.parse import Parameter


class Program(ModuleMemory, Mapping[str, PtxKernel]):
    """A PTX module. ``program.kernels`` maps names to kernels; device variables live as long as the program.

    ``place(bytes)`` returns the address, a multiple of 512, at which the variables begin; without it they begin at the
    same address in every program.
    """

    def __init__(self, text: str, place: Callable[[int], int] | None = None):
        super().__init__(parse.parse(text), place)
        self._kernels: dict[tuple[str, bool, bool], PtxKernel] = {}

    @staticmethod
    def from_text(text: str) -> Program:
        """Return the program of a PTX text; the process keeps one for each text.

        A kernel is decoded on first use, the only kernel of a text at once. Raises UnsupportedInstructionError if that
        one cannot run; for another kernel its first use raises it.
        """
        return _program(text)

    @property
    def kernels(self) -> Mapping[str, PtxKernel]:
        """Kernels by name: the program itself."""
        return self

    def __getitem__(self, name: str) -> PtxKernel:
        return self.kernel(name)

    def kernel(self, name: str, fmad: bool = True, exact: bool = False) -> PtxKernel:
        """Return a kernel; without ``fmad`` the one that keeps the rounding of each product and sum.

        With ``exact`` it is the one for `LaunchOptions.exact`, in which functions of CUDA's library have been put back.
        """
        if name not in self.module.entries:
            names = ", ".join(self.module.entries) or "none"
            raise UnknownNameError("kernel", repr(name), names, "Use one of the names in program.kernels.")
        key = name, fmad and self.module.contracts, exact
        if key not in self._kernels:
            module = self._with_functions(name) if exact else self.module
            if exact and module is self.module:
                self._kernels[key] = self.kernel(name, fmad)
                return self._kernels[key]
            entry = module.entries[name]
            with _no_collection():
                decoded = Decoded(module, entry, self.global_address, key[1])
            self._kernels[key] = PtxKernel(self, module, entry, decoded, functools.partial(self.kernel, name))
        return self._kernels[key]

    def _with_functions(self, name: str) -> parse.ParsedModule:
        """Return the module with a kernel's functions of the library put back; the module itself if it has none."""
        body = self.module.body(self.module.entries[name])
        source = with_functions(self.module, [item for item in body if type(item) is parse.Statement])
        return self.module if source == self.module.source else parse.parse(source)

    def __iter__(self) -> Iterator[str]:
        return iter(self.module.entries)

    def __len__(self) -> int:
        return len(self.module.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.module.entries

    def __repr__(self) -> str:
        return f"Program({', '.join(self.module.entries)})"

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """Return the parameters of a kernel, in the order of a launch's arguments."""
        return self.module.entries[name].parameters


# Programs that somebody still holds: their variables keep their values even when the cache has dropped the program.
_IN_USE: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the garbage collector within the block.

    Decoding makes thousands of objects and no cycles, and the collector would walk them again and again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@functools.lru_cache(maxsize=64)
def _program(text: str) -> Program:
    program = _IN_USE.get(text)
    if program is not None:
        return program
    program = _IN_USE[text] = Program(text)
    if len(program.module.entries) == 1:
        program[next(iter(program.module.entries))]
    return program
