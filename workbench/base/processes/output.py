"""The output of another process: its end is kept, the rest is counted and dropped."""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import threading

KEPT_BYTES = 1 << 20
"""The number of bytes that are kept, the last ones."""

_PIECE = 1 << 16
_ENDING_SECONDS = 5.0


class ProcessOutput:
    """A pipe for a process's output. ``fd`` is the end to give it; `begin` closes that here and starts to read.

    The reader is none of `threading`'s threads: a solution's process counts those that its solution leaves behind.
    """

    def __init__(self) -> None:
        self._read, self.fd = os.pipe()
        os.set_blocking(self._read, False)
        self._wake = os.eventfd(0)
        self._kept = bytearray()
        self._changing = threading.Lock()
        self._ended = threading.Lock()
        self._printed = 0
        self._at_end = False  # nobody has the other side any more

    @property
    def printed(self) -> int:
        """Number of bytes that the process has printed, with those that are still in the pipe."""
        self._take_all()
        return self._printed

    def begin(self) -> None:
        """Leave the pipe to the process, and read what comes."""
        os.close(self.fd)
        self._ended.acquire()
        _thread.start_new_thread(self._drain, ())

    def text(self) -> str:
        """Return the end of the output; call it after `close` for what a process printed last."""
        with self._changing:
            return bytes(self._kept[-KEPT_BYTES:]).decode(errors="replace")

    def close(self) -> None:
        """Read what is left in the pipe, and stop."""
        os.eventfd_write(self._wake, 1)
        if self._ended.acquire(timeout=_ENDING_SECONDS):
            self.forget()

    def forget(self) -> None:
        """Close the descriptors without waiting; in a fork of the process that reads, nothing else is left to do."""
        for fd in (self._read, self._wake):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _drain(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            poll.register(self._wake, select.POLLIN)
            while self._wake not in {fd for fd, _ in poll.poll()} and not self._at_end:
                self._took()  # nothing, if `printed` was faster
            self._take_all()
        finally:
            self._ended.release()

    def _take_all(self) -> None:
        for _ in range(KEPT_BYTES // _PIECE):  # a process that goes on printing has no end
            if not self._took():
                return

    def _took(self) -> bool:
        """Read one piece; return False at the end, or if nothing is there."""
        with self._changing:
            try:
                data = os.read(self._read, _PIECE)
            except OSError:  # nothing is there, or the pipe is closed
                return False
            self._at_end = not data
            self._printed += len(data)
            self._kept += data
            if len(self._kept) > 2 * KEPT_BYTES:
                del self._kept[:-KEPT_BYTES]
        return bool(data)
