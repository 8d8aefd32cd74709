"""Untrusted side of the judge: loads a candidate, and describes its launches for given shapes as plain JSON."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workbench.base import by_value
from workbench.base.callers import at_user_line, line_of
from workbench.driver.triton.calls import is_jit
from workbench.errors import ArgumentError, CompileError, ConfigurationError, WorkbenchError
from workbench.judge.description import argument_record
from workbench.judge.foreign_files import shown
from workbench.ops.files import run_file
from workbench.ops.selection import fitted
from workbench.ops.tensors.checks import dtype_name
from workbench.ops.tensors.run_tensors import name_of
from workbench.ops.values import JudgedCase
from workbench.ops.variant import CudaVariant
from workbench.toolchain.source import read_source

DECLARE = "declare"
"""The function of a candidate's file that declares its variants: ``def declare(op): op.cuda(...)``."""

ALL = "all"

_FIRST_KERNEL = """
#include <cuda_fp16.h>
extern "C" __global__ void first_kernel(__half *x) { x[threadIdx.x] = __float2half(sqrtf(x[0])); }
"""


class NotLoaded(WorkbenchError):
    """A candidate's file that has nothing to judge in it."""


class NoKernel(NotLoaded):
    """A candidate's file that is Python code without a kernel."""


def describe(request: Mapping[str, Any], answer: Callable[[dict], None]) -> None:
    """Answer with the variants, then with a description for each variant with kernels, case and configuration.

    ``request``: ``path`` (sys.path), the working ``folder``, ``cases`` as (name, case by value), the names of variants
    and cases that are ``left_out``, ``config`` (None for the default, or `ALL`), and what to load: ``variants`` by
    value; with ``source`` CUDA C++ instead of that of the one; or ``op`` (what makes it, by value), ``candidate``, a
    Python file, and the ``launches`` of the op's variants, without their kernels. All code of the candidate runs here.
    """
    sys.path[:] = request["path"]
    try:
        os.chdir(request["folder"])
        variants = list(_variants(request))
        cases = {name: by_value.loads(case) for name, case in request["cases"]}
        answer({"variants": [[one.name, one.language] for one in variants]})
    except BaseException as error:  # sys.exit() too
        answer(_failure(error))
        return
    for variant in variants:
        if not variant.compiles:
            continue
        for name, given in cases.items():
            if (variant.name, name) in request.get("left_out", ()):
                continue
            about = {"variant": variant.name, "case": name}
            try:
                case = given if request.get("op") is not None else fitted(variant, given)
                about["case"] = case.name
                problem = variant.machine_problem(case)
                configs = list(_configs(variant, problem, request["config"]))
            except BaseException as error:
                answer(about | {"config": {}} | _failure(error))
                continue
            for config in configs:
                try:
                    found = _described(variant, config, case, views=config == configs[0])
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
    op = by_value.loads(request["op"])()
    path = Path(request["candidate"])
    module = run_file(path)
    declare = getattr(module, DECLARE, None)
    if callable(declare):
        declare(op)
    else:
        kernel = getattr(module, op.name, None)
        if callable(kernel) and not is_jit(kernel):
            raise _host_code(op.name, path.name, [name for name, one in vars(module).items() if is_jit(one)])
        _declare_kernel(op, kernel, by_value.loads(request["launches"]), path.name)
    yield from (one for one in op.variants if one.name != op.reference)


def _host_code(name: str, file: str, kernels: Sequence[str]) -> WorkbenchError:
    """Return the error for a file whose function of the op's name runs on the host, beside kernels of other names."""
    text = f"{name} in {file} is a Python function, which runs on the host; the judge launches kernels itself. "
    if kernels:
        first = f"def {DECLARE}(op): op.triton({kernels[0]}, grid=..., args=...)"
        return NotLoaded(f"{text}Name the kernel {name}, or declare how {' or '.join(kernels)} is launched: {first}")
    return NoKernel(
        f"{text}Plain torch is not judged, and {file} has no kernel: give it the CUDA C++ text of one, or a "
        f"@triton.jit function, under the name {name}. Python code that launches kernels is judged as KernelBench's "
        "ModelNew: workbench check --kernelbench PROBLEM.py SOLUTION.py"
    )


def _declare_kernel(op: Any, kernel: Any, launches: Sequence[tuple[str, Mapping[str, Any]]], file: str) -> None:
    """Declare the candidate's kernel of the op's name, launched as the op's own variant in that language is.

    ``kernel`` is CUDA C++ text or a ``@triton.jit`` function. Raises NotLoaded for anything else, and unless the op has
    one variant of one kernel in that language.
    """
    language = "cuda" if isinstance(kernel, str) else "triton" if is_jit(kernel) else None
    if language is None:
        found = "nothing" if kernel is None else f"a {type(kernel).__name__}"
        raise NotLoaded(
            f"{file} has no function {DECLARE}(op), which declares its variants with op.cuda(...), op.triton(...), "
            f"and {op.name} in it is {found}, not the CUDA C++ text of a kernel or a @triton.jit function"
        )
    given = [one for of, one in launches if of == language]
    if len(given) != 1:
        raise NotLoaded(
            f"{op.name} has {len(given)} variants of one kernel in {language}, where the launch of {op.name} in {file} "
            f"would be that of the only one: declare the launch, def {DECLARE}(op): op.{language}({op.name}, grid=...)"
        )
    chosen = dict(given[0])
    if language == "cuda":
        chosen["kernel"] = op.name if re.search(rf"\b{op.name}\s*\(", kernel) else chosen["kernel"]
    elif hasattr(kernel, "configs"):  # its autotuner's
        chosen |= {"tune": {}, "default": None}
    getattr(op, language)(kernel, **chosen)


def _configs(variant: Any, problem: Any, wanted: Any) -> list[dict]:
    if wanted == ALL:
        found = variant.configurations(problem)
        if not found:
            variant.default_config(problem)  # says which rules no configuration keeps
        return found
    return [variant.default_config(problem) if wanted is None else dict(wanted)]


def _described(variant: Any, config: Mapping[str, Any], case: JudgedCase, *, views: bool) -> dict:
    """Return the record of a `Description`.

    With ``views`` it has the launches for each view of the inputs and for other sizes, too, except those that the
    declaration refuses.
    """
    programs: list[str] = []
    found = _one_described(variant, config, case, programs)
    if views and "failed" not in found:
        found["views"] = {}
        for name, viewed in case.viewed().items():
            try:
                launches = _one_described(variant, config, viewed, programs)
            except ArgumentError:
                continue  # it refuses them by name
            if "failed" in launches:
                return launches
            found["views"][name] = launches
        found["sizes"] = dict(_at_other_sizes(variant, case, programs))
    return {**found, "programs": programs}


def _at_other_sizes(variant: Any, case: JudgedCase, programs: list[str]) -> Iterator[tuple[str, dict]]:
    """Yield the launches for a case at other sizes, each with the default configuration there."""
    for name, other in case.reshaped().items():
        try:
            config = variant.default_config(variant.machine_problem(other))
            launches = _one_described(variant, config, other, programs)
        except WorkbenchError:
            continue  # it refuses them: no configuration keeps its rules, or its grid has no block
        if "failed" not in launches:
            yield name, launches


def _one_described(variant: Any, config: Mapping[str, Any], case: Any, programs: list[str]) -> dict:
    """Describe the launches for a case, and append its programs to ``programs``."""
    problem = variant.machine_problem(case, config)
    kernels = _kernels(variant, config, problem)
    first, second = (_launches(variant, config, problem, case.inputs(problem, "meta"), kernels) for _ in range(2))
    if first != second:
        return {
            "failed": "unstable",
            "message": f"{variant} gives two launches when it is asked twice: {second}"[:2000],
        }
    programs += [one for one in dict.fromkeys(kernel.ptx for kernel in kernels) if one not in programs]
    for one, kernel in zip(first["launches"], kernels, strict=True):
        one["program"] = programs.index(kernel.ptx)
    return first


_made: dict[Any, tuple] = {}
"""Kernels of the variants in CUDA C++: most cases and sizes have the same."""


def _kernels(variant: Any, config: Mapping[str, Any], problem: Any) -> tuple:
    if not isinstance(variant, CudaVariant):
        return variant.kernels(config, problem, problem.arch, machine_code=False)
    variant.check(config, problem)
    shared = tuple(step.shared_bytes(config, problem) for step in variant.steps)
    key = variant, problem.arch, variant.code_key(config, problem), shared
    if key not in _made:
        _made[key] = variant.kernels(config, problem, problem.arch, machine_code=False)
    return _made[key]


def _launches(variant: Any, config: Mapping[str, Any], problem: Any, tensors: Any, kernels: tuple) -> dict:
    """Return the launches for tensors without memory, with the names of the tensors in their place."""
    made: dict[str, torch.Tensor] = {}
    if variant.workspace is not None:
        held = variant.workspace(config, problem, tensors)
        made, variant = vars(held), replace(variant, workspace=lambda *_: held)
    workspace = [
        {
            "name": name,
            "dtype": dtype_name(one.dtype),
            "shape": list(one.shape),
            "fill": variant.filled(name, one),
        }
        for name, one in made.items()
    ]
    known = {**tensors.named(), **made}

    def told(value: Any) -> str | None:
        if not isinstance(value, torch.Tensor):
            return None
        name = name_of(value, known)
        if name is None:
            if value.is_meta:
                raise ArgumentError(str(variant), "a tensor without storage", ", ".join(known), "Pass one of these.")
            name = f"constant {len(workspace)}"
            known[name] = value
            content = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            record = {"name": name, "dtype": dtype_name(value.dtype), "shape": list(value.shape)}
            workspace.append(record | {"fill": [content.hex()]})
        return name

    launches = [
        {
            "entry": kernel.name,
            "label": kernel.label,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_bytes": launch.shared_bytes or kernel.dynamic_shared_bytes,
            "scratch_bytes": kernel.scratch_bytes,
            "arguments": [argument_record(one, told) for one in launch.arguments],
            "names": [one.name if one.name.isidentifier() else f"p{at}" for at, one in enumerate(kernel.parameters)],
        }
        for kernel, launch in zip(kernels, variant.launches(config, problem, tensors, kernels), strict=True)
    ]
    constants = variant.constant_values(config, problem, tensors)
    return {
        "launches": launches,
        "workspace": workspace,
        "constants": {name: argument_record(one, told) for name, one in constants.items()},
        "text": variant.unit.text if constants else "",
        "macros": dict(variant.macros(config, problem)) if constants else {},
        "contiguous": list(variant.copied),
    }


def _refused(error: CompileError, variant: Any, config: Mapping[str, Any], problem: Any) -> str:
    """Return the compiler's message, without the text of files that are not the candidate's."""
    if not isinstance(variant, CudaVariant):
        return str(error)
    unit = read_source(variant.text or variant.source)
    return shown(error, unit, variant.include_dirs, variant.macros(config, problem))


def _failure(error: BaseException) -> dict:
    """Return the outcome and the message for an error that the candidate's code raised."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        return {"failed": "memory", "message": str(error) or "no memory is left, while it was loaded or described"}
    if isinstance(error, CompileError):
        return {"failed": "not_compiled", "message": str(error)}
    if isinstance(error, ConfigurationError):
        return {"failed": "unsupported", "message": str(error)}
    if isinstance(error, SystemExit):
        return {"failed": "not_loaded", "message": f"it calls sys.exit({error.code!r})"}
    if isinstance(error, NoKernel):
        return {"failed": "no_kernel", "message": str(error)}
    found = line_of(error)
    return {"failed": "not_loaded", "message": at_user_line(error), "line": found.place if found is not None else ""}


def warm_up(folder: Path) -> None:
    """Import the compilers and compile a kernel in ``folder``, so that no candidate waits for that."""
    import triton.backends.nvidia.compiler
    import triton.compiler  # noqa: F401

    import workbench.toolchain.triton_aot  # noqa: F401
    from workbench.toolchain import nvrtc_client
    from workbench.toolchain.cuda import compile_cuda

    before = os.environ.get("WORKBENCH_CACHE")
    os.environ["WORKBENCH_CACHE"] = str(folder)  # the user's may have it compiled
    try:
        with contextlib.suppress(WorkbenchError):  # a candidate's own compilation reports what is missing
            compile_cuda(_FIRST_KERNEL, "first_kernel")
    finally:
        nvrtc_client.stop()  # a candidate gets a server of its own
        del os.environ["WORKBENCH_CACHE"]
        if before is not None:
            os.environ["WORKBENCH_CACHE"] = before
