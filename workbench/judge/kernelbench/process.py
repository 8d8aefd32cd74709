"""The judge's side of a solution's process: requests with time limits, and answers that are checked."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from workbench.base.processes.process import BadAnswer, Process, new_mark


class SolutionProcess(Process):
    """The process of one solution."""

    def __init__(self, options: Mapping[str, Any]):
        super().__init__(
            "workbench.judge.kernelbench.candidate:serve",
            dict(options),
            os.getpid(),
            variables={"OMP_NUM_THREADS": "1"},
            mark=new_mark(),
        )

    def answer(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the JSON of the answer, within ``seconds`` of CPU time.

        Raises ProcessTimeout, ProcessEnded or BadAnswer.
        """
        self.await_start()
        content = io.BytesIO()
        torch.save(dict(request), content)
        return self.ask_untrusted(content.getvalue(), seconds)

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], seconds: float) -> torch.Tensor:
        """Receive the next tensor, of this dtype and shape. Raises NoAnswer, ProcessEnded or BadAnswer."""
        size = math.prod(shape) * dtype.itemsize
        content = self.receive(self.cpu_deadline(seconds), size)
        if len(content) != size:
            raise BadAnswer(f"{len(content):,} bytes, where {size:,} are expected")
        if not size:
            return torch.empty(tuple(shape), dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(tuple(shape))
