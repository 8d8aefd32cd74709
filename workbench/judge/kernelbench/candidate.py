"""The solution's process: torch's simulated device, ``ModelNew`` on it, one call after the other.

Nothing here decides or is believed. What the process does to its device is recorded, by
`workbench.driver.records.recording`; the judge repeats the record in a process that the solution never enters, with
inputs that this one has not seen.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.base.processes.ending import limit_memory
from workbench.base.processes.forking import Main
from workbench.driver.records import recording
from workbench.judge import confinement
from workbench.judge.kernelbench.seeding import seeded
from workbench.ops.files import run_file

RECORDS = 3
"""Number of records behind the head of each answer."""

_WATCHED = ("torch", "torch.nn.functional", "torch.cuda", "torch.random", "time")
_WRAPPED_LATER = ("torch:manual_seed",)  # by torch._dynamo, when it is imported


def serve() -> Main:
    """Return the function that answers the requests to a solution's process: its options, the solution, then calls."""
    made: list[_Solution] = []

    def main(request: Any, send: Callable[[bytes], None]) -> None:
        if not made:
            made.append(_Solution(request))
            send(b"{}")
            return
        for frame in made[0].answer(request):
            send(frame)

    return main


def warm_up() -> None:
    """Use, before the fork, what imports modules at its first use."""
    with seeded(0):
        torch.save(torch.nn.Linear(2, 2).state_dict(), io.BytesIO())


class _Solution:
    def __init__(self, options: Mapping[str, Any]):
        sys.path[:] = options["path"]
        os.chdir(options["working_folder"])
        torch.cuda.init()
        _keep_builds(Path(options["folder"]))
        limit_memory(options["memory"])
        if not confinement.unavailable():
            confinement.confine()
        self._made: Any = None  # the class ModelNew
        self._given: list[Any] = []
        self._told: dict[str, Any] = {}  # of the present call, also if it fails
        self._before = _functions()

    def answer(self, content: bytes) -> Iterator[bytes]:
        """Yield the head of an answer, and `RECORDS` records."""
        request = torch.load(io.BytesIO(content), weights_only=False)
        act = self._load if "solution" in request else self._call
        records: list[bytes] = []
        try:
            head = act(request, records)
        except BaseException as error:
            records.append(recording.take())  # a launch may have failed: repeated, it says where
            head = self._told | {"failed": _outcome(error), "message": _said(error)}
        yield json.dumps(head | self._tampered()).encode()
        yield from (records + [b""] * RECORDS)[:RECORDS]

    def _load(self, request: Mapping[str, Any], records: list[bytes]) -> dict[str, Any]:
        """Load the solution's file, the first time, and make its model."""
        if self._made is None:
            recording.start(request["addresses"])
            module = run_file(Path(request["solution"]))
            self._made = getattr(module, "ModelNew", None)
            if not callable(self._made):
                raise ImportError(f"{module.__name__}.py has no class ModelNew")
        self._given = []
        with seeded(request["seed"]):
            self._model = self._made(*request["init"])
        own = self._model.state_dict()
        missing = [name for name, value in request["state"].items() if not _fits(own.get(name), value)]
        matching = {name: value for name, value in request["state"].items() if name not in missing}
        self._model.load_state_dict(matching, strict=False)
        self._model = self._model.cuda()
        records.append(recording.take())
        return {"missing": missing}

    def _call(self, request: Mapping[str, Any], records: list[bytes]) -> dict[str, Any]:
        """Return the head; add records of the inputs' memory, of the call, and of what it then frees."""
        self._fill(request["inputs"])
        records.append(recording.take())
        self._told = {"given": [_row(one) for one in self._given if isinstance(one, torch.Tensor)]}
        threads = set(threading.enumerate())
        start, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        start.record()  # from here on streams have clocks
        with torch.no_grad():
            returned = self._model(*self._given)
        end.record()
        torch.cuda.synchronize()
        last.record()
        several = returned if isinstance(returned, tuple | list) else (returned,)
        strange = [_kind(one) for one in several if type(one) is not torch.Tensor or not one.is_cuda]
        head = self._told | {
            "strange": strange,
            "late": end.elapsed_time(last) / 1e3,
            "threads": len(set(threading.enumerate()) - threads),
            "outputs": [] if strange else [_row(one) for one in several],
        }
        records.append(recording.take())
        del returned, several
        records.append(recording.take())
        return head

    def _fill(self, inputs: list[Any]) -> None:
        """Put other inputs into the storage of the earlier ones; the record has their memory, not their values."""
        given = [*self._given, *inputs[len(self._given) :]]
        for index, value in enumerate(inputs):
            here = given[index]
            if not isinstance(value, torch.Tensor):
                given[index] = value
                continue
            if not isinstance(here, torch.Tensor) or not here.is_cuda or here.shape != value.shape:
                given[index] = here = torch.empty_like(value, device="cuda")
            with recording.paused():
                here.copy_(value)
        self._given = given

    def _tampered(self) -> dict[str, Any]:
        return {"tampered": [name for name, function in self._before.items() if _now(name) is not function]}


def _kind(value: Any) -> str:
    place = f" on {value.device}" if hasattr(value, "is_cuda") and not value.is_cuda else ""
    return f"{type(value).__name__}{place}"


def _row(tensor: Any) -> dict[str, Any]:
    """Return a tensor's place on the device."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return {
        "type": str(plain.dtype).removeprefix("torch."), "address": plain.data_ptr() if plain.numel() else 0,
        "sizes": list(plain.shape), "strides": list(plain.stride()),
    }  # fmt: skip


def _fits(own: Any, value: Any) -> bool:
    return own is not None and own.shape == value.shape and own.dtype == value.dtype


def _keep_builds(folder: Path) -> None:
    """Keep compilations in a folder named after this solution's content, for its next judgement."""
    for name in ("WORKBENCH_HOME", "WORKBENCH_CACHE", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "CCACHE_DIR"):
        os.environ[name] = str(folder / name.lower())
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TORCH_NO_COMPILER_WRAPPER"] = "1"  # ninja keeps builds: ccache would only expand each file once more


def _functions() -> dict[str, Any]:
    """Return the functions and classes that a solution must not replace, by name."""
    found: dict[str, Any] = {}
    names = [*_WATCHED, *(name for name in list(sys.modules) if name.startswith("workbench."))]
    kinds = (types.FunctionType, types.BuiltinFunctionType, type)
    for name in names:
        found |= {f"{name}:{key}": one for key, one in vars(sys.modules[name]).items() if isinstance(one, kinds)}
    methods = (*kinds, types.MethodDescriptorType, types.WrapperDescriptorType)
    for owner in (torch.Tensor, torch.nn.Module, torch.cuda.Event, torch.cuda.Stream):
        place = f"{owner.__module__}:{owner.__qualname__}"
        found |= {f"{place}.{key}": one for key, one in vars(owner).items() if isinstance(one, methods)}
    return {name: one for name, one in found.items() if name not in _WRAPPED_LATER}


def _now(name: str) -> Any:
    module, _, path = name.partition(":")
    owner, _, key = path.rpartition(".")
    place = vars(sys.modules[module]) if module in sys.modules else {}
    return vars(place[owner]).get(key) if owner and owner in place else place.get(path)


def _outcome(error: BaseException) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return "memory"
    compiling = type(error).__name__ in ("CompilationError", "CompileError", "CompileTimeAssertionFailure")
    return "not_compiled" if compiling or "Error building extension" in str(error) else "not_loaded"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:2000]}"
