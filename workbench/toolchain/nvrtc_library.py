"""NVRTC as a library, and the process that compiles with it: it loads the library, and forks for each program.

The output of NVRTC (13.0.88) for a source sometimes depends on earlier compilations of the process: a few in a hundred
later ones have a load more or less. The first compilation of a process is always the same, and in a fork of a process
that never compiled every compilation is a first one. The fork also protects the caller from a compiler that hangs or
crashes.

This module imports the standard library only. `workbench.toolchain.nvrtc_client` loads it from its file in a process
that starts in a few hundredths of a second, and that the caller's folder and ``PYTHONPATH`` do not affect.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

SUCCESS = 0


class NvrtcError(Exception):
    """A function of NVRTC failed for a reason other than the program to compile."""


class Library:
    """Functions of libnvrtc, with their errors turned into exceptions."""

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
        """Call a function of NVRTC. Raises NvrtcError, with the function's name, unless it returns SUCCESS."""
        code = getattr(self.functions, name)(*arguments)
        if code != SUCCESS:
            raise NvrtcError(f"{name} failed: {self.error_text(code)}")

    def error_text(self, code: int) -> str:
        """Return NVRTC's text for a result code."""
        return self.functions.nvrtcGetErrorString(code).decode()

    def read(self, what: str, program: ctypes.c_void_p) -> bytes:
        """Read the output ``what`` of a program with ``nvrtcGet<what>Size`` and ``nvrtcGet<what>``."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def compile(self, text: str, name: str, names: list[str], flags: list[str]) -> dict:
        """Compile one program; return ``code`` and ``log``, and on SUCCESS ``ptx``, ``cubin`` and ``entries``.

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
    """Load the library at ``path``; return the function that a copy of this process calls, as `ForkServer` expects."""
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
