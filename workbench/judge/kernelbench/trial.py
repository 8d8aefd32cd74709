"""The calls of a solution in KernelBench's format, each repeated where the solution cannot reach, and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import torch

from workbench.analysis.exact import APART, ExactAnswer, Side, compared, constants_of, elements, is_float
from workbench.base.processes.process import BadAnswer
from workbench.errors import WorkbenchError
from workbench.judge.answers import failed
from workbench.judge.kernelbench.process import Called, Candidate, Repeated, Repeater, Repetition
from workbench.judge.kernelbench.reference import Reference, ReferenceAnswer
from workbench.judge.launching import Failed
from workbench.judge.notes import notes_on_code
from workbench.judge.outcomes import OK, further, of_finding
from workbench.judge.stage_seconds import StageSeconds
from workbench.ops.declared.elsewhere import CHANGES, Elsewhere
from workbench.ops.error_causes import causes_of, is_float32
from workbench.ops.values import Check

Tensors = Mapping[str, torch.Tensor]
_ROUNDING = 16.0
"""Ratio of an error to its bound up to which it may come from rounding, and so be there for some inputs alone."""


class SolutionTrial:
    """The calls of one solution, and their repetitions in a process that the solution never enters.

    The solution is called with other inputs than those that the repetitions have, and that the results are compared
    for. ``doing`` names the present call for a failure's message. ``told`` is called with each stage that has ended.
    """

    def __init__(
        self,
        reference: Reference,
        candidate: Candidate,
        repeater: Repeater,
        told: Callable[[str], None] = lambda stage: None,
    ):
        self._reference, self._candidate, self._repeater = reference, candidate, repeater
        self.doing = "while it was loaded"
        self._missing: list[str] = []
        self._before: tuple[bytes, ...] = ()
        self._loaded: tuple[bytes, ...] = ()
        self._latest: Called | None = None
        self.seconds, self._told = StageSeconds(), told

    def run(self, path: Path, answers: Sequence[ReferenceAnswer]) -> dict[str, Any]:
        """Return the fields of a verdict that passes. Raises Failed for the first failure."""
        with self.seconds.of("compiles"):
            loaded = self._candidate.load(path, self._reference)
        if tampered := loaded.head.get("tampered"):
            raise Failed("tampered", f"the solution replaced {tampered!s:.200}")
        _refuse(loaded.head, self.doing)
        self._told("compiles")
        self._missing = [one for one in loaded.head.get("missing", ()) if isinstance(one, str)]
        self._before = self._loaded = loaded.records[:1]
        worst, first = None, None
        results: list[list[torch.Tensor]] = []
        for number, answer in enumerate(answers):
            self.doing = f"in call {number + 1}, seed {answer.seed}"
            found = self._called(answer)
            self._require_launches(found.head, first or found.head)
            if first is None:
                self._told("clean")
                first = found.head
            with self.seconds.of("right"):
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

    def elsewhere(
        self, answer: ReferenceAnswer, changed: Mapping[str, Elsewhere]
    ) -> tuple[list[str], list[dict[str, Any]]]:
        """Repeat the latest call on changed inputs of its answer.

        Returns the names of the changes where it is right, and fields of verdicts on the others.
        """
        right: list[str] = []
        wrong: list[dict[str, Any]] = []
        self.doing = f"seed {answer.seed}"
        for name, case in changed.items():
            try:
                found = self._repeated(list(case.arguments().values()), answer, checked=False, last_warp_first=True)
                check = case.check(dict(zip(answer.results, found.outputs, strict=True)))
                if not check.ok:
                    self._refuse_values(check)
                right.append(name)
            except Failed as failure:
                if failure.fields["outcome"] == "invalid":  # a shape depends on values
                    continue
                message = f"right on the problem's inputs, wrong on the same made {CHANGES[name].words}: {failure}"
                named = {"outcome": "wrong_elsewhere", "message": message, "change": name}
                wrong.append(failure.fields | named)
        return right, wrong

    def exact(self, answers: Sequence[ReferenceAnswer]) -> ExactAnswer:
        """Return whether the latest call of `run` is the same computation as the reference.

        It is repeated on elements of a ring, from the loading of the solution on. After that the process that repeats
        may not be used again: a kernel without a rule ends its device.
        """
        if self._latest is None or not self._loaded:
            return ExactAnswer.without("no call was recorded")

        def inputs(number: int, replaced: Tensors = MappingProxyType({})) -> dict[str, Any]:
            drawn = number >= len(answers)
            given = self._reference.drawn(answers[0].seed + APART * number) if drawn else answers[number].inputs
            return {name: replaced.get(name, one) for name, one in self._reference.by_name(given).items()}

        def floats(number: int) -> dict[str, torch.Tensor]:
            return {name: one for name, one in inputs(number).items() if is_float(one)}

        def reference(number: int, replaced: Tensors, side: Side) -> dict[str, torch.Tensor]:
            return self._reference.on_elements([*inputs(number, replaced).values()], side.operators)

        def solution(number: int, replaced: Tensors, side: Side) -> dict[str, torch.Tensor]:
            self.doing = "on elements of a ring"
            given = [*inputs(number, replaced).values()]
            try:
                done = self._repeated(given, answers[0], loaded=self._loaded, exact=True)
            except Failed as failure:
                raise WorkbenchError(failure.fields["message"].removesuffix(f", {self.doing}")) from failure
            told = done.head.get("exact", {})
            side.opcodes |= set(_texts(told.get("opcodes")))
            side.operators |= set(_texts(told.get("operators")))
            side.constants = [*dict.fromkeys(number for text in _ptx(done.head) for number in constants_of(text))]
            return {name: elements(one) for name, one in zip(answers[0].results, done.outputs, strict=True)}

        known = Side(reference, floats, called="the reference")
        return compared(known, Side(solution, floats, elsewhere=True))

    def _called(self, answer: ReferenceAnswer) -> Repeated:
        """Call the solution, and repeat the call with the inputs of an answer. Raises Failed."""
        with self.seconds.of("launches"):
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
            with self.seconds.of("clean"):
                return self._repeated(answer.inputs, answer)
        except Failed as failure:
            if failure.fields["outcome"] == "invalid":  # a shape may depend on values
                self._refuse_host_work(answer)
            raise
        finally:
            self._before = ()

    def _repeated(
        self, inputs: Sequence[Any], answer: ReferenceAnswer, *, outputs: list | None = None,
        loaded: tuple[bytes, ...] = (), **how: bool,
    ) -> Repeated:  # fmt: skip
        """Repeat the latest call with inputs. Raises Failed for findings, and for an input that it writes."""
        assert self._latest is not None
        types = [(answer.dtypes[name], one.shape) for name, one in answer.results.items()]
        how_to = Repetition(self._latest, loaded or self._before, **how)
        done = self._repeater.repeat(how_to, inputs, types if outputs is None else outputs)
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
        if check.max_error > _ROUNDING * check.bound:
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
