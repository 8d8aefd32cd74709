"""A built-in op's variants: what they launch is trusted, so that only their compiled code crosses between processes.

The process that compiles answers with `Code`; the trusted one makes a case's tensors from a seed, lets the variant
declare its launches for them, and runs the code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import torch

from workbench.base import by_value
from workbench.errors import WorkbenchError
from workbench.judge.buffers import BITS
from workbench.judge.description import Code
from workbench.judge.launching import ORDERS, Failed, kernel_of, launch, refuse, valid
from workbench.ops.values import Case, Check, Config
from workbench.ops.variant import Variant
from workbench.ptx import Program
from workbench.ptx.tensor_map import TensorMap


def fitted(variant: Variant, case: Case) -> Case:
    """The case; in the first layout or dtype of the variant, and with that in its name, if it does not read its own."""
    lacking = {rule.name for rule in variant.unsupported(case.problem())}
    firsts = {"layout": variant.layouts[0], "dtype": variant.dtypes[0]}
    changes = {name: first for name, first in firsts.items() if name in lacking}
    return case.override(name=" ".join([case.name, *changes.values()]), **changes) if changes else case


def code_record(variant: Variant, config: Mapping[str, Any], problem: Any) -> dict:
    """The `Code` of a configuration as plain values; of plain torch there is none."""
    torch_only = not variant.compiles
    kernels = () if torch_only else variant.kernels(config, problem, problem.arch, machine_code=False)
    programs = list(dict.fromkeys(kernel.ptx for kernel in kernels))
    return {
        "programs": programs,
        "kernels": [
            {
                "program": programs.index(kernel.ptx),
                "entry": kernel.name,
                "label": kernel.label,
                "parameters": list(kernel.parameter_names),
                "shared_bytes": kernel.dynamic_shared_bytes,
                "scratch_bytes": kernel.scratch_bytes,
            }
            for kernel in kernels
        ],
    }


def checks(cases: Sequence[Case], request: Mapping[str, Any]) -> Iterator[Check]:
    """The check of each run of a variant: for each case the last warp first and last, of plain torch once.

    ``request``: ``variant`` by value, ``config``, ``seconds``, and ``description``, the record of its `Code`. Raises
    Failed for the first run that goes wrong.
    """
    deadline = time.monotonic() + request["seconds"]
    variant, config = by_value.loads(request["variant"]), request["config"]
    try:
        variant.check(config, variant.machine_problem(cases[0], config))
    except WorkbenchError as error:
        raise Failed("unsupported", str(error)) from error
    code = _Runnable(valid(Code.of, request["description"])) if variant.compiles else None
    for case in cases:
        problem = variant.machine_problem(case, config)
        for last_warp_first in ORDERS if code is not None else (False,):
            tensors = case.inputs(problem)
            memory = _Memory(tensors)
            if code is None:
                variant.run(config, problem, tensors)
            else:
                code.run(variant, config, problem, tensors, last_warp_first=last_warp_first, deadline=deadline)
            when = f"seed {case.to_dict()['seed']}, {ORDERS[last_warp_first]}"
            yield _compared(case, tensors.out, memory, when, code.ptx if code is not None else ())


class _Runnable:
    """The programs of a `Code`, and its kernels with their parameters under the names that the source gives them."""

    def __init__(self, code: Code):
        self.ptx = code.programs
        self._programs = [valid(Program, text) for text in code.programs]
        self._kernels, self._program_of = [], [one.program for one in code.kernels]
        for one in code.kernels:
            kernel = kernel_of(code.programs[one.program], one.entry, one.label)
            scratch = len(kernel.parameters) - len(one.parameters)
            if scratch < 0:
                raise Failed("invalid", f"{one.label[:60]} has fewer parameters than names for them")
            names = (*one.parameters, *[""] * scratch)
            parameters = tuple(
                replace(parameter, name=name, scratch=not name)
                for parameter, name in zip(kernel.parameters, names, strict=True)
            )
            self._kernels.append(
                replace(
                    kernel,
                    parameters=parameters,
                    dynamic_shared_bytes=one.shared_bytes,
                    scratch_bytes=one.scratch_bytes,
                )
            )

    def run(
        self,
        variant: Variant,
        config: Config,
        problem: Any,
        tensors: Any,
        *,
        last_warp_first: bool,
        deadline: float,
    ) -> None:
        """Run every kernel with all checks. Of the real numbers of output and workspace nobody has written any."""
        written = [tensors.out]
        if variant.workspace is not None:
            workspace = variant.workspace(config, problem, tensors)
            variant = replace(variant, workspace=lambda *_: workspace)
            written += vars(workspace).values()
        fresh = {id(one) for one in written if one.is_floating_point() and one.numel()}
        try:
            launches = variant.launches(config, problem, tensors, tuple(self._kernels))
        except WorkbenchError as error:
            raise Failed("unsupported", str(error)) from error
        for program in self._programs:
            program.reset_variables()
        for kernel, index, one in zip(self._kernels, self._program_of, launches, strict=True):
            passed = dict(zip(kernel.parameter_names, one.arguments, strict=True))
            launch(
                self._programs[index],
                kernel,
                replace(one, shared_bytes=one.shared_bytes or kernel.dynamic_shared_bytes),
                [name if isinstance(value, torch.Tensor | TensorMap) else None for name, value in passed.items()],
                {name for name, value in passed.items() if id(value) in fresh},
                last_warp_first=last_warp_first,
                deadline=deadline,
            )
            fresh -= {id(value) for value in passed.values()}


class _Memory:
    """All memory of a run's tensors as it was before."""

    def __init__(self, tensors: Any):
        self._out = tensors.out
        self._held = {one.untyped_storage().data_ptr(): (name, one) for name, one in _named("", tensors)}
        self._before = {place: _bytes(one).clone() for place, (_, one) in self._held.items()}

    def changed(self) -> tuple[str, int] | None:
        """(name, bytes) of the first tensor whose memory is other than it was, beside the output."""
        for place, (name, one) in self._held.items():
            before = self._before[place]
            if place == self._out.untyped_storage().data_ptr():
                self._out_in(before := before.clone()).copy_(self._out)
            count = int((_bytes(one) != before).sum())
            if count:
                return name, count
        return None

    def unwritten(self) -> int:
        """How many elements of the output are as they were; of whole numbers, which may be right, all or none."""
        before = self._out_in(self._before[self._out.untyped_storage().data_ptr()])
        bits = BITS[before.itemsize]
        kept = int((self._out.view(bits) == before.view(bits)).sum())
        return kept if self._out.is_floating_point() or kept == self._out.numel() else 0

    def _out_in(self, content: torch.Tensor) -> torch.Tensor:
        """The output's place in other memory."""
        out = self._out
        empty = torch.empty(0, dtype=out.dtype)
        return empty.set_(content.untyped_storage(), out.storage_offset(), out.size(), out.stride())


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _named(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a value holds, with what each is called."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _named(f"{name}[{index}]", one)
    elif is_dataclass(value):
        for field, one in vars(value).items():
            yield from _named(f"{name}.{field}".lstrip("."), one)


def _compared(case: Case, out: torch.Tensor, memory: _Memory, when: str, ptx: Sequence[str]) -> Check:
    """The check of the output; raises Failed for the first thing that is wrong."""
    changed = memory.changed()
    if changed:
        raise Failed("changed_input", f"{changed[0]} is no output, and {changed[1]:,} bytes of its memory were written")
    check = case.check(out)
    if not check.ok:
        kept = memory.unwritten()
        unwritten = f"{kept:,} of {out.numel():,} elements of the output are as they were" if kept else ""
        refuse(check, when, unwritten, ptx)
    return check
