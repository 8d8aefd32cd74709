"""Programs in machine code that run in this process: their ``main`` is called, and every way of ending is caught.

The program is loaded as a library, so its kernels are watched like those of a Python program. It ends like a process
of its own: by returning from ``main``, by ``exit``, or by a signal. Each way calls ``finish``, which reports, and then
ends this process.
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
from workbench.driver.clients.host_programs import load_libraries
from workbench.driver.library_files import runtime_path
from workbench.driver.simulated import current
from workbench.programs.compiling import advice_on_loading

Finish = Callable[[int], int]
"""Function that prints the report; it takes the program's exit status and returns that of this process."""

FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_EXIT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
_SIGINFO, _ONCE = 4, 0x80000000
_ADDRESS_OFFSET = 16  # of si_addr in siginfo_t
_DEVICE_ADDRESSES = range(0x0200 << 32, 0x2A00 << 32)  # the range that driver/library/memory.cpp allocates from


class _SignalAction(ctypes.Structure):
    _fields_ = (
        ("handler", _HANDLER), ("mask", ctypes.c_byte * 128), ("flags", ctypes.c_uint), ("restorer", ctypes.c_void_p),
    )  # fmt: skip


class HostOutput(io.TextIOBase):
    """A text stream over C's stdout, which puts the printf of kernels in order with the program's own output."""

    def __init__(self, libc: ctypes.CDLL):
        self._libc, self._stream = libc, ctypes.c_void_p.in_dll(libc, "stdout")

    def write(self, text: str) -> int:
        """Write text to C's stdout and return its length."""
        data = text.encode(errors="replace")
        self._libc.fwrite(data, 1, len(data), self._stream)
        return len(text)

    def flush(self) -> None:
        """Flush C's stdout, and with it the program's own output."""
        self._libc.fflush(self._stream)

    def fileno(self) -> int:
        """Return the file descriptor of standard output."""
        return 1


class End:
    """The end of a program, reported once: for the first way of ending, in any thread."""

    def __init__(self, finish: Finish, libc: ctypes.CDLL):
        self._finish, self._libc, self._lock, self._process = finish, libc, threading.Lock(), os.getpid()

    def report(self, status: int) -> int:
        """Call ``finish`` and return the exit status of this process; a second call only returns ``status``.

        So does a call in a fork of the program, because the report belongs to the program itself.
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
        """Report and end the process; called after the program's own ``exit`` handlers."""
        status = self.report(status)
        self._libc.fflush(None)
        os._exit(status & 0xFF)

    def die(self, number: int, info: int | None) -> None:
        """Report a fatal signal; the caller then lets the signal end the process."""
        name = signal.Signals(number).name
        say(f"workbench: the program was ended by {name}{_reason(number, info)}", err=True)
        self.report(128 + number)


def run_main(path: Path, arguments: Sequence[str], finish: Finish) -> NoReturn:
    """Load a program and call its ``main`` with ``arguments``, the first of which is its name; never return."""
    libc = ctypes.CDLL(None)
    load_libraries()
    end = End(finish, libc)
    sys.stdout.flush()
    sys.stdout = HostOutput(libc)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, but it has to end a C program
    kept = [_EXIT(end.leave), *catch_faults(libc, end)]
    _watch_keyboard(end)
    libc.on_exit(kept[0], None)
    try:
        program = ctypes.CDLL(str(path.resolve()), mode=os.RTLD_NOW)  # for a bare name the loader searches its path
    except OSError as error:
        advice = advice_on_loading(str(error))
        say(f"workbench: the program cannot be loaded: {error}{'. ' if advice else ''}{advice}", err=True)
        end.leave(127)
    words = [ctypes.create_string_buffer(os.fsencode(word)) for word in arguments]  # main may write to argv
    values = (ctypes.c_void_p * (len(words) + 1))(*map(ctypes.addressof, words), None)
    status = program.main(len(words), values, ctypes.c_void_p.in_dll(libc, "environ"))
    libc.exit(status)
    raise AssertionError("exit came back")


def told(status: int, check: bool, said: str | None = None) -> int:
    """Print the runtime's refusals, a failed kernel, or the driver's last error to stderr, and return ``status``.

    The driver's last error is printed only for a program that failed. ``said`` is the last error of the program's own
    thread, if the program runs in another thread than this.
    """
    refused = _refusals()
    for text in refused:
        say(f"workbench: not supported: {text}", err=True)
    driver = current()
    said = said or (driver.last_error if driver is not None else None)
    if driver is not None and driver.last_fault is not None and not check:  # the program may have ignored the error
        say(f"workbench: a kernel failed: {driver.last_fault.message}; --check reports what else is wrong", err=True)
    elif status and said and not refused:
        say(f"workbench: the simulated driver said: {said}", err=True)
    return status


def _refusals() -> list[str]:
    """Return the calls that our CUDA runtime has refused so far, by the names of its functions."""
    library = ctypes.CDLL(str(runtime_path()))
    library.workbench_runtime_refusals.restype = ctypes.c_char_p
    return library.workbench_runtime_refusals().decode(errors="replace").splitlines()


def catch_faults(libc: ctypes.CDLL, end: End, numbers: Sequence[signal.Signals] = FAULTS) -> list[Any]:
    """Report fatal signals before they end the program; return the objects that must outlive the handlers."""
    handler = _HANDLER(lambda number, info, _: end.die(number, info))
    action = _SignalAction(handler, flags=_SIGINFO | _ONCE)
    for number in numbers:
        libc.sigaction(int(number), ctypes.byref(action), None)
    return [handler, action]


def _watch_keyboard(end: End) -> None:
    """End the program on Ctrl-C and SIGTERM, whose Python handlers cannot run while ``main`` does.

    Python's C-level handler writes the signal's number to a pipe, and a thread waits on it.
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
    """End this process by a signal's default action."""
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
