"""Exact comparison of two programs that use torch's simulated device: ``workbench run --exact-against``.

Each program runs on elements of a ring once for each draw, in a fork of its own: its kernels, and torch's operators
between them. What both leave in global variables of the same name is compared, or what they copy to the host.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.analysis.launches import Launches
from workbench.errors import ArgumentError, DeviceUnavailableError, WorkbenchError
from workbench.programs.device_options import DeviceOptions
from workbench.programs.running import start_devices


def compare_programs(program: str, others: Sequence[str], arguments: Sequence[str], options: DeviceOptions) -> str:
    """Run programs with the same arguments on elements of a ring; return whether the others compute what one does.

    Raises ArgumentError for files that are no Python programs, and DeviceUnavailableError without torch's CUDA build.
    """
    for name in (program, *others):
        if not (name.endswith(".py") and Path(name).is_file()):
            raise ArgumentError("program", repr(name), "a Python file that exists", "Two .py files are compared.")
    from workbench.driver.torch_device.library import installed_torch

    torch = installed_torch()
    if torch is None or torch.problem is not None:
        raise DeviceUnavailableError(torch.problem if torch is not None and torch.problem else "torch is not installed")
    launches = Launches(keep_all=True)
    start_devices(launches, options)
    with tempfile.TemporaryDirectory() as folder:
        first, *rest = [_Program(name, arguments, launches, Path(folder)) for name in (program, *others)]
        _prepare((program, *others))
        return "\n".join(_compared(first, one) for one in rest)


def _prepare(programs: Sequence[str]) -> None:
    """Import Triton before the forks, if a program does, and let it make the key of its cache once for all of them."""
    if any(re.search(r"^\s*(import|from) triton\b", Path(one).read_text(), re.MULTILINE) for one in programs):
        with suppress(ImportError):  # which a program will say
            from triton.runtime.cache import triton_key

            triton_key()


@dataclass(eq=False)
class _Program:
    """One program, and what its runs have found."""

    path: str
    arguments: Sequence[str]
    launches: Launches
    folder: Path
    _known: dict[int, dict[str, Any]] = field(default_factory=dict)

    def run(self, draw: int) -> dict[str, Any]:
        """Return what a fork found: globals, host copies, opcodes and operators. Raises WorkbenchError for a cause."""
        import torch

        if draw not in self._known:
            file = self.folder / f"{id(self)}-{draw}"
            sys.stdout.flush()
            process = os.fork()
            if process == 0:
                _run_in_fork(self, draw, file)
            os.waitpid(process, 0)
            if not file.exists():
                raise WorkbenchError(f"{self.path} ended its process")
            self._known[draw] = torch.load(file, weights_only=True)
        found = self._known[draw]
        if found["cause"]:
            raise WorkbenchError(f"{self.path}: {found['cause']}")
        return found


def _compared(first: _Program, second: _Program) -> str:
    from workbench.analysis.exact import Side, compared

    outputs: list[str] = []

    def side_of(program: _Program) -> Side:
        def compute(number: int, _: Mapping[str, Any], side: Side) -> Mapping[str, Any]:
            found = program.run(number)
            side.opcodes |= set(found["opcodes"])
            side.operators |= set(found["operators"])
            if not outputs:
                outputs.extend(_common(first.run(0), second.run(0)))
            known = found["globals"] | {_copy(at): one for at, one in enumerate(found["copies"])}
            return {name: known[name] for name in outputs}

        return Side(compute)

    answer = compared(side_of(first), side_of(second))
    compares = f" (compared: {', '.join(outputs)})" if answer.same is not None else ""
    _, *more = answer.lines
    return "\n".join([f"exact: {first.path} and {second.path}: {answer}{compares}", *more])


def _common(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of what is compared: globals of both, or else copies to the host. Raises WorkbenchError."""
    names = [name for name in one["globals"] if name in other["globals"]]
    if names:
        return names
    copies = [len(found["copies"]) for found in (one, other)]
    if not copies[0] or copies[0] != copies[1]:
        what = "no global variables of the same name that are tensors of floats"
        raise WorkbenchError(f"they have {what}, and copy {copies[0]} and {copies[1]} tensors to the host")
    return [_copy(at) for at in range(copies[0])]


def _copy(at: int) -> str:
    return f"copy {at} to the host"


def _run_in_fork(program: _Program, draw: int, file: Path) -> None:
    """Run a program, write what it found to a file, and end this process."""
    status = 1
    try:
        import torch

        found = _found(program, draw)
        torch.save(found, file.with_suffix(".part"))
        file.with_suffix(".part").rename(file)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _found(program: _Program, draw: int) -> dict[str, Any]:
    import torch

    from workbench.analysis.exact import cause_of, elements, opcodes_of
    from workbench.analysis.exact.device_operators import DeviceOperators, computing_on_elements
    from workbench.ptx import Program

    copies: list[Any] = []

    def copied(made: torch.Tensor) -> None:
        copies.append(elements(made))

    operators = DeviceOperators(copied)
    module = ModuleType("__main__")
    module.__file__ = program.path
    sys.modules["__main__"] = module
    sys.argv = [program.path, *program.arguments]
    sys.path[0] = str(Path(program.path).resolve().parent)
    cause = ""
    if draw:  # once is enough for what it prints
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _move_seeds(draw)
    _let_pass()
    with computing_on_elements(operators):
        try:
            exec(compile(Path(program.path).read_text(), program.path, "exec"), vars(module))
            torch.cuda.synchronize()
        except SystemExit:
            pass
        except WorkbenchError as error:
            cause = cause_of(error)
        except Exception as error:
            cause = f"it ends with {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    launches = program.launches
    if launches.faults:
        cause = cause_of(launches.faults[0])
    elif launches.host_calls:
        cause = f"{launches.host_calls[0].name} computes on the host"
    held = {
        name: elements(one.detach())
        for name, one in vars(module).items()
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.dtype.itemsize > 1
    }
    kernels = {one.kernel.key: one.kernel for one in launches}
    opcodes = opcodes_of([Program.from_text(one.ptx)[one.name] for one in kernels.values()])
    return {
        "cause": cause, "globals": held, "copies": copies, "opcodes": sorted(opcodes),
        "operators": sorted(operators.used),
    }  # fmt: skip


def _move_seeds(draw: int) -> None:
    """Let every seed that a program sets be another one in each draw; without one it begins with the draw's.

    This holds until the process ends.
    """
    import numpy
    import torch

    from workbench.analysis.exact import APART

    generator = torch.Generator.manual_seed
    apart = APART * draw

    def moved(function: Callable) -> Callable:
        return lambda seed=0, *rest: function(seed + apart if isinstance(seed, int) else seed, *rest)

    torch.manual_seed(apart)
    numpy.random.seed(apart)
    random.seed(apart)
    seeders: list[tuple[Any, str]] = [
        (torch, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"),
        (numpy.random, "seed"), (numpy.random, "default_rng"), (random, "seed"),
    ]  # fmt: skip
    for place, name in seeders:
        setattr(place, name, moved(getattr(place, name)))
    own: Any = torch.Generator
    kind: Any = type(own)

    class Alike(kind):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, own)

    class Moved(own, metaclass=Alike):
        def manual_seed(self, seed: int) -> torch.Generator:
            return generator(self, seed + apart)

    torch.Generator = Moved


def _let_pass() -> None:
    """Let a program's own comparisons of floats pass, and its tensors be printed: elements are no numbers.

    This holds until the process ends.
    """
    import torch

    places: list[tuple[Any, str]] = [
        (torch, "allclose"), (torch, "equal"), (torch.testing, "assert_close"), (torch.Tensor, "allclose"),
        (torch.Tensor, "equal"),
    ]  # fmt: skip
    for place, name in places:
        setattr(place, name, lambda *args, **kwargs: True)
    for name in ("__repr__", "__format__"):
        setattr(torch.Tensor, name, lambda self, *args, **kwargs: "<tensor of elements>")
