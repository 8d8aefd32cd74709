"""The judge's side of a solution's process and of the one that repeats it: requests with limits, checked answers."""

from __future__ import annotations

import io
import math
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.base.processes.process import START_SECONDS, BadAnswer
from workbench.driver.records.recording import ALIGNMENT, FIRST_ADDRESS
from workbench.judge.kernelbench.candidate import RECORDS
from workbench.judge.kernelbench.nursery import SolutionNursery
from workbench.judge.kernelbench.reference import Reference

_MOST_RECORD_BYTES = 8 << 30
_GRACE_SECONDS = 20.0
"""Seconds beyond the limit, which the device keeps by itself, after which a process is ended."""


class NurseryCopy:
    """A copy of the nursery in one of its roles, with the options of that role.

    Hold the nursery's lock while it lives.
    """

    def __init__(self, nursery: SolutionNursery, role: str, options: Mapping[str, Any]):
        self._nursery, self._before = nursery, nursery.printed
        self._child = nursery.fork(role)
        self._child.request({**options, "path": sys.path, "working_folder": os.getcwd()}, START_SECONDS)
        self._ready = False

    @property
    def printed(self) -> int:
        """Number of bytes that the nursery's copies, and all that they have started, have printed since."""
        return self._nursery.printed - self._before

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
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

    def receive(self, most: int, seconds: float) -> bytes:
        """Return the next message, of at most so many bytes. Raises as `ask` does."""
        return self._child.receive(self._child.cpu_deadline(seconds), most)

    def end(self) -> None:
        """Kill the process and what it has started, whatever it is doing; a second call does nothing."""
        self._child.end()


@dataclass(frozen=True)
class Called:
    """The words of a solution's process about a call, and its records: before, during and after the call."""

    head: Mapping[str, Any]
    records: tuple[bytes, ...]


class Candidate:
    """The process of one solution. Nothing that it answers is believed; its records are repeated."""

    def __init__(self, copy: NurseryCopy, seconds: float):
        self.copy, self._seconds = copy, seconds

    def load(self, path: Path, reference: Reference) -> Called:
        """Load a solution, the first time, and make its model. Raises ProcessTimeout, ProcessEnded or BadAnswer."""
        return self._asked(
            {
                "solution": str(path), "init": reference.init, "seed": reference.seed, "state": reference.state,
                "addresses": FIRST_ADDRESS + ALIGNMENT * random.SystemRandom().randrange(1 << 20),
            },
            self._seconds,
        )  # fmt: skip

    def call(self, inputs: Sequence[Any]) -> Called:
        """Call the model. Raises as `load` does."""
        return self._asked({"inputs": list(inputs)}, self._seconds + _GRACE_SECONDS)

    def _asked(self, request: Mapping[str, Any], seconds: float) -> Called:
        head = self.copy.ask(request, seconds)
        return Called(head, tuple(self.copy.receive(_MOST_RECORD_BYTES, seconds) for _ in range(RECORDS)))


@dataclass(frozen=True)
class Repetition:
    """A way to repeat a call: the records ``before`` it, whether launches are ``checked`` or do nothing (``idle``).

    With ``exact`` kernels and operators compute on elements of a ring.
    """

    called: Called
    before: tuple[bytes, ...] = ()
    checked: bool = True
    idle: bool = False
    last_warp_first: bool = False
    exact: bool = False


class Repeater:
    """The trusted process that repeats calls."""

    def __init__(self, copy: NurseryCopy, seconds: float):
        self.copy, self._seconds = copy, seconds + _GRACE_SECONDS

    def repeat(
        self, how: Repetition, inputs: Sequence[Any], outputs: Sequence[tuple[torch.dtype, torch.Size]]
    ) -> Repeated:
        """Repeat a call with other inputs.

        Raises ProcessTimeout, ProcessEnded, and BadAnswer for results that are not of the types of the ``outputs``.
        """
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        head, (made, call, after) = how.called.head, how.called.records
        request = {
            "before": [*how.before, made], "call": call, "after": after, "inputs": tensors,
            "given": _rows(head.get("given"), tensors), "outputs": head.get("outputs"),
            "checked": how.checked, "idle": how.idle, "last_warp_first": how.last_warp_first,
            "exact": how.exact,
        }  # fmt: skip
        answer = self.copy.ask(request, self._seconds)
        if "failed" in answer:
            return Repeated(answer, [], [])
        found = [self._tensor(dtype, shape) for dtype, shape in outputs]
        return Repeated(answer, found, [self._tensor(one.dtype, one.shape) for one in tensors])

    def proofs(self) -> list[dict[str, str]]:
        """Prove the kernels of the checked repetitions so far; return plain values for a verdict.

        Raises ProcessTimeout, ProcessEnded or BadAnswer.
        """
        answer = self.copy.ask({"prove": True}, self._seconds)
        if not isinstance(answer.get("proofs"), list):
            raise BadAnswer("it answers without proofs")
        return answer["proofs"]

    def _tensor(self, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        content = self.copy.receive(size, self._seconds)
        if len(content) != size:
            raise BadAnswer(f"{len(content):,} bytes, where {size:,} are expected")
        if not size:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype).reshape(shape)


@dataclass(frozen=True)
class Repeated:
    """The results of a repetition, and its inputs afterwards; none of either if it failed, as the ``head`` says."""

    head: Mapping[str, Any]
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]


def _rows(given: Any, tensors: Sequence[torch.Tensor]) -> list:
    """Return the places of inputs on the device. Raises BadAnswer unless they are of the inputs' types and shapes."""
    rows = given if isinstance(given, list) else []
    told = [(row.get("type"), row.get("sizes")) for row in rows if isinstance(row, dict)]
    if told != [(str(one.dtype).removeprefix("torch."), list(one.shape)) for one in tensors]:
        raise BadAnswer(f"its inputs are {str(given)[:80]}")
    return rows
