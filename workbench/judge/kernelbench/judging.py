"""``check_kernelbench``: judge if a solution in KernelBench's format is right and its own kernels do the work."""

from __future__ import annotations

import functools
import hashlib
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workbench.base.argument_kinds import checked_kinds
from workbench.base.home import cache_part
from workbench.base.kept_entries import held, trim_entries
from workbench.base.processes.process import BadAnswer, ProcessEnded, ProcessTimeout
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.errors import ArgumentError
from workbench.judge.answers import failed, verdict_of
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS, check_limits, checked_seeds
from workbench.judge.kernelbench.answered import answered
from workbench.judge.kernelbench.compiled_reference import compiled_reference
from workbench.judge.kernelbench.nursery import CANDIDATE, COMPILE, shared
from workbench.judge.kernelbench.process import SolutionProcess
from workbench.judge.kernelbench.reference import Reference, ReferenceAnswer
from workbench.judge.launching import Failed
from workbench.judge.notes import notes_on_code
from workbench.judge.outcomes import OK, further, of_finding
from workbench.judge.verdict import Judgement
from workbench.ops.error_causes import causes_of, is_float32
from workbench.toolchain import disk_cache

_GRACE_SECONDS = 20.0
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
) -> Judgement:
    """Judge a solution in KernelBench's format without trusting it; no GPU is needed, and none is used.

    The solution runs in a process of its own on torch's simulated device, its kernels in CUDA C++ (``load_inline``) or
    Triton with all checks. ``ModelNew`` is made as ``Model`` is, with the weights of the same names and shapes. Each
    seed's inputs replace the last one's in the same storage. The reference runs in float64 in the judge's process.

    A solution passes if its results are right for every seed, its inputs are unchanged, and its own kernels do the
    work: each call launches at least one, and a call in which launches do nothing gives other results. torch's
    operators may do the rest; the verdict lists them.

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

    Raises:
        ArgumentError: a file that is not a problem, or arguments that cannot be used.
        WorkbenchError: a reference that fails.
    """
    check_limits(seconds, memory_mib)
    wanted = checked_seeds(seeds)
    path = Path(solution).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError("solution", repr(str(solution)), "a .py file with ModelNew", f"There is no {path}.")
    asked = answered(Path(problem).expanduser().absolute(), full, wanted)
    chosen = asked.problem
    started = time.monotonic()
    folder = _builds_of(path.read_bytes())
    options = {"model": model, "memory": memory_mib, "seconds": seconds, "folder": str(folder)}
    nursery = shared(model, memory_mib)
    with held(folder), nursery.lock:
        process = SolutionProcess(nursery, CANDIDATE, options)
        fields = _tried(_Trial(asked.reference, process, seconds), path, asked.answers)
        if torch_compile and fields["outcome"] == OK:
            fork = functools.partial(nursery.fork, COMPILE)
            fields |= {"reference": compiled_reference(chosen, model, seconds, fork)}
    about = {"variant": "ModelNew", "case": "smaller" if chosen.used else "full", "config": chosen.used}
    fields |= {"seeds": [one.seed for one in asked.answers]}
    verdict = verdict_of(chosen.path.stem, about, fields, time.monotonic() - started)
    digest = hashlib.sha256(chosen.text.encode()).hexdigest()
    return Judgement(chosen.path.stem, str(solution), (verdict,), str(chosen.path), digest)


_trimming = itertools.cycle(range(_CHECKS_PER_TRIM))


def _builds_of(solution: bytes) -> Path:
    """Return the folder that keeps what a solution's process compiles, for its next judgement."""
    folder = cache_part("kernelbench", hashlib.sha256(solution).hexdigest()[:24])
    if next(_trimming) == 0:
        trim_entries(folder.parent, disk_cache.limit_bytes())
    return folder


def _tried(trial: _Trial, path: Path, answers: Sequence[ReferenceAnswer]) -> dict[str, Any]:
    """Return the fields of a solution's verdict, and end its process."""
    try:
        fields = trial.run(path, answers)
    except Failed as failure:
        fields = failure.fields
    except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
        outcome = {ProcessEnded: "crashed", ProcessTimeout: "timeout", BadAnswer: "invalid"}[type(error)]
        fields = {"outcome": outcome, "message": f"{trial.doing}: {error}"}
    finally:
        trial.process.end()
    return fields | {"printed": trial.process.printed}


class _Trial:
    """The calls of one solution; ``doing`` names the present one for a failure's message."""

    def __init__(self, reference: Reference, process: SolutionProcess, seconds: float):
        self._reference, self.process, self._seconds = reference, process, seconds
        self.doing = "while it was loaded"
        self._missing: list[str] = []

    def run(self, path: Path, answers: Sequence[ReferenceAnswer]) -> dict[str, Any]:
        """Return the fields of a verdict that passes. Raises Failed for the first failure."""
        request = {"solution": str(path), "init": self._reference.init, "seed": self._reference.seed}
        loaded = self.process.answer(request | {"state": self._reference.state}, self._seconds)
        self._refuse(loaded)
        self._missing = [one for one in loaded.get("missing", ()) if isinstance(one, str)]
        worst, first = None, None
        results: list[list[torch.Tensor]] = []
        for number, answer in enumerate(answers):
            self.doing = f"in call {number + 1}, seed {answer.seed}"
            head, outputs = self._call(answer, idle=False)
            if number == 0:
                first = head
            self._require_launches(head, first)
            check = self._compared(answer, outputs, results, head)
            results.append(outputs)
            if worst is None or check.max_error * (worst.bound or 1.0) > worst.max_error * (check.bound or 1.0):
                worst = check
        self.doing = "in a call whose launches do nothing"
        self._require_use(answers[0])
        assert worst is not None
        assert first is not None
        return {
            "outcome": OK, "max_error": worst.max_error, "bound": worst.bound, "launches": first["launches"],
            "operators": _counts(first), "predicted_seconds": _number(first.get("seconds")),
            "notes": notes_on_code(_ptx(first), self._float32(answers[0])) + _texts(first.get("notes")),
        }  # fmt: skip

    def _call(self, answer: ReferenceAnswer, *, idle: bool) -> tuple[dict[str, Any], list[torch.Tensor]]:
        limit = self._seconds + _GRACE_SECONDS
        head = self.process.answer({"inputs": answer.inputs, "idle": idle}, limit)
        self._refuse(head, idle)
        if strange := head.get("strange"):
            raise Failed("invalid", f"ModelNew returns {strange!s:.200}: return torch.Tensor itself, no subclass")
        names = [str(dtype).removeprefix("torch.") for dtype in answer.dtypes.values()]
        wanted = [[name, list(one.shape)] for name, one in zip(names, answer.results.values(), strict=True)]
        if head.get("outputs") != wanted:
            raise Failed("wrong_result", f"ModelNew returns {head.get('outputs')!s:.200}, Model {wanted!s:.200}")
        outputs = [self.process.tensor(answer.dtypes[name], one.shape, limit) for name, one in answer.results.items()]
        tensors = [one for one in answer.inputs if isinstance(one, torch.Tensor)]
        left = [self.process.tensor(one.dtype, one.shape, limit) for one in tensors]
        meant = [one for one in answer.after if isinstance(one, torch.Tensor)]
        for index, (one, before, after) in enumerate(zip(left, tensors, meant, strict=True)):
            if not idle and not _same(one, before) and _same(before, after):
                raise Failed("changed_input", f"input {index} was written, {self.doing}")
        return head, outputs

    def _refuse(self, head: Mapping[str, Any], idle: bool = False) -> None:
        """Raise Failed for a report of the process: tampering, findings, work left running, an error."""
        if tampered := head.get("tampered"):
            raise Failed("tampered", f"the solution replaced {tampered!s:.200}")
        findings = head.get("findings") or []
        if findings and not idle:
            raise _of_findings(findings, self.doing)
        if "failed" in head:
            fields = failed(head)
            message = f"{self.doing}: {fields.get('message', '')}"
            raise Failed(fields["outcome"], message)
        if idle:
            return
        if (_number(head.get("late")) or 0.0) > 0:
            raise Failed(
                "unfinished", f"a stream was left running that the current one does not wait for, {self.doing}"
            )
        if head.get("threads"):
            raise Failed("unfinished", f"a thread was left running, {self.doing}")

    def _require_launches(self, head: Mapping[str, Any], first: Mapping[str, Any] | None) -> None:
        if head.get("launches"):
            return
        if first is not None and first.get("launches"):
            raise Failed("cached", f"no kernel was launched {self.doing}, while the first call launched some")
        names = ", ".join(_counts(head)) or "nothing"
        raise Failed("no_kernel", f"no kernel of the solution's own was launched; torch ran {names}")

    def _compared(
        self, answer: ReferenceAnswer, outputs: list[torch.Tensor], earlier: list, head: Mapping[str, Any]
    ) -> Any:
        check = self._reference.check(answer, outputs)
        if check.ok:
            return check
        fields = {"place": check.place, "max_error": check.max_error, "bound": check.bound}
        for before in earlier:
            if all(_same(one, other) for one, other in zip(outputs, before, strict=True)):
                raise Failed(
                    "cached", f"the results are those of an earlier call with other inputs, {self.doing}", **fields
                )
        for index, one in enumerate(outputs):
            kept = int((one.reshape(-1, 1).view(torch.uint8) == 0xFF).all(-1).sum()) if one.numel() else 0
            if kept and one.is_floating_point():
                message = f"{kept:,} of {one.numel():,} elements of output {index} were not written, {self.doing}"
                raise Failed("unwritten", message, **fields)
        causes = causes_of(check, _ptx(head), self._float32(answer))
        weights = f"no weights of Model for {', '.join(self._missing)[:200]}" if self._missing else ""
        found = f"error {check.max_error:.3g}, bound {check.bound:.3g} ({self.doing})"
        raise Failed("wrong_result", "; ".join(filter(None, (check.place, found, *causes, weights))), **fields)

    def _float32(self, answer: ReferenceAnswer) -> bool:
        weights = self._reference.state.values()
        return is_float32([*answer.inputs, *answer.results.values(), *weights]) and all(
            dtype in (torch.float32, torch.float64) for dtype in answer.dtypes.values() if dtype.is_floating_point
        )

    def _require_use(self, answer: ReferenceAnswer) -> None:
        """Raise Failed if the results are right although no launch did anything."""
        try:
            head, outputs = self._call(answer, idle=True)
        except Failed as failure:
            if failure.fields["outcome"] == "tampered":
                raise
            return  # it depends on the output of its kernels
        if self._reference.check(answer, outputs).ok:
            if not head.get("launches"):
                raise Failed("cached", "no kernel was launched for inputs that an earlier call had")
            names = ", ".join(_counts(head)) or "what it kept"
            raise Failed(
                "no_kernel", f"the results are right without its {head['launches']} launches: they come from {names}"
            )


def _of_findings(findings: Any, doing: str) -> Failed:
    fields = ("kind", "message", "line", "block", "thread", "count")
    good = [one for one in findings if isinstance(one, dict) and set(one) == set(fields)]
    if not good or not all(isinstance(one["kind"], str) and isinstance(one["message"], str) for one in good):
        raise BadAnswer("its findings do not have the machine's form")
    message = f"{good[0]['message']}{further(len(good))}, {doing}"
    return Failed(of_finding(good[0]["kind"]), message, line=str(good[0]["line"]), findings=good)


def _ptx(head: Mapping[str, Any]) -> list[str]:
    return _texts(head.get("ptx"))


def _texts(given: Any) -> list[str]:
    return [one for one in given if isinstance(one, str)] if isinstance(given, list) else []


def _counts(head: Mapping[str, Any]) -> dict[str, int]:
    given = head.get("operators")
    pairs = given.items() if isinstance(given, dict) else ()
    return {str(name)[:80]: count for name, count in list(pairs)[:200] if isinstance(count, int)}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e6 else None


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8))
