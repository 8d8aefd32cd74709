"""The judge's side of a forked process: requests with time limits, and answers that are checked."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workbench.base.processes.process import START_SECONDS, BadAnswer
from workbench.judge.kernelbench.nursery import SolutionNursery


class SolutionProcess:
    """A copy of the nursery in one of its roles, that of a solution by default, with the options of that role.

    Hold the nursery's lock while it lives.
    """

    def __init__(self, nursery: SolutionNursery, role: str, options: Mapping[str, Any]):
        self._nursery, self._printed = nursery, nursery.printed
        self._child = nursery.fork(role)
        self._child.request({**options, "path": sys.path, "working_folder": os.getcwd()}, START_SECONDS)
        self._ready = False

    @property
    def printed(self) -> int:
        """Number of bytes that the process, and all that it has started, have printed."""
        return self._nursery.printed - self._printed

    def answer(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the JSON of the answer, within ``seconds`` of CPU time.

        Raises ProcessTimeout, ProcessEnded or BadAnswer.
        """
        if not self._ready:
            self._child.json(START_SECONDS)
            self._ready = True
        content = io.BytesIO()
        torch.save(dict(request), content)
        self._child.request(content.getvalue(), seconds)
        return self._child.json(seconds)

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], seconds: float) -> torch.Tensor:
        """Receive the next tensor, of this dtype and shape. Raises NoAnswer, ProcessEnded or BadAnswer."""
        size = math.prod(shape) * dtype.itemsize
        content = self._child.receive(self._child.cpu_deadline(seconds), size)
        if len(content) != size:
            raise BadAnswer(f"{len(content):,} bytes, where {size:,} are expected")
        if not size:
            return torch.empty(tuple(shape), dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(tuple(shape))

    def end(self) -> None:
        """Kill the process and what it has started, whatever it is doing; a second call does nothing."""
        self._child.end()
