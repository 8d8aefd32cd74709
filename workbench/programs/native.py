"""A program of machine code in this process: its ``main`` called, its end seen, however it comes.

The program is loaded as a library, so that kernels are watched as those of a Python program are. It ends as a process
of its own does: by returning from ``main``, by ``exit``, by a signal. Each way leads to ``finish``, which reports, and
then out of the process.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from workbench.base.terminal import say
from workbench.driver.host_programs import load_libraries
from workbench.driver.simulated import current, runtime_path
from workbench.programs.compiling import advice_on_loading

Finish = Callable[[int], int]
"""Reports what was found; takes the program's exit status and returns the one to leave with."""

FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_EXIT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
_SIGINFO, _ONCE = 4, 0x80000000
_ADDRESS_OFFSET = 16  # of si_addr in siginfo_t
_DEVICE_ADDRESSES = range(0x0200 << 32, 0x5000 << 32)  # as driver/library/memory.cpp gives them out


class _SignalAction(ctypes.Structure):
    _fields_ = (
        ("handler", _HANDLER), ("mask", ctypes.c_byte * 128), ("flags", ctypes.c_uint), ("restorer", ctypes.c_void_p),
    )  # fmt: skip


class HostOutput(io.TextIOBase):
    """Write what Python prints to C's stdout: so a kernel's printf comes where the program's own output is."""

    def __init__(self, libc: ctypes.CDLL):
        self._libc, self._stream = libc, ctypes.c_void_p.in_dll(libc, "stdout")

    def write(self, text: str) -> int:
        """Write text after what the program has written."""
        data = text.encode(errors="replace")
        self._libc.fwrite(data, 1, len(data), self._stream)
        return len(text)

    def flush(self) -> None:
        """Flush the program's own output with it."""
        self._libc.fflush(self._stream)

    def fileno(self) -> int:
        """Return the number of standard output."""
        return 1


class End:
    """The one end of a program, from whichever thread and by whichever way it comes first."""

    def __init__(self, finish: Finish, libc: ctypes.CDLL):
        self._finish, self._libc, self._lock, self._process = finish, libc, threading.Lock(), os.getpid()

    def report(self, status: int) -> int:
        """Return the exit status to leave with, after what `finish` says; the second call adds nothing.

        A fork of the program leaves with its own status: the report is the program's.
        """
        if os.getpid() != self._process or not self._lock.acquire(blocking=False):
            return status
        try:
            status = self._finish(status)
            atexit._run_exitfuncs()
        except BaseException:
            traceback.print_exc()
            status = status or 1
        sys.stderr.flush()
        return status

    def leave(self, status: int, _: object = None) -> NoReturn:
        """End the process, after the program's own ``exit`` handlers."""
        status = self.report(status)
        self._libc.fflush(None)
        os._exit(status & 0xFF)

    def die(self, number: int, info: int | None) -> None:
        """Report, and let the signal end the process when this returns or at once."""
        name = signal.Signals(number).name
        say(f"workbench: the program was ended by {name}{_reason(number, info)}", err=True)
        self.report(128 + number)


def run_main(path: Path, arguments: Sequence[str], finish: Finish) -> NoReturn:
    """Load a program and call its ``main`` with ``arguments``, the first of which is its own name; never returns."""
    libc = ctypes.CDLL(None)
    load_libraries()
    end = End(finish, libc)
    sys.stdout.flush()
    sys.stdout = HostOutput(libc)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; a program that writes to a closed pipe ends
    kept = [_EXIT(end.leave), *catch_faults(libc, end)]
    _watch_keyboard(end)
    libc.on_exit(kept[0], None)
    try:
        program = ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW)  # a bare name would be looked for elsewhere
    except OSError as error:
        advice = advice_on_loading(str(error))
        say(f"workbench: the program cannot be loaded: {error}{'. ' if advice else ''}{advice}", err=True)
        end.leave(127)
    words = [ctypes.create_string_buffer(os.fsencode(word)) for word in arguments]  # which a program may write to
    values = (ctypes.c_void_p * (len(words) + 1))(*map(ctypes.addressof, words), None)
    status = program.main(len(words), values, ctypes.c_void_p.in_dll(libc, "environ"))
    libc.exit(status)
    raise AssertionError("exit came back")


def told(status: int, check: bool, said: str | None = None) -> int:
    """Say what a CUDA program was refused, which kernel failed, and why it may have failed itself; its status.

    ``said`` is what the driver said last in the program's own thread, where that is not this one.
    """
    refused = _refusals()
    for text in refused:
        say(f"workbench: not supported: {text}", err=True)
    driver = current()
    said = said or (driver.last_error if driver is not None else None)
    if driver is not None and driver.last_fault is not None and not check:  # which a program may not have noticed
        say(f"workbench: a kernel failed: {driver.last_fault.message}; --check tells what else is wrong", err=True)
    elif status and said and not refused:
        say(f"workbench: the simulated driver said: {said}", err=True)
    return status


def _refusals() -> list[str]:
    """Return what the runtime refused to the program so far, by the names of its functions."""
    library = ctypes.CDLL(str(runtime_path()))
    library.workbench_runtime_refusals.restype = ctypes.c_char_p
    return library.workbench_runtime_refusals().decode(errors="replace").splitlines()


def catch_faults(libc: ctypes.CDLL, end: End, numbers: Sequence[signal.Signals] = FAULTS) -> list[Any]:
    """Have what ends a program at once reported first; the signal then does what it does."""
    handler = _HANDLER(lambda number, info, _: end.die(number, info))
    action = _SignalAction(handler, flags=_SIGINFO | _ONCE)
    for number in numbers:
        libc.sigaction(int(number), ctypes.byref(action), None)
    return [handler, action]


def _watch_keyboard(end: End) -> None:
    """End the program on Ctrl-C and SIGTERM: Python only notes them while it waits for ``main``.

    Its handler writes to a pipe, though, on which a thread waits.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        number = os.read(reader, 1)[0]
        end.die(number, None)
        end_by(number)

    threading.Thread(target=wait, daemon=True).start()


def end_by(number: int) -> NoReturn:
    """End the process by a signal."""
    action = _SignalAction(_HANDLER(), flags=0)
    ctypes.CDLL(None).sigaction(number, ctypes.byref(action), None)
    os.kill(os.getpid(), number)
    signal.pause()
    raise AssertionError("the signal did not end the process")


def _reason(number: int, info: int | None) -> str:
    if number != signal.SIGSEGV or not info:
        return ""
    address = ctypes.c_uint64.from_address(info + _ADDRESS_OFFSET).value
    if address in _DEVICE_ADDRESSES:
        return f": host code touched {address:#x}, which is device memory; copy it with cudaMemcpy"
    return f": host code touched {address:#x}, where nothing is"
