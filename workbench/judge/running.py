"""The side that is trusted: makes inputs from seeds, runs a description in the PTX machine, and compares.

Nothing of the candidate's is executed here but its PTX, by the machine.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workbench.devices import arguments as launch_arguments
from workbench.errors import ArgumentError, KernelFault, UnsupportedInstructionError
from workbench.judge.buffers import Buffers
from workbench.judge.description import Argument, Description, InvalidDescription, KernelLaunch
from workbench.judge.outcomes import OK, of_finding
from workbench.kernels.variables import Variables
from workbench.ops.own.tensor_type import TensorType
from workbench.ptx import Program
from workbench.ptx.parse import PtxSyntaxError
from workbench.toolchain.kernel import CompiledKernel, entry_parameters
from workbench.toolchain.shared_memory import static_shared_bytes
from workbench.tuning import by_value

ORDERS = {True: "the last warp first", False: "the usual order of warps"}
_MAX_FINDINGS = 32


class Failed(Exception):
    """A candidate's failure: the fields of a verdict."""

    def __init__(self, outcome: str, message: str, **fields: Any):
        self.fields = {"outcome": outcome, "message": message, **fields}
        super().__init__(message)


def run(request: Mapping[str, Any], answer: Callable[[dict], None]) -> None:
    """Answer with the fields of a verdict; or with ``error``, where the op itself fails.

    ``request``: ``path`` (sys.path), ``case`` by value, ``seeds``, and ``description`` with the case's ``problem``,
    ``seconds`` and ``memory`` in bytes; without a description whether the reference's answer is the same for all seeds,
    as ``fixed``.
    """
    sys.path[:] = request["path"]
    try:
        cases = [_case(request["case"]).override(seed=seed) for seed in request["seeds"]]
        if request.get("description") is None:
            answers = [case.reference() for case in cases]
            answer({"fixed": all(_same(answers[0], one) for one in answers[1:])})
            return
        for case in cases:
            case.reference()
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    try:
        answer({"outcome": OK} | _judge(cases, request))
    except Failed as failure:
        answer(failure.fields)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error) and not isinstance(error, RecursionError):
            raise
        outcome = "invalid" if isinstance(error, RecursionError) else "memory"
        answer({"outcome": outcome, "message": str(error).splitlines()[0] if str(error) else "no memory is left"})


@functools.lru_cache(maxsize=64)
def _case(content: bytes) -> Any:
    return by_value.loads(content)


def _same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(a.double().nan_to_num(), other[name].double().nan_to_num()) for name, a in one.items())


def _judge(cases: Sequence[Any], request: Mapping[str, Any]) -> dict:
    deadline = time.monotonic() + request["seconds"]
    description = _valid(Description.of, request["description"])
    problem = request["problem"]
    _check_names(description, problem)
    room = request["memory"]
    for part in description.workspace:
        room -= math.prod(part.shape) * getattr(torch, part.dtype).itemsize
        if room < 0:
            limit = f"more than the {request['memory'] >> 20:,} MiB that are allowed"
            shape = ", ".join(map(str, part.shape))
            raise Failed("memory", f"its workspace {part.name} is {part.dtype}[{shape}], {limit}")
    programs = [_valid(Program, text) for text in description.programs]
    worst: tuple[float, Any] = (-1.0, None)
    for case in cases:
        for index, last_warp_first in enumerate(ORDERS):
            buffers = Buffers(case, problem, description.workspace, index)
            _launch_all(description, programs, buffers, last_warp_first, deadline)
            check = _compared(case, buffers, f"seed {case.seed}, {ORDERS[last_warp_first]}")
            share = check.max_error / check.bound if check.bound else 0.0
            worst = max(worst, (share, check), key=lambda pair: pair[0])
    return {"max_error": worst[1].max_error, "bound": worst[1].bound}


def _valid(make: Callable, content: Any) -> Any:
    """What is made of a candidate's data; whatever that makes a parser do is the candidate's failure."""
    try:
        return make(content)
    except InvalidDescription as error:
        raise Failed("invalid", f"no description of launches: {error}") from error
    except (UnsupportedInstructionError, PtxSyntaxError) as error:
        raise Failed("unsupported", str(error)) from error
    except MemoryError:
        raise
    except Exception as error:
        raise Failed("invalid", f"PTX that cannot be read: {type(error).__name__}: {error}") from error


def _check_names(description: Description, problem: Any) -> None:
    """Every tensor that is named is there, every output is passed."""
    known = {name for name, kind in (*problem.arguments, *problem.outputs) if isinstance(kind, TensorType)}
    own = [part.name for part in description.workspace]
    if len(set(own)) < len(own) or known & set(own):
        raise Failed("invalid", f"workspace has a name twice, or that of a tensor: {', '.join(own)}")
    passed = description.passed()
    used = {*passed, *(one.value for one in description.constants.values() if one.kind == "tensor")}
    for name in used:
        if name not in known and name not in own:
            raise Failed("invalid", f"no tensor has the name {name[:60]!r}")
    for name, kind in problem.outputs:
        if name not in passed and kind.numel():
            twice = sorted({one for one in passed if passed.count(one) > 1})
            if twice:
                raise Failed("aliased", f"{name} is passed to no kernel, but {', '.join(twice)} twice")
            raise Failed("unwritten", f"{name} is passed to no kernel")


class _Programs:
    """The device that `Variables` writes to: programs of this run alone."""

    def __init__(self, programs: Mapping[str, Program]):
        self._programs = programs

    def reset_variables(self, kernel: CompiledKernel) -> Program:
        """They were reset already."""
        return self._programs[kernel.ptx]

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """The content of a device variable."""
        return self._programs[kernel.ptx].variables[symbol].tobytes()

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of it."""
        self._programs[kernel.ptx].variables[symbol][:] = bytearray(content)


def _launch_all(
    description: Description, programs: Sequence[Program], buffers: Buffers, last_warp_first: bool, deadline: float
) -> None:
    """Run every launch with all checks; raises Failed with what the machine found."""
    for program in programs:
        program.reset_variables()
    kernels = [_kernel(description.programs[one.program], one) for one in description.launches]
    if description.constants:
        _set_constants(description, programs, kernels, buffers)
    fresh = set(buffers.outputs)
    for one, kernel in zip(description.launches, kernels, strict=True):
        try:
            given = [_argument(argument, buffers) for argument in one.arguments]
            values = launch_arguments.check_arguments(kernel, given)
            grid, block, shared = launch_arguments.check_launch(
                kernel, one.grid, one.block, one.shared_bytes, kernel.arch
            )
            unwritten = [i for i, a in enumerate(one.arguments) if a.kind == "tensor" and a.value in fresh]
            report = programs[one.program][one.entry].launch(
                grid,
                block,
                values,
                shared_bytes=shared,
                checks=True,
                uninitialised=[i for i in unwritten if given[i].numel()],
                seconds_limit=max(deadline - time.monotonic(), 0.01),
                last_warp_first=last_warp_first,
                repeats=True,  # whoever compiled it: what reaches nothing is no fault of the kernel's
            )
        except KernelFault as error:
            found = _found(error.finding, one)
            message = f"{found['message']} (with {ORDERS[last_warp_first]})"
            outcome = of_finding(found["kind"])
            raise Failed(outcome, message, line=found["line"], findings=[found]) from error
        except (UnsupportedInstructionError, ArgumentError) as error:
            raise Failed("unsupported", str(error)) from error
        if report.findings:
            found = [_found(finding, one) for finding in report.findings]
            first = found[0]
            more = f" ({len(found) - 1} further findings)" if len(found) > 1 else ""
            raise Failed(
                of_finding(first["kind"]), first["message"] + more, line=first["line"], findings=found[:_MAX_FINDINGS]
            )
        fresh -= {a.value for a in one.arguments if a.kind == "tensor"}


def _kernel(text: str, launch: KernelLaunch) -> CompiledKernel:
    """What the checks of a launch look at, read from the PTX itself."""
    entries = _valid(entry_parameters, text)
    if launch.entry not in entries:
        raise Failed("invalid", f"no kernel {launch.entry[:60]!r} in its PTX: {', '.join(entries) or 'none'}")
    return CompiledKernel(
        launch.entry, launch.label, "cuda", "sm_80", text, f"{launch.entry}\n{text}",
        _valid(static_shared_bytes, text).get(launch.entry, 0), None, 0, "", 0.0, False, entries[launch.entry],
    )  # fmt: skip


def _argument(argument: Argument, buffers: Buffers) -> Any:
    return buffers.tensors[argument.value] if argument.kind == "tensor" else argument.value


def _set_constants(
    description: Description, programs: Sequence[Program], kernels: Sequence[CompiledKernel], buffers: Buffers
) -> None:
    device = _Programs(dict(zip(description.programs, programs, strict=True)))
    try:
        variables = Variables(device, description.text, description.macros)
        for kernel in kernels:
            variables.add(kernel)
        for name, argument in description.constants.items():
            variables[name].set(_argument(argument, buffers))
    except ArgumentError as error:
        raise Failed("not_loaded", str(error)) from error


def _found(finding: Any, launch: KernelLaunch) -> dict:
    """A finding as plain values, with tensors by their names and files without their folders."""
    message = finding.message
    for path in filter(
        None, (finding.source, finding.kernel_source, finding.other_source, finding.other_kernel_source)
    ):
        message = message.replace(path, Path(path).name)
    names = {str(i): one.value for i, one in enumerate(launch.arguments) if one.kind == "tensor"}
    message = re.sub(r"\bargument (\d+)", lambda match: names.get(match[1], match[0]), message)
    return {
        "kind": finding.kind,
        "message": message,
        "line": _line(finding),
        "block": list(finding.block),
        "thread": list(finding.thread),
        "count": finding.count,
    }


def _line(finding: Any) -> str:
    return f"{Path(finding.kernel_source).name}:{finding.kernel_line}" if finding.kernel_line else ""


def _compared(case: Any, buffers: Buffers, when: str) -> Any:
    """The check of the outputs; raises Failed for the first thing that is wrong with the buffers."""
    written = buffers.guards_written()
    if written:
        raise Failed("guard_written", f"memory around {', '.join(written)} was written ({when})")
    changed = buffers.changed_inputs()
    if changed:
        name, place, count = changed
        remedy = "declare it in_place if that is meant"
        raise Failed("changed_input", f"{name}[{place}] was written, {count:,} elements of it ({when}); {remedy}")
    check = case.check(buffers.out)
    if check.ok:
        return check
    fields = {"place": check.place, "max_error": check.max_error, "bound": check.bound}
    kept = buffers.unwritten()
    if kept:
        name, place, count, numel = kept
        message = f"{name}[{place}] is as it was before the launch, with {count:,} of {numel:,} elements ({when})"
        raise Failed("unwritten", message, **fields)
    raise Failed(
        "wrong_result", f"{check.place}; error {check.max_error:.3g}, bound {check.bound:.3g} ({when})", **fields
    )


def warm_up() -> None:
    """What the first candidate would wait for."""
    x = torch.randn(4, 4).half()
    torch.softmax(x.double(), -1).square().mean().sqrt()
    torch.softmax(torch.empty(2, 2, device="meta"), -1)
