"""NVRTC as a library, and the process that compiles with it: it loads the library, and forks for each program.

What NVRTC (13.0.88) makes of a source depends now and then on what the process compiled before: a load more or less, in
a few of a hundred later compiles. The first compile of a process is always the same, and a fork of a process that never
compiled makes every compile a first one. It also keeps a compiler that hangs or crashes away from the caller.

It imports the standard library only: `workbench.toolchain.nvrtc_client` has it loaded from its file in a process that
starts in a few hundredths of a second, and in which nothing of the caller's (its folder, its ``PYTHONPATH``) changes
what it does.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

SUCCESS = 0


class NvrtcError(Exception):
    """A function of NVRTC failed for a reason other than the program that it was given."""


class Library:
    """The functions of libnvrtc that we call, with their errors turned into exceptions."""

    def __init__(self, path: str):
        self.path = path
        # NVRTC opens its builtins by name only; loading them first makes that succeed from any folder.
        folder = os.path.dirname(path)
        for name in sorted(os.listdir(folder)):
            if name.startswith("libnvrtc-builtins.so"):
                ctypes.CDLL(os.path.join(folder, name))
        self.functions = ctypes.CDLL(path)
        self.functions.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of NVRTC; NvrtcError with its name where that does not return SUCCESS."""
        code = getattr(self.functions, name)(*arguments)
        if code != SUCCESS:
            raise NvrtcError(f"{name} failed: {self.error_text(code)}")

    def error_text(self, code: int) -> str:
        """Return what NVRTC calls a code that one of its functions returned."""
        return self.functions.nvrtcGetErrorString(code).decode()

    def read(self, what: str, program: ctypes.c_void_p) -> bytes:
        """The bytes behind one of the pairs ``nvrtcGet<what>Size`` and ``nvrtcGet<what>``."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def compile(self, text: str, name: str, names: list[str], flags: list[str]) -> dict:
        """Compile one program: ``code`` and ``log``, and where ``code`` is SUCCESS ``ptx``, ``cubin`` and ``entries``.

        ``names`` are name expressions; ``entries`` maps each to its name in the PTX.
        """
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            for expression in names:
                self.call("nvrtcAddNameExpression", program, expression.encode())
            encoded = (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
            code = self.functions.nvrtcCompileProgram(program, len(flags), encoded)
            log = self.read("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code != SUCCESS:
                return {"code": code, "log": log}
            entries = {}
            for expression in names:
                lowered = ctypes.c_char_p()
                self.call("nvrtcGetLoweredName", program, expression.encode(), ctypes.byref(lowered))
                entries[expression] = (lowered.value or b"").decode()
            ptx = self.read("PTX", program).rstrip(b"\0").decode()
            return {"code": code, "log": log, "ptx": ptx, "cubin": self.read("CUBIN", program), "entries": entries}
        finally:
            self.functions.nvrtcDestroyProgram(ctypes.byref(program))


def prepare(path: str) -> Callable[[str], Callable[[Mapping[str, Any], Callable[[bytes], None]], None]]:
    """Load the library at ``path``; return what a copy of this process does, as `ForkServer` wants it."""
    library = Library(path)

    def compile_one(request: Mapping[str, Any], answer: Callable[[bytes], None]) -> None:
        program = {**request}
        os.chdir(program.pop("folder"))
        try:
            made = library.compile(**program)
        except Exception as error:
            made = {"error": f"{type(error).__name__}: {error}"}
        answer(pickle.dumps(made))

    return lambda _: compile_one
