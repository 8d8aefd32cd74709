"""Trusted side of the judge: makes inputs from seeds, runs a description in the PTX machine, and compares.

Only the candidate's PTX is executed here, by the machine.
"""

from __future__ import annotations

import functools
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from workbench.analysis.exact import SECONDS, ExactAnswer, Side
from workbench.base import by_value
from workbench.base.busy import OwnDeadline
from workbench.errors import ArgumentError, WorkbenchError
from workbench.judge.buffers import Buffers
from workbench.judge.changed_cases import ChangedCases
from workbench.judge.description import Argument, Description, KernelLaunch, MapOf
from workbench.judge.exact import EXACT, exact_answer
from workbench.judge.launching import ORDERS, USUAL, Failed, RunOrder, kernel_of, launch, refuse, valid
from workbench.judge.notes import notes_on_code
from workbench.judge.outcomes import OK
from workbench.judge.proving import proved
from workbench.judge.stage_seconds import StageSeconds
from workbench.launch.variables import Variables
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.elsewhere import Meaningless
from workbench.ops.declared.shapes import SIZES
from workbench.ops.error_causes import causes_of, is_float32
from workbench.ops.exact_runs import put
from workbench.ops.tensors.checks import real_parts
from workbench.ops.values import Check, Launch
from workbench.ptx import Program
from workbench.ptx.proved import ProvedAccesses
from workbench.ptx.steering import is_steered
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain.kernel import CompiledKernel


def run(request: Mapping[str, Any], answer: Callable[[dict], None]) -> None:
    """Answer with the fields of a verdict; or with ``error``, where the op itself fails.

    ``request``: ``path`` (sys.path), ``case`` by value, ``seeds``, and ``description`` with its ``config``,
    ``seconds``, ``memory`` in bytes, ``schedules`` (a number), ``exact`` and the ``formula`` in plain torch that it
    compares with; without a description whether the reference's answer is the same for all seeds, as ``fixed``.
    With ``changes``, names of `workbench.ops.declared.elsewhere.CHANGES` and of
    `workbench.ops.declared.shapes.SIZES`, the case is judged at other values or sizes, and the answer has the
    fields of a verdict, or ``meaningless`` and why, for each name. With ``prove`` the kernels are proved instead,
    and the answer has the ``proofs``. A variant in plain torch comes by value, ``variant``, instead of a
    description, with its ``config``.
    """
    sys.path[:] = request["path"]
    if "changes" in request:
        _judge_changes(request, answer)
        return
    if "prove" in request:
        answer(_proved(request))
        return
    try:
        cases = _cases(request["case"], request["seeds"])
        if request.get("description") is None and request.get("variant") is None:
            answers = [case.reference() for case in cases]
            answer({"fixed": all(_same(answers[0], one) for one in answers[1:])})
            return
        _seconds.clear()
        with _seconds.of("right"):
            for case in cases:
                case.reference()
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    fields: dict[str, Any] = {}
    deadline = OwnDeadline(request["seconds"])
    try:
        checks = _checks if request.get("variant") is None else _checks_of_values
        _judge(functools.partial(checks, cases, request), fields.update)
        if request.get("exact") and fields.get("outcome") == OK:
            found = _exact(cases, request, deadline)
            fields |= {"exact": str(found), "exact_difference": [*found.difference]}
    finally:
        answer(fields | {"stage_seconds": dict(_seconds)})


def _judge_changes(request: Mapping[str, Any], answer: Callable[[dict], None]) -> None:
    fields: dict[str, dict[str, Any]] = {}
    try:
        description = valid(Description.of, request["description"])
        for name in request["changes"]:
            fields[name] = {}
            _judge(functools.partial(_changed, request, description, name), fields[name].update)
    finally:
        answer(fields)
    _changed_cases.return_memory()


def _proved(request: Mapping[str, Any]) -> dict[str, Any]:
    """Prove the kernels of a description for the sizes that its launches stand for."""
    try:
        description = valid(Description.of, request["description"])
        case = _case(request["case"])
        shapes = {"": case.inputs(case.problem(request["config"]), "meta").named()}
        for name, other in case.reshaped().items() if description.sizes else ():
            if name in description.sizes:
                shapes[name] = other.inputs(other.problem(), "meta").named()
        return {"proofs": proved(description, _loaded(tuple(description.programs)), shapes, case.facts)}
    except (Failed, WorkbenchError) as error:
        return {"proofs": [], "message": str(error)}


def _judge(checks: Callable[[Notes], Iterator[Check]], answer: Callable[[dict], None]) -> None:
    """Answer with the fields of a verdict on the worst of the ``checks``, or of the failure that ended them."""
    try:
        notes: Notes = {}
        worst = max(checks(notes), key=lambda check: check.max_error / check.bound if check.bound else 0.0)
        answer({"outcome": OK, "max_error": worst.max_error, "bound": worst.bound, "notes": list(notes.values())})
    except Meaningless as reason:
        answer({"meaningless": str(reason)})
    except Failed as failure:
        answer(failure.fields)
    except Exception as error:
        message = next(iter(str(error).splitlines()), "")
        if isinstance(error, RecursionError):
            answer({"outcome": "invalid", "message": message})
        elif isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
            answer({"outcome": "memory", "message": message or "no memory is left"})
        else:  # nobody has thought of that: a process that has seen it does not go on
            answer({"outcome": "crashed", "message": f"while its PTX was run: {type(error).__name__}: {message}"})
            raise


@functools.lru_cache(maxsize=64)
def _case(content: bytes) -> Any:
    return by_value.loads(content)


_recent: dict[tuple[bytes, int], Any] = {}
"""Cases of the latest request by content and seed: later requests often have the same inputs."""


_changed_cases = ChangedCases()

_seconds = StageSeconds()
"""Seconds of the present request."""


def _cases(content: bytes, seeds: Sequence[int]) -> list[Any]:
    """Return the case with each of the seeds; one that the latest request had keeps its reference's answer."""
    kept = {seed: _recent.get((content, seed)) for seed in seeds}
    _recent.clear()
    for seed, case in kept.items():
        _recent[content, seed] = _case(content).override(seed=seed) if case is None else case
    return [_recent[content, seed] for seed in seeds]


class _Loaded:
    """The programs of a description, its kernels, and the accesses that proofs cover (``covered``, pickled)."""

    def __init__(self, texts: tuple[str, ...], covered: bytes):
        self.covered: tuple[ProvedAccesses, ...] = pickle.loads(covered) if covered else ()
        self.programs = [valid(Program, text) for text in texts]
        self._texts = texts
        self._kernels: dict[tuple[int, str, str, int, int], CompiledKernel] = {}

    @functools.cached_property
    def steered(self) -> bool:
        """True if a value that one of the kernels loads may decide what it does next."""
        return any(is_steered(program.module, name) for program in self.programs for name in program)

    def kernel(self, one: KernelLaunch) -> CompiledKernel:
        """Return the kernel of a launch; parameters behind its arguments are scratch memory that Triton appended."""
        passed = len(one.arguments)
        known = one.program, one.entry, one.label, passed, one.scratch_bytes
        if known not in self._kernels:
            kernel = kernel_of(self._texts[one.program], one.entry, one.label, self.programs[one.program].module)
            behind = tuple(replace(parameter, scratch=True) for parameter in kernel.parameters[passed:])
            parameters = kernel.parameters[:passed] + behind
            self._kernels[known] = replace(kernel, parameters=parameters, scratch_bytes=one.scratch_bytes)
        return self._kernels[known]


# One at a time: the requests about a candidate's case come one after the other, and a program may take much memory.
_decoded = functools.lru_cache(maxsize=1)(_Loaded)


def _loaded(texts: tuple[str, ...], covered: bytes = b"") -> _Loaded:
    """Return the programs, decoded once for all requests about a case, without memory that kernels took by malloc."""
    loaded = _decoded(texts, covered)
    for program in loaded.programs:
        program.forget_heap()
    return loaded


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return all(_same(answer, other[name]) for name, answer in one.items())
    return torch.equal(real_parts(one).double().nan_to_num(), real_parts(other).double().nan_to_num())


Notes = dict[object, str]
"""Notes of all runs by subject, so that each appears once."""


def _checks(cases: Sequence[Any], request: Mapping[str, Any], notes: Notes) -> Iterator[Check]:
    """Yield the check of each run of a description, and add to the notes. Raises Failed for the first that is wrong."""
    deadline = OwnDeadline(request["seconds"])
    with _seconds.of("launches"):
        description = valid(Description.of, request["description"])
        for one in (description, *description.views.values(), *description.sizes.values()):
            _check_room(one, request["memory"])
        loaded = _loaded(tuple(description.programs), request["covered"])
    problem = _case(request["case"]).problem(request["config"])
    for case, seed in zip(cases, request["seeds"], strict=True):
        for index, order in enumerate(ORDERS):
            with _seconds.of("launches"):
                buffers = Buffers(case.inputs(problem), description.workspace, index, description.contiguous)
            notes |= _launch_all(description, loaded, buffers, order, deadline)
            yield _compared(case, buffers, f"seed {seed}, {order.words}", description.programs)
    for order in map(RunOrder.scheduled, range(request.get("schedules", 0))):
        buffers = Buffers(cases[0].inputs(problem), description.workspace, 0, description.contiguous)
        _launch_all(description, loaded, buffers, order, deadline)
        yield _compared(cases[0], buffers, f"seed {request['seeds'][0]}, {order.words}", description.programs)
    notes |= {note: note for note in notes_on_code(description.programs, is_float32(buffers.run.named().values()))}
    yield from _checks_of_views(cases[0].viewed(), request, description, loaded, deadline)


def _exact(cases: Sequence[Any], request: Mapping[str, Any], whole: OwnDeadline) -> ExactAnswer:
    """Return whether the kernels of a description are the same computation as the reference.

    What is left of the ``whole`` request's time limits the explanation of a difference.
    """
    if request.get("description") is None:
        return ExactAnswer.without("a variant in plain torch has no kernel")
    description = valid(Description.of, request["description"])
    loaded, deadline = _loaded(tuple(description.programs)), OwnDeadline(request["seconds"])
    problem = _case(request["case"]).problem(request["config"])

    def run(case: Any, replaced: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        tensors = case.inputs(problem)
        put(replaced, tensors.named())
        buffers = Buffers(tensors, description.workspace, 0, description.contiguous)
        _launch_all(description, loaded, buffers, EXACT, deadline)
        return buffers.run.named()

    def remember(side: Side) -> None:
        kernels = [loaded.programs[one.program][one.entry] for one in description.launches]
        passed = (argument.value for one in description.launches for argument in one.arguments)
        side.take_kernels(kernels, (number for number in passed if isinstance(number, float)))

    formula = None if request["formula"] is None else by_value.loads(request["formula"])
    return exact_answer(cases, run, remember, formula, request["config"], min(SECONDS, whole.left))


def _changed(request: Mapping[str, Any], description: Description, name: str, notes: Notes) -> Iterator[Check]:
    """Yield the check of one run at the changed inputs, or at other sizes, of a case.

    Raises Meaningless where there is nothing to compare with, and Failed if the run or its result is wrong.
    """
    content, [seed] = request["case"], request["seeds"]
    launches = description.sizes.get(name) if name in SIZES else description
    if launches is None:
        raise Meaningless("its declaration refuses these sizes")
    changed = _changed_cases.get(content, _case(content).override(seed=seed), name)
    index = len(ORDERS) - 1
    order, loaded = ORDERS[index], _loaded(tuple(description.programs), request["covered"])
    if name not in SIZES and not loaded.steered:
        order = order.unchecked()  # the checks have seen the same way through the code at the case's own inputs
    problem = changed.problem() if isinstance(changed, DeclaredCase) else _case(content).problem(request["config"])
    buffers = Buffers(changed.inputs(problem), launches.workspace, index, launches.contiguous)
    notes |= _launch_all(launches, loaded, buffers, order, OwnDeadline(request["seconds"]))
    yield _compared(changed, buffers, f"seed {seed}, {order.words}", description.programs)


def _checks_of_values(cases: Sequence[Any], request: Mapping[str, Any], _: Notes) -> Iterator[Check]:
    """Yield the check of each run of a variant in plain torch. Raises Failed for the first that goes wrong."""
    variant, config = by_value.loads(request["variant"]), request["config"]
    for case, seed in zip(cases, request["seeds"], strict=True):
        problem = case.problem(config)
        buffers = Buffers(tensors := case.inputs(problem), (), 0)
        try:
            variant.run(config, problem, tensors)
        except WorkbenchError as error:
            raise Failed("unsupported", str(error)) from error
        yield _compared(case, buffers, f"seed {seed}", ())


def _checks_of_views(
    views: Mapping[str, Any],
    request: Mapping[str, Any],
    description: Description,
    loaded: _Loaded,
    deadline: OwnDeadline,
) -> Iterator[Check]:
    """Yield the check of a run for each view of the inputs that is described; its failures name the view."""
    for name, viewed in views.items():
        one = description.views.get(name)
        if one is None:
            continue
        try:
            tensors = viewed.inputs(viewed.problem(request["config"]))
            buffers = Buffers(tensors, one.workspace, 0, one.contiguous)
            _launch_all(one, loaded, buffers, USUAL, deadline)
            yield _compared(viewed, buffers, f"seed {request['seeds'][0]}, {USUAL.words}", one.programs)
        except Failed as failure:
            told = f"{failure.fields['message']} (with its inputs {name})"
            raise Failed(**{**failure.fields, "message": told}) from failure


def _check_room(description: Description, memory: int) -> None:
    """Raise Failed for workspaces of more than so many bytes."""
    room = memory
    for part in description.workspace:
        room -= math.prod(part.shape) * getattr(torch, part.dtype).itemsize
        if room < 0:
            limit = f"more than the {memory >> 20:,} MiB that are allowed"
            shape = ", ".join(map(str, part.shape))
            raise Failed("memory", f"its workspace {part.name} is {part.dtype}[{shape}], {limit}")


def _check_names(description: Description, buffers: Buffers) -> None:
    """Raise Failed unless every tensor that is named exists, and every output is passed to a kernel."""
    own = [part.name for part in description.workspace]
    if len(set(own)) < len(own) or buffers.run_names & set(own):
        raise Failed("invalid", f"a name of workspace is used twice, or is that of a tensor: {', '.join(own)}")
    passed = description.passed()
    for name in {*passed, *filter(None, (one.name for one in description.constants.values()))}:
        if name not in buffers.tensors:
            raise Failed("invalid", f"no tensor has the name {name[:60]!r}")
    for name in buffers.not_passed(passed):
        twice = sorted({one for one in passed if passed.count(one) > 1})
        if twice:
            raise Failed("aliased", f"{name} is passed to no kernel, but {', '.join(twice)} twice")
        raise Failed("unwritten", f"{name} is passed to no kernel")


class _Programs:
    """The device that `Variables` writes to: programs of this run alone."""

    def __init__(self, programs: Mapping[str, Program]):
        self._programs = programs

    def reset_variables(self, kernel: CompiledKernel) -> Program:
        """Return the program, whose variables were reset already."""
        return self._programs[kernel.ptx]

    def read_variable(self, kernel: CompiledKernel, symbol: str) -> bytes:
        """Return the content of a device variable."""
        return self._programs[kernel.ptx].variables[symbol].tobytes()

    def write_variable(self, kernel: CompiledKernel, symbol: str, content: bytes) -> None:
        """Write all bytes of a device variable."""
        self._programs[kernel.ptx].variables[symbol][:] = bytearray(content)


@_seconds.of("clean")
def _launch_all(
    description: Description, loaded: _Loaded, buffers: Buffers, order: RunOrder, deadline: OwnDeadline
) -> Notes:
    """Run every launch; return the notes. Raises Failed with what the machine found."""
    _check_names(description, buffers)
    for program in loaded.programs:
        program.reset_variables()
    kernels = [loaded.kernel(one) for one in description.launches]
    if description.constants:
        _set_constants(description, loaded.programs, kernels, buffers)
    fresh, notes = set(buffers.fresh), Notes()
    order = replace(order, options={**order.options, "proved": loaded.covered})
    for one, kernel in zip(description.launches, kernels, strict=True):
        names = [argument.name for argument in one.arguments]
        arguments = tuple(_argument(argument, buffers) for argument in one.arguments)
        given = Launch(one.grid, one.block, arguments, one.shared_bytes)
        program = loaded.programs[one.program]
        notes |= launch(program, kernel, given, names, fresh, order=order, deadline=deadline)
        fresh -= set(names)
    buffers.copy_back()
    return notes


def _argument(argument: Argument, buffers: Buffers) -> Any:
    if argument.kind == "map":
        return _map_of(argument.value, buffers.tensors[argument.value.tensor])
    return buffers.tensors[argument.value] if argument.kind == "tensor" else argument.value


def _map_of(given: MapOf, tensor: torch.Tensor) -> TensorMap:
    shape = (given.sizes, given.strides, given.box, given.steps)
    try:
        return TensorMap(given.element, tensor.data_ptr(), *shape, given.swizzle, given.fill, tensor, given.atom)
    except ArgumentError as error:
        raise Failed("unsupported", str(error)) from error


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


@_seconds.of("right")
def _compared(case: Any, buffers: Buffers, when: str, ptx: Sequence[str]) -> Any:
    """Return the check of the outputs. Raises Failed for the first thing that is wrong with the buffers."""
    written = buffers.guards_written()
    if written:
        raise Failed("guard_written", f"memory around {', '.join(written)} was written ({when})")
    changed = buffers.changed_inputs()
    if changed:
        element, count = changed
        remedy = "declare it in_place if that is meant"
        raise Failed("changed_input", f"{element} was written, {count:,} elements of it ({when}); {remedy}")
    check = case.check(buffers.run.out)
    if not check.ok:
        kept = buffers.unwritten()
        found = ""
        if kept:
            element, count, numel = kept
            found = f"{element} is as it was before the launch, with {count:,} of {numel:,} elements"
        refuse(check, when, found, causes_of(check, ptx, is_float32(buffers.run.named().values())))
    return check


def warm_up() -> None:
    """Run the operations of torch whose first call takes long, so that the first candidate need not wait for them."""
    x = torch.randn(4, 4).half()
    torch.softmax(x.double(), -1).square().mean().sqrt()
    torch.softmax(torch.empty(2, 2, device="meta"), -1)
