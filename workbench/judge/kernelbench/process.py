"""The judge's side of a solution's process: requests with time limits, and answers that are checked."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from workbench.base.worker import how_ended
from workbench.judge.descendants import end_descendants, end_marked
from workbench.judge.kernelbench.candidate import received, sent
from workbench.judge.nursery import BadAnswer, NoAnswer, ProcessEnded

_MARK = "WORKBENCH_KERNELBENCH"
_MOST_JSON = 64 << 20
_PROGRAM = """
import json, sys
path, fd, options = map(json.loads, sys.argv[1:])
sys.path[:] = path
import workbench
workbench.simulated_gpu(options["model"], memory_bytes=options["memory"] << 20, force=True)  # before torch
from workbench.judge.kernelbench.candidate import serve
serve(fd, options)
"""


class SolutionProcess:
    """The process of one solution."""

    def __init__(self, options: Mapping[str, Any]):
        self._word = secrets.token_hex(16)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(json.dumps, (sys.path, theirs.fileno(), options))],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors,
                start_new_session=True, env=os.environ | {_MARK: self._word, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the JSON of the answer. Raises NoAnswer, ProcessEnded or BadAnswer."""
        content = io.BytesIO()
        torch.save(dict(request), content)
        with self._limited(seconds):
            sent(self._connection, content.getvalue())
            line = received(self._connection, _MOST_JSON)
        if line is None:
            raise ProcessEnded(f"its process {self._how()}")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise BadAnswer(f"{line[:60]!r} is no JSON") from None
        if not isinstance(found, dict):
            raise BadAnswer(f"{line[:60]!r} is no JSON object")
        return found

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], seconds: float) -> torch.Tensor:
        """Receive the next tensor, of this dtype and shape. Raises NoAnswer, ProcessEnded or BadAnswer."""
        size = math.prod(shape) * dtype.itemsize
        with self._limited(seconds):
            content = received(self._connection, size)
        if content is None:
            raise ProcessEnded(f"its process {self._how()}")
        if len(content) != size:
            raise BadAnswer(f"{len(content):,} bytes, where {size:,} are expected")
        if not size:
            return torch.empty(tuple(shape), dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(tuple(shape))

    @contextlib.contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        self._connection.settimeout(seconds)
        try:
            yield
        except TimeoutError:
            raise NoAnswer(f"stopped after {seconds:g} s") from None
        except ValueError as error:
            raise BadAnswer(str(error)) from None
        except OSError:
            raise ProcessEnded(f"its process {self._how()}") from None

    def _how(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        status = self._process.poll()
        return ": ".join(["hung up" if status is None else how_ended(status), *said])

    def end(self) -> None:
        """Kill the process and all of its descendants."""
        end_descendants(self._process.pid)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._errors.close()
        end_marked(f"{_MARK}={self._word}", {os.getpid()})
