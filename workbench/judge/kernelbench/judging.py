"""``check_kernelbench``: judge if a solution in KernelBench's format is right and its own kernels do the work."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.analysis.exact import ExactAnswer
from workbench.base.argument_kinds import checked_kinds
from workbench.base.home import cache_part
from workbench.base.kept_entries import held, trim_entries
from workbench.base.processes.process import BadAnswer, ProcessEnded, ProcessTimeout
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.errors import ArgumentError
from workbench.judge.answers import verdict_of
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS, check_limits, checked_seeds
from workbench.judge.kernelbench.answered import AnsweredProblem, answered
from workbench.judge.kernelbench.compiled_reference import compiled_reference
from workbench.judge.kernelbench.nursery import CANDIDATE, COMPILE, REPLAY, SolutionNursery, sandboxed, shared
from workbench.judge.kernelbench.process import Candidate, NurseryCopy, Repeater
from workbench.judge.kernelbench.trial import SolutionTrial
from workbench.judge.launching import Failed
from workbench.judge.on_the_way import tell
from workbench.judge.one_thread import one_thread
from workbench.judge.outcomes import OK
from workbench.judge.proving import refuted, unproved
from workbench.judge.stage_seconds import StageSeconds
from workbench.judge.verdict import Judgement, Verdict
from workbench.toolchain import disk_cache

_CHECKS_PER_TRIM = 64  # trimming looks at every file of every solution


@checked_kinds
def check_kernelbench(
    problem: str | Path,
    solution: str | Path,
    *,
    full: bool = False,
    torch_compile: bool = True,
    model: str = DEFAULT_MODEL,
    seeds: int | Sequence[int] = SEEDS,
    seconds: float = SECONDS,
    memory_mib: int = MEMORY_MIB,
    elsewhere: bool = True,
    schedules: int = 0,
    sandbox: bool = False,
    prove: bool = False,
    exact: bool = False,
) -> Judgement:
    """Judge a solution in KernelBench's format without trusting it; no GPU is needed, and none is used.

    The solution runs in a process of its own on torch's simulated device, its kernels in CUDA C++ (``load_inline``) or
    Triton. ``ModelNew`` is made as ``Model`` is, with the weights of the same names and shapes. Nothing that this
    process says is believed: what it does to the device is recorded, and repeated with all checks in a process that the
    solution never enters, for inputs that it has not seen. Results, findings, counts and times are those of the
    repetition. The reference runs in float64 in the judge's process.

    A solution passes if its results are right for every seed, its inputs are unchanged, and its own kernels do the
    work: each call launches at least one, and a call in which launches do nothing gives other results. torch's
    operators may do the rest; the verdict lists them. Host code may go by shapes and by integer inputs, not by other
    values: then the record is right for one input alone.

    Args:
        problem: a file with ``Model``, ``get_inputs`` and ``get_init_inputs``; it is trusted.
        solution: a file with ``ModelNew``.
        full: judge at the problem's own sizes. Otherwise integers at the top level of its file are halved, the largest
            first, until inputs, weights and results take 64 MiB and a plain kernel 2^28 thread instructions; the
            verdict's config has the sizes used. A solution that fixes the sizes in its source needs ``full``.
        torch_compile: for a solution that passes, also predict the time of the reference under ``torch.compile``;
            this takes some ten seconds the first time for a problem.
        model: the GPU to simulate and to predict times for.
        seeds: number of seeds to draw, or the seeds of a verdict.
        seconds: limit of loading the solution, which may compile, and of each call, in seconds of CPU time; by the
            clock four times as much.
        memory_mib: memory of the device, and limit of the process beyond the memory that torch takes.
        schedules: also run each checked launch in so many other orders of its blocks and warps; results that change are
            a finding.
        elsewhere: after a solution passes, also judge it on the problem's inputs changed by each of
            `workbench.ops.declared.elsewhere.CHANGES`.
        prove: also prove the kernels of the checked launches, for all sizes that these stand for; see `check`.
        exact: also say of a solution that passes whether it is the same computation as ``Model``, by repeating its
            launches and operators on elements of a ring (docs/EXACT.md); it changes no outcome.
        sandbox: run the solution without network, with every file read-only and a private /tmp (bubblewrap); what it
            compiles is not kept.

    Raises:
        ArgumentError: a file that is not a problem, or arguments that cannot be used.
        NoSandbox: a sandbox cannot be made here; the message says why.
        MissingToolError: ``prove`` without Z3.
        WorkbenchError: a reference that fails.
    """
    check_limits(seconds, memory_mib)
    wanted = checked_seeds(seeds)
    path = Path(solution).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError("solution", repr(str(solution)), "a .py file with ModelNew", f"There is no {path}.")
    asked = answered(Path(problem).expanduser().absolute(), full, wanted)
    chosen = asked.problem
    began = time.monotonic()
    folder = _builds_of(path.read_bytes())
    options = {"model": model, "memory": memory_mib, "seconds": seconds, "folder": str(folder)}
    options |= {"schedules": schedules, "prove": prove}
    if prove:
        from workbench.proof.solver import require_solver

        require_solver()
    nursery = shared(model, memory_mib)
    with held(folder), nursery.lock, one_thread(), _processes(nursery, options, path, sandbox) as processes:
        about = {"variant": "ModelNew", "case": "smaller" if chosen.used else "full", "config": chosen.used}

        def verdicts(fields: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]] = ()) -> list[Verdict]:
            seeds = [one.seed for one in asked.answers]
            found = [verdict_of(chosen.path.stem, about, {**fields, "seeds": seeds}, time.monotonic() - began)]
            for one in wrong:
                case = {"case": f"{about['case']}, {one['change']}", "config": asked.small.problem.used}
                found.append(verdict_of(chosen.path.stem, about | case, {"seeds": seeds[-1:], **one}, 0.0))
            return found

        def told(stage: str, fields: Mapping[str, Any], wrong: Sequence[Mapping[str, Any]] = ()) -> None:
            tell(stage, *verdicts(fields, wrong))

        fields, wrong = _tried(asked, path, processes, told, elsewhere=elsewhere, full=full, exact=exact)
        if prove:
            wrong += _proved(fields, processes[1])
            told("proved", fields)
        copy = processes[0].copy
        copy.end()
        fields |= {"printed": copy.printed}
        if torch_compile and fields["outcome"] == OK:
            spent = StageSeconds(fields["stage_seconds"])
            fork = functools.partial(nursery.fork, COMPILE)
            with spent.of("fast"):
                fields |= {"reference": compiled_reference(chosen, model, seconds, fork)}
            fields |= {"stage_seconds": spent}
    found = verdicts(fields, wrong)
    digest = hashlib.sha256(chosen.text.encode()).hexdigest()
    return Judgement(chosen.path.stem, str(solution), tuple(found), str(chosen.path), digest)


@contextlib.contextmanager
def _processes(
    nursery: SolutionNursery, options: Mapping[str, Any], path: Path, sandbox: bool
) -> Iterator[tuple[Candidate, Repeater]]:
    """Yield the process of a solution and the one that repeats it, and end both."""
    seconds = options["seconds"]
    with contextlib.ExitStack() as stack:
        trusted = NurseryCopy(nursery, REPLAY, options)
        stack.callback(trusted.end)
        if sandbox:  # made after the trusted process, whose nursery has filled the cache by then
            readable = [Path.cwd(), path, path.parent]
            nursery = stack.enter_context(sandboxed(options["model"], options["memory"], readable))
            options = {**options, "folder": str(nursery.folder)}
        copy = NurseryCopy(nursery, CANDIDATE, options)
        stack.callback(copy.end)
        yield Candidate(copy, seconds), Repeater(trusted, seconds)


_trimming = itertools.cycle(range(_CHECKS_PER_TRIM))


def _builds_of(solution: bytes) -> Path:
    """Return the folder that keeps what a solution's process compiles, for its next judgement."""
    folder = cache_part("kernelbench", hashlib.sha256(solution).hexdigest()[:24])
    if next(_trimming) == 0:
        trim_entries(folder.parent, disk_cache.limit_bytes())
    return folder


def _proved(fields: dict[str, Any], repeater: Repeater) -> list[dict[str, Any]]:
    """Prove the kernels: add the proofs to the fields, and return those of a verdict if one is refuted."""
    seconds = StageSeconds(fields.get("stage_seconds", {}))
    try:
        with seconds.of("proved"):
            proofs = repeater.proofs()
    except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
        proofs = unproved(str(error))
    fields |= {"proofs": proofs, "stage_seconds": seconds}
    one = refuted(proofs) if fields["outcome"] == OK else None
    return [] if one is None else [one | {"change": "proof"}]


def _tried(
    asked: AnsweredProblem,
    path: Path,
    processes: tuple[Candidate, Repeater],
    told: Callable[..., None],
    *,
    elsewhere: bool,
    full: bool,
    exact: bool,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of a solution's verdict, and those of verdicts on changed inputs."""
    trial = SolutionTrial(
        asked.reference, *processes, lambda stage: told(stage, {"outcome": OK, "stage_seconds": trial.seconds})
    )
    seconds = trial.seconds
    wrong: list[dict[str, Any]] = []
    try:
        fields = trial.run(path, asked.answers)
        told("right", fields | {"stage_seconds": seconds})
        first = trial
        if elsewhere:
            trial = SolutionTrial(asked.small.reference, *processes)
            with seconds.of("elsewhere"):
                changed, wrong = _changed(asked, trial, path, must_fit=not full)
            fields |= changed
        if exact:
            answer = _exact(first, asked)
            fields |= {"exact": str(answer), "exact_difference": answer.difference}
        told("elsewhere", fields | {"stage_seconds": seconds}, wrong)
    except Failed as failure:
        fields = failure.fields
    except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
        outcome = {ProcessEnded: "crashed", ProcessTimeout: "timeout", BadAnswer: "invalid"}[type(error)]
        fields = {"outcome": outcome, "message": f"{trial.doing}: {error}"}
    return fields | {"stage_seconds": seconds}, wrong


def _exact(trial: SolutionTrial, asked: AnsweredProblem) -> ExactAnswer:
    try:
        return trial.exact(asked.answers)
    except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
        return ExactAnswer.without(f"on elements of a ring {error}")


def _changed(
    asked: AnsweredProblem, trial: SolutionTrial, path: Path, must_fit: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Try a solution that passes at small sizes, and there on changed inputs.

    Returns fields for its verdict, and those of verdicts on the inputs where it is wrong. Unless it ``must_fit``, it
    need not be right at small sizes: it may be made for the problem's own.
    """
    small = asked.small
    try:
        trial.run(path, [small.answer])
    except Failed as failure:
        sizes = ", ".join(f"{name}={size}" for name, size in small.problem.used.items()) or "its sizes"
        if not must_fit:
            return {"notes": [f"changed inputs were not tried: it is made for its sizes, not for {sizes}"]}, []
        message = f"right at the sizes used first, wrong at {sizes}: {failure}"
        named = {"outcome": "wrong_elsewhere", "change": "other sizes", "message": message}
        return {}, [failure.fields | named]
    right, wrong = trial.elsewhere(small.answer, small.changed)
    return {"elsewhere": right}, wrong
