"""The trusted process: it repeats what a solution's process did to its device, with other inputs, and all checks.

The solution's code never runs here; its kernels do, on the PTX machine, and torch's operators that it called. So
results, findings, counts and times are this process's own word.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from workbench.analysis.device_models import device_model
from workbench.analysis.exact import opcodes_of
from workbench.analysis.exact.device_operators import DeviceOperators
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch
from workbench.base.processes.ending import limit_memory
from workbench.base.processes.forking import Main
from workbench.driver.records.replaying import BadLog, Replay, Unrepeatable, called
from workbench.errors import WorkbenchError
from workbench.judge.launching import finding_record
from workbench.judge.proving import EFFORT, records, unproved
from workbench.launch.sim import machine_kernel
from workbench.ptx.findings import ORDER

_POISON, _ORDINARY = 0xFF, 0x3C
"""Bytes of memory that nothing was written to: NaN in every floating-point type; small numbers for idle launches."""
_MOST_FINDINGS, _MOST_PTX = 32, 8


def serve() -> Main:
    """Return the function that answers the requests to this process: its options, then calls to repeat."""
    made: list[_Repeater] = []

    def main(request: Any, send: Callable[[bytes], None]) -> None:
        if not made:
            made.append(_Repeater(request))
            send(b"{}")
            return
        for frame in made[0].answer(request):
            send(frame)

    return main


class _Repeater:
    def __init__(self, options: Mapping[str, Any]):
        self._launches, self._idle = Launches(), list[str]()
        self._model, self._seconds = device_model(options["model"]), options["seconds"]
        self._schedules, self._proves = options["schedules"], options["prove"]
        self._replay = Replay()
        limit_memory(options["memory"])

    def answer(self, content: bytes) -> Iterator[bytes]:
        """Yield the head of an answer to a request, and the bytes of each output and of each input."""
        request = torch.load(io.BytesIO(content), weights_only=False)
        if "prove" in request:
            yield json.dumps(self._proved()).encode()
            return
        frames: list[bytes] = []
        try:
            head = self._repeated(request, frames)
        except Unrepeatable as error:
            head = {"failed": "unsupported", "message": f"the judge cannot repeat {error}"}
        except BadLog as error:
            head = {"failed": "invalid", "message": f"no record of a device: {error}"}
        except (torch.cuda.OutOfMemoryError, MemoryError) as error:
            head = {"failed": "memory", "message": str(error)[:2000]}
        except Exception as error:
            head = {"failed": "invalid", "message": f"{type(error).__name__}: {str(error)[:2000]}"}
        yield json.dumps(head | self._found()).encode()
        if "failed" not in head:
            yield from frames

    def _proved(self) -> dict[str, Any]:
        """Prove the kernels of the checked launches so far."""
        from workbench.proof.launches import prove_launches

        try:
            return {"proofs": records(prove_launches(self._launches.seen.take(), effort=EFFORT))}
        except WorkbenchError as error:
            return {"proofs": unproved(str(error))}

    def _repeated(self, request: Mapping[str, Any], frames: list[bytes]) -> dict[str, Any]:
        """Repeat the records of a request; return the head of the answer, and add the contents of tensors.

        ``before`` are records to repeat first. Then ``inputs`` take the places ``given``, and ``call`` is timed. The
        contents are those of ``outputs`` and ``given`` behind it; last comes ``after``. With ``idle`` no launch does
        anything; with ``checked`` all are checked; ``last_warp_first`` is as in `LaunchOptions`. With ``exact`` all
        compute on elements of a ring, and the head has the instructions and operators that did.
        """
        self._watch(request)
        operators = DeviceOperators() if request["exact"] else None
        self._replay.call = called if operators is None else operators.call
        poison = _ORDINARY if request["idle"] else _POISON
        for record in request["before"]:
            self._replay.run(record, poison)
        self._launches.take()
        self._idle.clear()
        self._replay.operators.clear()
        for row, value in zip(request["given"], request["inputs"], strict=True):
            self._replay.tensor(row).copy_(value)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        self._replay.run(request["call"], poison)
        end.record()
        torch.cuda.synchronize()
        for row in (*request["outputs"], *request["given"]):
            frames.append(_bytes(self._replay.content(row)))
        self._replay.run(request["after"], poison)
        head = {"seconds": start.elapsed_time(end) / 1e3, "operators": dict(self._replay.operators)}
        if operators is not None:
            kernels = {one.kernel.key: one.kernel for one in self._launches}
            opcodes = opcodes_of([machine_kernel(one) for one in kernels.values()])
            head |= {"exact": {"opcodes": sorted(opcodes), "operators": sorted(operators.used)}}
        return head

    def _watch(self, request: Mapping[str, Any]) -> None:
        idle = self._idle if request["idle"] else None
        checked = request["checked"] and not request["idle"] and not request["exact"]
        watch(
            Watch(
                self._launches, self._model, checked, trace=checked, counts=True, seconds_limit=self._seconds,
                idle=idle, last_warp_first=request["last_warp_first"],
                schedules=self._schedules if checked else 0,
                seen=self._launches.seen if checked and self._proves else None, exact=request["exact"],
            )
        )  # fmt: skip

    def _found(self) -> dict[str, Any]:
        kept = self._launches
        notes = {(one.kernel, one.sides): one for row in kept for one in row.report.notes if one.kind == ORDER}
        return {
            "launches": len(kept) + len(kept.faults) + len(self._idle),
            "findings": [finding_record(one, ()) for one in kept.findings][:_MOST_FINDINGS],
            "notes": [finding_record(one, ())["message"] for one in notes.values()],
            "ptx": list(dict.fromkeys(one.kernel.ptx for one in kept))[:_MOST_PTX],
        }


def _bytes(tensor: Any) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
