#!/usr/bin/env bash
# After one check of Z3, Ctrl-C no longer ends a blocking system call of the Python process.
#
# Version: z3-solver 5.4.1.0 from PyPI, CPython 3.11, Linux.
# Behaviour: `Solver.check()` takes SIGINT over while it runs, and puts Python's handler back with flags that it did not
# have: SA_RESTART. From then on a `read`, `recv` or `waitpid` of the main thread goes on after Ctrl-C, for as long as it
# blocks, and KeyboardInterrupt comes only behind it. A program that asks Z3 once and later waits for a socket or a child
# cannot be stopped from its terminal. `solver.set("ctrl_c", False)` leaves the handler as it is.
# Output seen: "fresh: no restart; ctrl_c off: no restart; one check: restart; os.read went on after SIGINT: True".
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q z3-solver==5.4.1.0
cat > "$folder/check.py" <<'PYTHON'
import ctypes
import os
import signal
import threading

import z3

SA_RESTART = 0x10000000
libc = ctypes.CDLL(None)
signal.signal(signal.SIGINT, signal.default_int_handler)


def restarts():
    action = ctypes.create_string_buffer(256)  # glibc's struct sigaction: handler, 128 bytes of mask, flags
    libc.sigaction(signal.SIGINT, None, action)
    return bool(int.from_bytes(action.raw[136:140], "little") & SA_RESTART)


def checked(**options):
    solver, x = z3.Solver(), z3.Int("x")
    solver.add(x > 2, x * x < 30)
    for name, value in options.items():
        solver.set(name, value)
    assert solver.check() == z3.sat
    return restarts()


def goes_on():
    """Return whether a read goes on after SIGINT, until something is written a second later."""
    receiving, sending = os.pipe()
    threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    late = threading.Timer(1.5, os.write, (sending, b"late"))
    late.start()
    try:
        os.read(receiving, 1)
    except KeyboardInterrupt:
        pass
    late.join(0.2)
    return not late.is_alive()


fresh, before = restarts(), goes_on()
off, on = checked(ctrl_c=False), checked()
after = goes_on()
words = {False: "no restart", True: "restart"}
print(f"fresh: {words[fresh]}; ctrl_c off: {words[off]}; one check: {words[on]}; os.read went on after SIGINT: {after}")
assert (fresh, before, off, on, after) == (False, False, False, True, True)
PYTHON
"$folder/venv/bin/python" "$folder/check.py"
