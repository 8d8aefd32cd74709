"""``check_kernelbench``: judge if a solution in KernelBench's format is right and its own kernels do the work."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import torch

from workbench.base.argument_kinds import checked_kinds
from workbench.base.home import cache_part
from workbench.base.kept_entries import held, trim_entries
from workbench.base.processes.process import BadAnswer, ProcessEnded, ProcessTimeout
from workbench.driver.attributes import DEFAULT_MODEL
from workbench.driver.torch_device import library
from workbench.errors import ArgumentError
from workbench.judge.answers import failed, verdict_of
from workbench.judge.arguments import MEMORY_MIB, SECONDS, SEEDS, check_limits, checked_seeds, drawn
from workbench.judge.kernelbench.compiled_reference import compiled_reference
from workbench.judge.kernelbench.problem import SMALL, KernelBenchProblem
from workbench.judge.kernelbench.process import Called, Candidate, Repeated, Repeater, Repetition, started
from workbench.judge.kernelbench.reference import Reference, ReferenceAnswer
from workbench.judge.launching import Failed
from workbench.judge.notes import notes_on_code
from workbench.judge.outcomes import OK, further, of_finding
from workbench.judge.verdict import Judgement
from workbench.ops.error_causes import causes_of, is_float32
from workbench.ops.own.elsewhere import CHANGES, Meaningless
from workbench.ops.values import Check
from workbench.toolchain import disk_cache


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
        elsewhere: after a solution passes, also judge it on the problem's inputs changed by each of
            `workbench.ops.own.elsewhere.CHANGES`.

    Raises:
        ArgumentError: a file that is not a problem, or arguments that cannot be used.
        WorkbenchError: a reference that fails.
    """
    check_limits(seconds, memory_mib)
    wanted = checked_seeds(seeds)
    path = Path(solution).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError("solution", repr(str(solution)), "a .py file with ModelNew", f"There is no {path}.")
    found = KernelBenchProblem.read(Path(problem).expanduser().absolute())
    chosen = found if full else found.fitted()
    digest = hashlib.sha256(found.text.encode()).hexdigest()
    given = drawn(wanted) if isinstance(wanted, int) else wanted
    reference = Reference(chosen, drawn(1)[0])
    answers = [reference.answer(seed) for seed in given]
    _require_drawn(chosen, reference, answers)
    fitted = found.fitted(SMALL)
    small = _Small(Reference(fitted, drawn(1)[0]), fitted.used, must_fit=not full) if elsewhere else None
    began = time.monotonic()
    folder = cache_part("kernelbench", hashlib.sha256(path.read_bytes()).hexdigest()[:24])
    options = {"model": model, "memory": memory_mib, "seconds": seconds, "folder": str(folder)}
    _prepare_device()
    with held(folder):
        fields, wrong = _tried(options, reference, path, answers, small)
    trim_entries(folder.parent, disk_cache.limit_bytes())
    if torch_compile and fields["outcome"] == OK:
        fields |= {"reference": compiled_reference(chosen, model, memory_mib, seconds)}
    about = {"variant": "ModelNew", "case": "smaller" if chosen.used else "full", "config": chosen.used}
    seconds_taken = time.monotonic() - began
    verdicts = [verdict_of(found.path.stem, about, {"seeds": given} | fields, seconds_taken)]
    for one in wrong:
        case = f"{about['case']}, {one['change']}"
        verdicts.append(verdict_of(found.path.stem, about | {"case": case}, {"seeds": given[-1:]} | one, 0.0))
    return Judgement(found.path.stem, str(solution), tuple(verdicts), str(found.path), digest)


def _tried(
    options: Mapping[str, Any],
    reference: Reference,
    path: Path,
    answers: Sequence[ReferenceAnswer],
    small: _Small | None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of a solution's verdict, and those of verdicts on changed inputs."""
    process, replay = started("candidate", options), started("replay", options)
    trial = _Trial(reference, Candidate(process, options["seconds"]), Repeater(replay, options["seconds"]))
    wrong: list[dict[str, Any]] = []
    try:
        for one in (process, replay):
            one.await_start()
        fields = trial.run(path, answers)
        if small is not None:
            other = _Trial(small.reference, trial._candidate, trial._repeater)
            changed, wrong = small.tried(other, path, answers[-1].seed)
            fields |= changed
    except Failed as failure:
        fields = failure.fields
    except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
        outcome = {ProcessEnded: "crashed", ProcessTimeout: "timeout", BadAnswer: "invalid"}[type(error)]
        fields = {"outcome": outcome, "message": f"{trial.doing}: {error}"}
    finally:
        for one in (process, replay):
            one.end()
    return fields | {"printed": process.printed}, wrong


@dataclass(frozen=True)
class _Small:
    """The problem at sizes that are small enough to change its inputs in many ways.

    Without ``must_fit`` the solution need not be right at these sizes: it may be made for the problem's own.
    """

    reference: Reference
    used: Mapping[str, int]
    must_fit: bool

    def tried(self, trial: _Trial, path: Path, seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return fields for the verdict of a solution that is right so far, and those of verdicts on changed inputs."""
        try:
            trial.load(path)
            right, wrong = trial.elsewhere(seed)
            return {"elsewhere": right}, wrong
        except Failed as failure:
            sizes = ", ".join(f"{name}={size}" for name, size in self.used.items()) or "its sizes"
            if not self.must_fit:
                return {"notes": [f"changed inputs were not tried: it is made for its sizes, not for {sizes}"]}, []
            message = f"right at the sizes used first, wrong at {sizes}: {failure}"
            named = {"outcome": "wrong_elsewhere", "change": "other sizes", "message": message}
            return {}, [failure.fields | named]


def _prepare_device() -> None:
    """Compile the simulated device, if need be, in this process: the solution's prints nothing that a user sees."""
    installed = library.installed_torch()
    if installed is not None and installed.problem is None:
        library.compiled(installed)


def _require_drawn(problem: KernelBenchProblem, reference: Reference, answers: Sequence[ReferenceAnswer]) -> None:
    """Raise ArgumentError if the results are the same for every seed, so that constants would pass."""
    other = answers[1] if len(answers) > 1 else reference.answer(drawn(1)[0])
    if all(torch.equal(answers[0].results[name], other.results[name]) for name in other.results):
        what = f"{problem.path.name}, whose answer is the same for every seed"
        raise ArgumentError("problem", what, "one whose results depend on random inputs", "Constants would pass.")


class _Trial:
    """The calls of one solution, and their repetitions in a process that the solution never enters.

    The solution is called with other inputs than those that the repetitions have, and that the results are compared
    for. ``doing`` names the present call for a failure's message.
    """

    def __init__(self, reference: Reference, candidate: Candidate, repeater: Repeater):
        self._reference, self._candidate, self._repeater = reference, candidate, repeater
        self.doing = "while it was loaded"
        self._missing: list[str] = []
        self._before: tuple[bytes, ...] = ()
        self._latest: Called | None = None

    def load(self, path: Path) -> None:
        """Load the solution, the first time, and make its model. Raises Failed."""
        loaded = self._candidate.load(path, self._reference)
        if tampered := loaded.head.get("tampered"):
            raise Failed("tampered", f"the solution replaced {tampered!s:.200}")
        _refuse(loaded.head, self.doing)
        self._missing = [one for one in loaded.head.get("missing", ()) if isinstance(one, str)]
        self._before = loaded.records[:1]

    def run(self, path: Path, answers: Sequence[ReferenceAnswer]) -> dict[str, Any]:
        """Return the fields of a verdict that passes. Raises Failed for the first failure."""
        self.load(path)
        worst, first = None, None
        results: list[list[torch.Tensor]] = []
        for number, answer in enumerate(answers):
            self.doing = f"in call {number + 1}, seed {answer.seed}"
            found = self._called(answer)
            first = first or found.head
            self._require_launches(found.head, first)
            check = self._reference.check(answer, found.outputs)
            if not check.ok:
                self._refuse_result(check, answer, found, results)
            results.append(found.outputs)
            if worst is None or check.max_error * (worst.bound or 1.0) > worst.max_error * (check.bound or 1.0):
                worst = check
        self.doing = "in a call whose launches do nothing"
        self._require_use(answers)
        assert worst is not None
        assert first is not None
        return {
            "outcome": OK, "max_error": worst.max_error, "bound": worst.bound, "launches": first["launches"],
            "operators": _counts(first), "predicted_seconds": _number(first.get("seconds")),
            "notes": notes_on_code(_ptx(first), self._float32(answers[0])) + _texts(first.get("notes")),
        }  # fmt: skip

    def elsewhere(self, seed: int) -> tuple[list[str], list[dict[str, Any]]]:
        """Repeat a call on changed inputs; return the changes where it is right, and fields of verdicts on the others.

        Raises Failed for a call that is wrong already without a change.
        """
        right: list[str] = []
        wrong: list[dict[str, Any]] = []
        answer = self._reference.answer(seed)
        self.doing = f"seed {seed}"
        found = self._called(answer)
        if not (check := self._reference.check(answer, found.outputs)).ok:
            self._refuse_result(check, answer, found, ())
        for name, change in CHANGES.items():
            changed = self._reference.changed(answer, name)
            try:
                changed.require_meaning()
                found = self._repeated(list(changed.arguments().values()), answer, checked=False, last_warp_first=True)
                check = changed.check(dict(zip(answer.results, found.outputs, strict=True)))
                if not check.ok:
                    self._refuse_values(check)
                right.append(name)
            except Meaningless:
                pass
            except Failed as failure:
                if failure.fields["outcome"] == "invalid":  # a shape depends on values
                    continue
                message = f"right on the problem's inputs, wrong on the same made {change.words}: {failure}"
                named = {"outcome": "wrong_elsewhere", "message": message, "change": name}
                wrong.append(failure.fields | named)
        return right, wrong

    def _called(self, answer: ReferenceAnswer) -> Repeated:
        """Call the solution, and repeat the call with the inputs of an answer. Raises Failed."""
        self._latest = called = self._candidate.call(self._reference.decoy(answer))
        head = called.head
        if tampered := head.get("tampered"):
            raise Failed("tampered", f"the solution replaced {tampered!s:.200}")
        if "failed" in head:
            if "given" in head:
                self._repeated(answer.inputs, answer, outputs=[])  # a launch that failed is a finding there
            _refuse(head, self.doing)
        if (_number(head.get("late")) or 0.0) > 0:
            raise Failed(
                "unfinished", f"a stream was left running that the current one does not wait for, {self.doing}"
            )
        if head.get("threads"):
            raise Failed("unfinished", f"a thread was left running, {self.doing}")
        if strange := head.get("strange"):
            raise Failed("invalid", f"ModelNew returns {strange!s:.200}: return torch.Tensor itself, on the device")
        outputs = head.get("outputs")
        found = [(row.get("type"), row.get("sizes")) for row in outputs] if isinstance(outputs, list) else []
        names = [str(dtype).removeprefix("torch.") for dtype in answer.dtypes.values()]
        wanted = [(name, list(one.shape)) for name, one in zip(names, answer.results.values(), strict=True)]
        if found != wanted:
            raise Failed("wrong_result", f"ModelNew returns {found!s:.200}, Model {wanted!s:.200}")
        try:
            return self._repeated(answer.inputs, answer)
        except Failed as failure:
            if failure.fields["outcome"] == "invalid":  # a shape may depend on values
                self._refuse_host_work(answer)
            raise
        finally:
            self._before = ()

    def _repeated(
        self, inputs: Sequence[Any], answer: ReferenceAnswer, *, outputs: list | None = None, **how: bool
    ) -> Repeated:
        """Repeat the latest call with inputs. Raises Failed for findings, and for an input that it writes."""
        assert self._latest is not None
        types = [(answer.dtypes[name], one.shape) for name, one in answer.results.items()]
        done = self._repeater.repeat(
            Repetition(self._latest, self._before, **how), inputs, types if outputs is None else outputs
        )
        findings = done.head.get("findings") or []
        if findings and not how.get("idle"):
            raise _of_findings(findings, self.doing)
        _refuse(done.head, self.doing)
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        for index, (before, after) in enumerate(zip(tensors, done.inputs, strict=True)):
            if not how.get("idle") and not _same(before, after) and index not in answer.written:
                raise Failed("changed_input", f"input {index} was written, {self.doing}")
        return done

    def _require_launches(self, head: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        if head.get("launches"):
            return
        if first.get("launches"):
            raise Failed("cached", f"no kernel was launched {self.doing}, while the first call launched some")
        names = ", ".join(_counts(head)) or "nothing"
        raise Failed("no_kernel", f"no kernel of the solution's own was launched; torch ran {names}")

    def _refuse_result(
        self, check: Check, answer: ReferenceAnswer, found: Repeated, earlier: Sequence[list[torch.Tensor]]
    ) -> NoReturn:
        """Raise Failed for a wrong result, with the reason where one shows."""
        fields = {"place": check.place, "max_error": check.max_error, "bound": check.bound}
        for before in earlier:
            if all(_same(one, other) for one, other in zip(found.outputs, before, strict=True)):
                raise Failed(
                    "cached", f"the results are those of an earlier call with other inputs, {self.doing}", **fields
                )
        self._refuse_unwritten(found, fields)
        self._refuse_host_work(answer, fields)
        causes = causes_of(check, _ptx(found.head), self._float32(answer))
        weights = f"no weights of Model for {', '.join(self._missing)[:200]}" if self._missing else ""
        self._refuse_values(check, [*causes, weights])

    def _refuse_host_work(self, answer: ReferenceAnswer, fields: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Raise Failed if the latest call is right for the inputs that the solution's process had."""
        shown = self._reference.decoy(answer)
        again = self._repeated(shown, answer)
        if self._reference.check(self._reference.answered(shown, answer.seed), again.outputs).ok:
            raise Failed(
                "host_computed",
                f"right for the inputs that the solution's process had, wrong for others in their place, {self.doing}: "
                "its host code reads values of the device, and computes or decides by them",
                **fields,
            )

    def _refuse_unwritten(self, found: Repeated, fields: Mapping[str, Any]) -> None:
        for index, one in enumerate(found.outputs):
            kept = int((one.reshape(-1, 1).view(torch.uint8) == 0xFF).all(-1).sum()) if one.numel() else 0
            if kept and one.is_floating_point():
                message = f"{kept:,} of {one.numel():,} elements of output {index} were not written, {self.doing}"
                raise Failed("unwritten", message, **fields)

    def _refuse_values(self, check: Check, further: Sequence[str] = ()) -> NoReturn:
        fields = {"place": check.place, "max_error": check.max_error, "bound": check.bound}
        found = f"error {check.max_error:.3g}, bound {check.bound:.3g} ({self.doing})"
        raise Failed("wrong_result", "; ".join(filter(None, (check.place, found, *further))), **fields)

    def _float32(self, answer: ReferenceAnswer) -> bool:
        weights = self._reference.state.values()
        return is_float32([*answer.inputs, *answer.results.values(), *weights]) and all(
            dtype in (torch.float32, torch.float64) for dtype in answer.dtypes.values() if dtype.is_floating_point
        )

    def _require_use(self, answers: Sequence[ReferenceAnswer]) -> None:
        """Raise Failed if the results are right although no launch did anything.

        The inputs are not those of the latest repetition, whose results may still be in memory.
        """
        answer = answers[0]
        if len(answers) == 1:
            answer = self._reference.answered(self._reference.decoy(answer), answer.seed)
        try:
            done = self._repeated(answer.inputs, answer, idle=True)
        except Failed:
            return  # it depends on the output of its kernels
        if self._reference.check(answer, done.outputs).ok:
            names = ", ".join(_counts(done.head)) or "what it kept"
            raise Failed(
                "no_kernel",
                f"the results are right without its {done.head['launches']} launches: they come from {names}",
            )


def _refuse(head: Mapping[str, Any], doing: str) -> None:
    """Raise Failed for an answer that says that it failed."""
    if "failed" in head:
        fields = failed(head)
        raise Failed(fields["outcome"], f"{doing}: {fields.get('message', '')}")


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
