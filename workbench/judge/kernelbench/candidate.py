"""The solution's process: torch's simulated device, ``ModelNew`` on it, one call after the other.

Nothing here decides. After each call it sends the findings of the launches as JSON, then the bytes of the results and
of the inputs; the judge's process compares those. The solution's code runs here and could change any of it: it reports
functions of torch and of the workbench that are not as they were before the solution was loaded.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.watching import Watch, watch
from workbench.base.processes.ending import limit_memory
from workbench.base.processes.forking import Main
from workbench.driver.torch_device.starting import fill_new_memory
from workbench.judge import confinement
from workbench.judge.kernelbench.seeding import seeded
from workbench.judge.launching import finding_record
from workbench.ops.own.files import run_file
from workbench.ptx.findings import ORDER

_POISON, _ORDINARY = 0xFF, 0x3C
"""Bytes of new memory in a call: NaN in every floating-point type; and small numbers, where launches are left out."""
_WATCHED = ("torch", "torch.nn.functional", "torch.cuda", "torch.random", "time")
_WRAPPED_LATER = ("torch:manual_seed",)  # by torch._dynamo, when it is imported
_NO_WORK = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh"),
        *("_local_scalar_dense", "is_same_size", "set_", "resize_", "record_stream", "item", "_unsafe_view"),
    )
)


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
        self._launches, self._idle = Launches(), list[str]()
        model = device_model(options["model"])
        self._watch = lambda idle: watch(
            Watch(self._launches, model, True, not idle, options["seconds"], idle=self._idle if idle else None)
        )
        self._watch(False)
        sys.path[:] = options["path"]
        os.chdir(options["working_folder"])
        torch.cuda.init()
        _keep_builds(Path(options["folder"]))
        limit_memory(options["memory"])
        if not confinement.unavailable():
            confinement.confine()
        self._given: list[Any] = []
        self._before = _functions()

    def answer(self, content: bytes) -> Iterator[bytes]:
        request = torch.load(io.BytesIO(content), weights_only=False)
        try:
            frames = self._load(request) if "solution" in request else self._call(request)
        except BaseException as error:
            frames = [{"failed": _outcome(error), "message": _said(error)} | self._found()]
        for frame in frames:
            yield frame if isinstance(frame, bytes) else json.dumps(frame).encode()

    def _load(self, request: Mapping[str, Any]) -> list[Any]:
        module = run_file(Path(request["solution"]))
        made = getattr(module, "ModelNew", None)
        if not callable(made):
            raise ImportError(f"{module.__name__}.py has no class ModelNew")
        with seeded(request["seed"]):
            self._model = made(*request["init"])
        own = self._model.state_dict()
        missing = [name for name, value in request["state"].items() if not _fits(own.get(name), value)]
        matching = {name: value for name, value in request["state"].items() if name not in missing}
        self._model.load_state_dict(matching, strict=False)
        self._model = self._model.cuda()
        return [{"missing": missing} | self._found()]

    def _call(self, request: Mapping[str, Any]) -> list[Any]:
        self._fill(request["inputs"])
        idle = request["idle"]
        fill_new_memory(_ORDINARY if idle else _POISON)
        self._launches.take()
        self._idle.clear()
        threads = set(threading.enumerate())
        self._watch(idle)
        start, end, last = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        torch.cuda.synchronize()
        start.record()
        with torch.no_grad(), _operators() as operators:
            returned = self._model(*self._given)
        end.record()
        torch.cuda.synchronize()
        last.record()
        several = returned if isinstance(returned, tuple | list) else (returned,)
        strange = [type(one).__name__ for one in several if type(one) is not torch.Tensor]
        head: dict[str, Any] = self._found() | {
            "strange": strange,
            "operators": dict(operators),
            "seconds": start.elapsed_time(last) / 1e3,
            "late": end.elapsed_time(last) / 1e3,
            "threads": len(set(threading.enumerate()) - threads),
            "outputs": [],
        }
        if strange:
            return [head]
        head["outputs"] = [[str(one.dtype).removeprefix("torch."), list(one.shape)] for one in several]
        inputs = [one for one in self._given if isinstance(one, torch.Tensor)]
        return [head, *map(content_of, several), *map(content_of, inputs)]

    def _fill(self, inputs: list[Any]) -> None:
        """Put other inputs into the storage of the earlier ones."""
        if not self._given:
            self._given = [one.cuda() if isinstance(one, torch.Tensor) else one for one in inputs]
            return
        for index, value in enumerate(inputs):
            here = self._given[index]
            if isinstance(value, torch.Tensor) and here.shape == value.shape:
                here.copy_(value)
            else:
                self._given[index] = value.cuda() if isinstance(value, torch.Tensor) else value

    def _found(self) -> dict[str, Any]:
        kept = self._launches
        notes = {(one.kernel, one.sides): one for row in kept for one in row.report.notes if one.kind == ORDER}
        return {
            "launches": len(kept) + len(kept.faults) + len(self._idle),
            "findings": [finding_record(one, ()) for one in kept.findings][:32],
            "notes": [finding_record(one, ())["message"] for one in notes.values()],
            "ptx": list(dict.fromkeys(one.kernel.ptx for one in kept))[:8],
            "tampered": [name for name, function in self._before.items() if _now(name) is not function],
        }


def content_of(tensor: Any) -> bytes:
    """Return the bytes of a tensor's elements, in row-major order."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@contextlib.contextmanager
def _operators() -> Iterator[Counter[str]]:
    """Count torch's operators within the block, except those that compute nothing."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Counter[str] = Counter()

    class Counting(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # otherwise torch imports torch._dynamo to wrap the method, which takes seconds

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.partition("::")[2]
            views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
            if not views and name not in _NO_WORK:
                found[name] += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        yield found


def _fits(own: Any, value: Any) -> bool:
    return own is not None and own.shape == value.shape and own.dtype == value.dtype


def _keep_builds(folder: Path) -> None:
    """Keep compilations in a folder named after this solution's content, for its next judgement."""
    for name in ("WORKBENCH_HOME", "WORKBENCH_CACHE", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "CCACHE_DIR"):
        os.environ[name] = str(folder / name.lower())
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


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
