"""Python inside a CUDA executable that another build linked: ``python -m workbench.programs.embedded`` in a thread.

``driver/library/interpreter.cpp`` starts this at the program's first CUDA call. It serves the driver's hooks until the
process ends; the launches go to the report of the ``workbench run`` that started the program.
"""

from __future__ import annotations

import ctypes
import signal
import sys

from workbench.driver.library_files import library_path
from workbench.programs import children
from workbench.programs.native import FAULTS, End, HostOutput, catch_faults, told
from workbench.programs.running import join_run

_END = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)


def serve() -> None:
    """Start the simulated driver and serve its hooks until the program ends."""
    launches = join_run()
    libc = ctypes.CDLL(None)
    sys.stdout = HostOutput(libc)
    check = children.given()[1].check

    def finished(status: int, said: str | None = None) -> int:
        launches.settle()
        return told(status, check, said)

    end = End(finished, libc)
    kept = catch_faults(libc, end, [number for number in FAULTS if _is_default(number)])
    finish = _END(lambda status, said: finished(status, said.decode(errors="replace")))
    ctypes.CDLL(str(library_path())).workbench_driver_serve(finish)
    raise AssertionError(f"the program goes on after its end: {kept}")


def _is_default(number: signal.Signals) -> bool:
    """Return True if the program has no handler of its own for a signal.

    Asks the C library, because Python knows only of handlers that were set through Python.
    """
    libc = ctypes.CDLL(None)
    present = (ctypes.c_byte * 256)()  # at least as large as struct sigaction, whose first field is the handler
    libc.sigaction(int(number), None, ctypes.byref(present))
    return not ctypes.c_void_p.from_buffer(present).value


if __name__ == "__main__":
    serve()
