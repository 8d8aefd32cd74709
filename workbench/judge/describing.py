"""The side that is not trusted: loads a candidate and says, as plain JSON, what it would launch for which shapes."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workbench.base import by_value
from workbench.errors import ArgumentError, CompileError, ConfigurationError, WorkbenchError
from workbench.judge import built_in
from workbench.judge.description import argument_record
from workbench.judge.foreign_files import shown
from workbench.judge.views import views_of
from workbench.ops.own.cuda import OwnCuda
from workbench.ops.own.files import run_file
from workbench.ops.own.op import OwnOp, OwnTorch
from workbench.ops.own.problem import Problem, Tensors
from workbench.ops.own.tensor_type import TensorType
from workbench.ops.variant import CudaVariant
from workbench.toolchain.source import read_source

DECLARE = "declare"
"""The function of a candidate's file that declares its variants: ``def declare(op): op.cuda(...)``."""

ALL = "all"


class NotLoaded(WorkbenchError):
    """A candidate's file that has nothing to judge in it."""


def describe(request: Mapping[str, Any], answer: Callable[[dict], None]) -> None:
    """Answer with the variants, then with a description for each variant, case and configuration.

    ``request``: ``path`` (sys.path), the working ``folder``, ``cases`` as (name, problem), of a built-in op (name,
    case), ``config`` (None for the default, or `ALL`), and what to load: ``variants`` by value; with ``source`` CUDA
    C++ instead of that of the one; or ``op`` (contract and cases by value) and ``candidate``, a Python file. Whatever
    the candidate's code does, it does it here.
    """
    sys.path[:] = request["path"]
    try:
        os.chdir(request["folder"])
        variants = list(_variants(request))
        answer({"variants": [[one.name, one.language] for one in variants]})
    except BaseException as error:  # sys.exit() too
        answer(_failure(error))
        return
    for variant in variants:
        if isinstance(variant, OwnTorch):
            continue
        for name, given in request["cases"]:
            case = None if isinstance(given, Problem) else built_in.fitted(variant, given)
            about = {"variant": variant.name, "case": name if case is None else case.name}
            try:
                problem = given if case is None else variant.machine_problem(case)
                configs = list(_configs(variant, problem, request["config"]))
            except BaseException as error:
                answer(about | {"config": {}} | _failure(error))
                continue
            for config in configs:
                try:
                    if case is None:
                        found = _described(variant, config, problem, views=config == configs[0])
                    else:
                        found = built_in.code_record(variant, config, variant.machine_problem(case, config))
                except CompileError as error:
                    found = {"failed": "not_compiled", "message": _refused(error, variant, config, problem)}
                except BaseException as error:
                    found = _failure(error)
                answer(about | {"config": config} | found)
    answer({"end": True})


def _variants(request: Mapping[str, Any]) -> Iterator[Any]:
    if request.get("op") is None:
        for content in request["variants"]:
            variant = by_value.loads(content)
            yield variant.with_source(request["source"]) if request.get("source") is not None else variant
        return
    contract, cases = by_value.loads(request["op"])
    for _, problem in request["cases"]:
        contract.remember(problem.arguments, problem.outputs)
    op = OwnOp(contract, None)
    op.cases = dict(cases)
    path = Path(request["candidate"])
    declare = getattr(run_file(path), DECLARE, None)
    if not callable(declare):
        raise NotLoaded(f"{path.name} has no function {DECLARE}(op), which declares its variants with op.cuda(...)")
    declare(op)
    yield from (one for one in op.variants if one.name != "torch")


def _configs(variant: Any, problem: Problem, wanted: Any) -> list[dict]:
    if wanted == ALL:
        found = variant.configurations(problem)
        if not found:
            variant.default_config(problem)  # says which rules no configuration keeps
        return found
    return [variant.default_config(problem) if wanted is None else dict(wanted)]


def _described(variant: Any, config: Mapping[str, Any], problem: Problem, *, views: bool) -> dict:
    """The record of a `Description`; with ``views`` of the inputs that the declaration does not refuse."""
    programs: list[str] = []
    found = _one_described(variant, config, problem, programs)
    if views and "failed" not in found:
        found["views"] = {}
        for name, viewed in views_of(problem, variant.declared.contract.in_place).items():
            try:
                launches = _one_described(variant, config, viewed, programs)
            except ArgumentError:
                continue  # it refuses them by name
            if "failed" in launches:
                return launches
            found["views"][name] = launches
    return {**found, "programs": programs}


def _one_described(variant: Any, config: Mapping[str, Any], problem: Problem, programs: list[str]) -> dict:
    """Describe the launches for a problem; its programs are added to those that are there."""
    kernels = variant.kernels(config, problem, problem.arch, machine_code=False)
    first, second = (_launches(variant, config, problem, kernels) for _ in range(2))
    if first != second:
        return {
            "failed": "unstable",
            "message": f"{variant} gives two launches when it is asked twice: {second}"[:2000],
        }
    programs += [one for one in dict.fromkeys(kernel.ptx for kernel in kernels) if one not in programs]
    for one, kernel in zip(first["launches"], kernels, strict=True):
        one["program"] = programs.index(kernel.ptx)
    return first


def _launches(variant: Any, config: Mapping[str, Any], problem: Problem, kernels: tuple) -> dict:
    """Launches with tensors as their names; the tensors have no memory."""
    names = variant.declared.names(config, problem)
    workspace = {
        name: (part.type(names), part.bounds[0] if part.kind == "full" else 0.0)
        for name, part in variant.declared.workspace.items()
    }
    made = types.SimpleNamespace(**{name: kind.empty("meta") for name, (kind, _) in workspace.items()})
    tensors = Tensors(
        {name: one.empty("meta") if isinstance(one, TensorType) else one for name, one in problem.arguments},
        {name: one.empty("meta") for name, one in problem.outputs},
        variant.declared.contract.in_place,
        made,
    )
    known = {id(one): name for part in (tensors.arguments, tensors.outputs, vars(made)) for name, one in part.items()}

    def name_of(value: Any) -> str | None:
        return known[id(value)] if isinstance(value, torch.Tensor) else None

    held = replace(variant, workspace=lambda *_: made)
    launches = [
        {
            "entry": kernel.name,
            "label": kernel.label,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": launch.shared_bytes or kernel.dynamic_shared_bytes,
            "arguments": [argument_record(one, name_of) for one in launch.arguments]
            + [["null", None]] * kernel.scratch_parameters,
        }
        for kernel, launch in zip(kernels, held.launches(config, problem, tensors, kernels), strict=True)
    ]
    constants = variant.constant_values(config, problem, tensors) if isinstance(variant, OwnCuda) else {}
    return {
        "launches": launches,
        "workspace": [
            {"name": name, "dtype": kind.dtype, "shape": list(kind.shape), "fill": fill}
            for name, (kind, fill) in workspace.items()
        ],
        "constants": {name: argument_record(one, name_of) for name, one in constants.items()},
        "text": variant.unit.text if constants else "",
        "macros": dict(variant.macros(config, problem)) if constants else {},
        "contiguous": list(variant.declared.contiguous),
    }


def _refused(error: CompileError, variant: Any, config: Mapping[str, Any], problem: Any) -> str:
    """The compiler's words, without the text of files that are not the candidate's."""
    if not isinstance(variant, CudaVariant):
        return str(error)
    unit = read_source(variant.text or variant.source)
    return shown(error, unit, variant.include_dirs, variant.macros(config, problem))


def _failure(error: BaseException) -> dict:
    """The outcome and the words for what the candidate's code raised."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        return {"failed": "memory", "message": str(error) or "no memory is left, while it was loaded or described"}
    if isinstance(error, CompileError):
        return {"failed": "not_compiled", "message": str(error)}
    if isinstance(error, ConfigurationError):
        return {"failed": "unsupported", "message": str(error)}
    if isinstance(error, SystemExit):
        return {"failed": "not_loaded", "message": f"it calls sys.exit({error.code!r})"}
    text = str(error) if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {error}"
    trace, own = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/workbench/" not in name and not name.startswith("<frozen"):
            own = f"{Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return {"failed": "not_loaded", "message": text, "line": own}


def warm_up() -> None:
    """What the first candidate would wait for."""
    import triton.backends.nvidia.compiler
    import triton.compiler  # noqa: F401

    import workbench.toolchain.cuda
    import workbench.toolchain.triton_aot  # noqa: F401
