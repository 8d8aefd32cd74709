"""The judge of an op's variants, or of candidates written by others for it."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base import by_value
from workbench.base.processes.fork_server import Child
from workbench.base.processes.process import BadAnswer, ProcessEnded, ProcessTimeout
from workbench.base.progress import tracked
from workbench.errors import ArgumentError, WorkbenchError
from workbench.judge import confinement
from workbench.judge.answers import failed, no_kernel, plain_config, variant_names, verdict_of
from workbench.judge.arguments import (
    MEMORY_MIB,
    SECONDS,
    SEEDS,
    check_limits,
    checked_seeds,
    drawn,
    left_out,
    portable,
    source_label,
    sources_of,
)
from workbench.judge.nursery import DESCRIBE, RUN, Nursery, sandboxed, shared
from workbench.judge.on_the_way import tell
from workbench.judge.op_files import OpFiles
from workbench.judge.outcomes import OK
from workbench.judge.proving import refuted, unproved
from workbench.judge.sandbox import command
from workbench.judge.stage_seconds import StageSeconds
from workbench.judge.verdict import Judgement, Verdict
from workbench.launch.checking import ProvedLaunches, covered_by
from workbench.ops import registry
from workbench.ops.declared.elsewhere import CHANGES, InputChange
from workbench.ops.declared.shapes import SIZES, SizeChange
from workbench.ops.op import Op
from workbench.ops.selection import fitted, listed, variants_of
from workbench.ops.variant import Case, CudaVariant, TorchVariant, Variant

_GRACE_SECONDS = 20.0
"""Seconds beyond the limit, which the machine keeps by itself, after which its process is ended."""
_MAX_LINES = 10_000
_CANDIDATES_PER_SEED = 64
"""Candidates judged on the same changed inputs; each has inputs of its own as well, and sees neither."""


class Judge:
    """A judge of one candidate after the other, which makes its processes once.

    A parent process, which never runs a candidate's code, forks a fresh process for each candidate, which describes its
    launches, and the process that runs these in the PTX machine and compares. All judges of this Python process share
    the parent, one candidate at a time: for several cores use several processes. See `check` for the arguments and
    outcomes.
    """

    def __init__(
        self,
        op: str | Op,
        *,
        cases: str | Case | Sequence[str | Case] | None = None,
        seeds: int | Sequence[int] = SEEDS,
        seconds: float = SECONDS,
        memory_mib: int = MEMORY_MIB,
        elsewhere: bool = True,
        schedules: int = 0,
        sandbox: bool = False,
        exact: bool = False,
        prove: bool = False,
        proof: ProvedLaunches | None = None,
    ):
        self.op = found = registry.get(op)
        given = found.judged_cases if cases is None else listed(cases)
        if not given:
            found.case(None)  # says how one is declared
            raise ArgumentError("cases", "none", ", ".join(found.cases), "Name one or more.")
        self.cases = [found.case(one) for one in given]
        self._seeds = checked_seeds(seeds)
        check_limits(seconds, memory_mib)
        self._covered = pickle.dumps(covered_by(proof))
        self.seconds, self.memory_mib = float(seconds), memory_mib
        self._changes, self._schedules, self._sandbox, self._prove = elsewhere, schedules, sandbox, prove
        self._exact = exact
        if prove:
            from workbench.proof.solver import require_solver

            require_solver()
        if sandbox:
            command((), memory_mib)  # says what is missing
        elif reason := confinement.unavailable():
            told = f"A candidate can signal the judge's processes here, and so hold it up: {reason}."
            warnings.warn(f"{told} Judge it with sandbox=True.", RuntimeWarning, stacklevel=3)
        self._nursery = shared()
        self._runner: Child | None = None
        self._files = OpFiles.of(found)
        self._trusted = False
        self._shipments: dict[Case, bytes] = {}
        self._shipped_variants: dict[tuple[Variant, frozenset], bytes] = {}
        self._printed: dict[Nursery, int] = {}
        self._drawn_elsewhere: dict[Case, tuple[int, int]] = {}  # the seed and how many candidates have had it
        self._sources: Mapping[str, str] = {}  # of what is judged, as it was given to the judge
        self._left_out: Mapping[tuple[str, str], str] = {}  # variants of the op's own and cases, with a note
        self._all: dict[str, Any] = {}  # about a verdict on all variants and cases together

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to make the processes, so that they are there when the first candidate comes."""
        self._nursery.start()

    def close(self) -> None:
        """End the process that runs kernels; the one that forks it stays for the next judge."""
        with self._nursery.lock:
            if self._runner is not None:
                self._runner.end()
                self._runner = None

    def check(
        self,
        candidate: str | Path | None = None,
        *,
        variants: str | Variant | Sequence[str | Variant] | None = None,
        config: Mapping[str, Any] | str | None = None,
    ) -> Judgement:
        """Judge the op's own variants, or the ``candidate``."""
        if config is not None and config != "all" and not isinstance(config, Mapping):
            raise ArgumentError(
                "config", repr(config), 'a configuration, "all", or None', "None means the default configuration."
            )
        self._files = OpFiles.of(self.op)
        request, label, chosen = self._request(candidate, variants)
        self._sources = sources_of(request, chosen)
        named = candidate is not None or variants is not None
        self._left_out = {} if named else left_out(self.op, chosen, self.cases)
        names = Path(label).name if label else ", ".join(one.name for one in chosen)
        self._all = {"variant": names, "case": ", ".join(case.name for case in self.cases), "config": {}}
        request |= {
            "path": list(sys.path),
            "folder": os.getcwd(),
            "cases": [(case.name, self._shipped(case)) for case in self.cases],
            "config": config if config is None or isinstance(config, str) else dict(config),
            "left_out": [*self._left_out],
        }
        with self._nursery.lock, self._describing(request) as nursery:
            self._trust_cases()
            self._printed = {one: one.printed for one in (nursery, self._nursery)}
            found = self._verdicts(nursery, request, chosen, config)
            count = None if config == "all" else len(chosen) * len(self.cases) - len(self._left_out)
            verdicts = tuple(tracked(found, " verdicts", count))
        changed = self._files.changed()
        if changed:
            verdicts += (self._op_changed(changed),)
        file = str(self._files.file) if self._files.file is not None else ""
        return Judgement(self.op.name, label, verdicts, file, self._files.sha256, tuple(self._left_out.values()))

    @contextlib.contextmanager
    def _describing(self, request: Mapping[str, Any]) -> Iterator[Nursery]:
        """Yield the process that forks those in which a candidate's code runs."""
        if not self._sandbox:
            yield self._nursery
            return
        files = [Path(one) for one in (request.get("candidate"), request.get("source")) if isinstance(one, str | Path)]
        readable = [Path(request["folder"]), *self._files.digests, *files, *(one.parent for one in files)]
        with sandboxed(readable, self.memory_mib) as nursery:
            yield nursery

    def _op_changed(self, changed: Sequence[Path]) -> Verdict:
        names = ", ".join(one.name for one in changed)
        message = (
            f"{names} changed while the candidate was judged. The verdicts are about what was read before; "
            "restore it before anything else is judged"
        )
        return self._verdict(self._all, {"outcome": "op_changed", "message": message}, time.monotonic())

    # -- what is asked ------------------------------------------------------------------------------------------

    def _request(self, candidate: str | Path | None, variants: Any) -> tuple[dict, str, Sequence[Variant]]:
        """Return the request that says what to load, the candidate's label, and the op's variants that it is about."""
        if candidate is None:
            chosen = self._chosen(variants)
            return {"variants": [self._dumped(portable(one)) for one in chosen]}, "", chosen
        text = str(candidate)
        if (label := source_label(candidate)) is not None:
            return self._with_source(candidate, label, variants)
        path = Path(candidate).expanduser().absolute()
        if not path.is_file():
            raise ArgumentError("candidate", repr(text), "a .py or .cu file, or CUDA C++ text", f"There is no {path}.")
        if path.suffix != ".py":
            return self._with_source(path, text, variants)
        if variants is not None:
            raise ArgumentError("variants", variants, "None", "All variants of a candidate's file are judged.")
        # Without their kernels, which a candidate's process must not see.
        launches = self._dumped(
            [(one.language, one.declared_launch) for one in self.op.variants if one.declared_launch]
        )
        return {"op": self._dumped(self.op.bare()), "candidate": str(path), "launches": launches}, text, []

    def _with_source(self, source: str | Path, label: str, variants: Any) -> tuple[dict, str, Sequence[Variant]]:
        found = [one for one in self._chosen(variants) if isinstance(one, CudaVariant)]
        if not found:
            of = self.op.name if variants is None else f"variants={variants!r}"
            got = f"{label!r}, CUDA C++, but {of} has no variant in CUDA C++ whose source it could replace"
            file = repr(Path(label).name if isinstance(source, Path) else "kernel.cu")
            remedy = f"In the file: def declare(op): op.cuda({file}, grid=..., block=..., args=(...))."
            raise ArgumentError("candidate", got, "a .py file that declares how its kernel is launched", remedy)
        if len(found) != 1:
            names, first = ", ".join(one.name for one in found), found[0].name
            named = f"variants={first!r}; in a terminal --variant {first}"
            remedy = f"Name the one whose source the candidate's replaces: {named}."
            raise ArgumentError("variants", f"{names}, in CUDA C++", f"one of {self.op.name}", remedy)
        key = found[0], frozenset(self._files.digests.items())
        if key not in self._shipped_variants:
            self._shipped_variants = {key: self._dumped(portable(found[0]))}
        return {"variants": [self._shipped_variants[key]], "source": source}, label, found

    def _dumped(self, value: object) -> bytes:
        """Serialize by value, the functions of the op's file included: no process reads that file again."""
        return by_value.dumps(value, self._files.modules)

    def _formula(self) -> bytes | None:
        """Return the op's first variant in plain torch, which exact comparison runs; None without one."""
        found = next((one for one in self.op.variants if isinstance(one, TorchVariant)), None)
        return None if found is None else self._dumped(portable(found))

    def _chosen(self, variants: Any) -> list[Variant]:
        if variants is not None:
            return variants_of(self.op, variants)
        return [one for one in self.op.variants if one.name != self.op.reference]

    def _trust_cases(self) -> None:
        """Raise ArgumentError if constants would pass, because no case's answer depends on its seed."""
        if self._trusted:
            return
        seeds = drawn(2)
        fixed = []
        for case in self.cases:
            found = self._run({"case": self._shipped(case), "seeds": seeds})
            if "error" in found:
                raise WorkbenchError(f"{self.op.name}, case {case.name!r}: the reference fails: {found['error']}")
            if "fixed" not in found:
                raise WorkbenchError(f"{self.op.name}, case {case.name!r}: the reference {found['message']}")
            fixed.append(found["fixed"])
        if all(fixed):
            names = ", ".join(case.name for case in self.cases)
            remedy = "Draw an input, wb.randn(...): a kernel that writes constants would pass."
            raise ArgumentError(
                "cases", f"{names}, whose answer is the same for every seed", "cases with random inputs", remedy
            )
        self._trusted = True

    # -- the verdicts -------------------------------------------------------------------------------------------

    def _verdicts(
        self, nursery: Nursery, request: dict, chosen: Sequence[Variant], config: Mapping[str, Any] | str | None
    ) -> Iterator[Verdict]:
        started = time.monotonic()
        about = dict(self._all)
        if request.get("variants") == []:
            yield self._verdict(about, no_kernel(self.op.name), started)
            return
        child, waited = nursery.fork(DESCRIBE, self.memory_mib), StageSeconds()
        try:
            with waited.of("compiles"):
                child.request(request, self.seconds)
            yield from self._judged(child, chosen, config, about, waited)
        except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
            outcome = {ProcessEnded: "crashed", ProcessTimeout: "timeout", BadAnswer: "invalid"}[type(error)]
            message = f"while it was loaded and described: {error}"
            found = {"outcome": outcome, "message": message, "stage_seconds": waited}
            yield self._verdict(about, found, started)
        finally:
            child.end()

    def _judged(
        self,
        child: Child,
        chosen: Sequence[Variant],
        config: Mapping[str, Any] | str | None,
        about: dict,
        waited: StageSeconds,
    ) -> Iterator[Verdict]:
        """Yield a verdict for each description that comes.

        ``about`` is kept up to date with what is waited for, and ``waited`` with the time since the latest description.
        """
        started = time.monotonic()
        with waited.of("compiles"):
            answer = child.json(self.seconds)
        if "failed" in answer:
            yield self._verdict(about, failed(answer) | {"stage_seconds": waited}, started)
            return
        variants = variant_names(answer)
        if not variants:
            yield self._verdict(about, no_kernel("the candidate"), started)
        known = {one.name: one for one in chosen if one.name != self.op.reference}
        described = [(name, known.get(name)) for name, language in variants if language != "torch" or name in known]
        for name in [name for name, _ in variants if name not in dict(described)]:
            yield self._verdict(about | {"variant": name}, no_kernel(name), started)
        expected = [
            (name, variant, case if variant is None else fitted(variant, case))
            for name, variant in described
            for case in self.cases
            if (name, case.name) not in self._left_out
        ]
        with waited.of("compiles"):
            answer, count = child.json(self.seconds), 0
        for name, variant, case in expected:
            about |= {"variant": name, "case": case.name, "config": {}}
            if variant is not None and not variant.compiles:
                yield self._verdict(about, self._values(case, variant, config), started)
                started = time.monotonic()
                continue
            if (answer.get("variant"), answer.get("case")) != (name, case.name):
                raise BadAnswer(f"the description of {name} for {case.name} is missing or out of order")
            while (answer.get("variant"), answer.get("case")) == (name, case.name):
                count += 1
                if count > _MAX_LINES:
                    raise BadAnswer(f"there are more than {_MAX_LINES:,} descriptions")
                told = answer.get("config")
                about["config"] = plain_config(told) if isinstance(told, dict) else {}
                yield from self._stages(case, answer, about, StageSeconds(waited), started)
                started = time.monotonic()
                waited.clear()
                with waited.of("compiles"):
                    answer = child.json(self.seconds)

    def _stages(
        self, case: Case, answer: dict, about: dict, seconds: StageSeconds, started: float
    ) -> Iterator[Verdict]:
        """Yield the verdict on one description, then those on inputs and sizes where it is wrong; tell each stage."""
        config = about["config"]
        found: dict[str, Any] = {"outcome": OK}

        def verdict() -> Verdict:
            return self._verdict(about, found | {"stage_seconds": dict(seconds)}, started)

        def others(fields: Sequence[dict]) -> list[Verdict]:
            return [self._verdict(about | {"case": f"{case.name}, {one['change']}"}, one, started) for one in fields]

        if "failed" not in answer:
            tell("compiles", verdict())
        found = failed(answer) if "failed" in answer else self._outcome(case, answer, config)
        seconds |= found.get("stage_seconds", {})
        tell("right", verdict())
        wrong = others(self._elsewhere(case, answer, found, config, seconds))
        tell("elsewhere", verdict(), *wrong)
        refuted = others(self._proved(case, answer, found, config, seconds))
        tell("proved", verdict())
        yield from (verdict(), *wrong, *refuted)

    def _outcome(self, case: Case, description: dict, config: Mapping[str, Any]) -> dict:
        """Judge a description in the trusted process."""
        request = {"description": description, "config": config, "memory": self.memory_mib << 20}
        request |= {"covered": self._covered, "schedules": self._schedules, "exact": self._exact}
        return self._judge(case, request | ({"formula": self._formula()} if self._exact else {}))

    def _values(self, case: Case, variant: Variant, config: Mapping[str, Any] | str | None) -> dict:
        """Judge a variant in plain torch, one of the op's own, in the trusted process."""
        chosen = dict(config) if isinstance(config, Mapping) else variant.default_config(case.problem())
        return self._judge(case, {"variant": self._dumped(portable(variant)), "config": chosen})

    def _judge(self, case: Case, request: Mapping[str, Any]) -> dict:
        """Return the fields of a verdict; the seeds are drawn now, unless they were given."""
        seeds = drawn(self._seeds) if isinstance(self._seeds, int) else self._seeds
        spent = StageSeconds()
        with spent.of("launches"):
            found = self._run({"case": self._shipped(case), "seeds": seeds, "seconds": self.seconds, **request})
        if "error" in found:
            raise WorkbenchError(f"{self.op.name}, case {case.name!r}: the reference fails: {found['error']}")
        return {"stage_seconds": spent, **found, "seeds": seeds}

    def _proved(
        self, case: Case, description: dict, found: dict, config: Mapping[str, Any], seconds: StageSeconds
    ) -> list[dict]:
        """Prove the kernels: add the proofs to ``found``, and return the fields of a verdict if one is refuted."""
        if not self._prove or "failed" in description or found.get("outcome") in ("unsupported", "invalid"):
            return []
        with seconds.of("proved"):
            asked = {"case": self._shipped(case), "prove": True, "description": description, "config": config}
            answer = self._run(asked)
        proofs = unproved(answer["message"]) if "message" in answer else answer["proofs"]
        found["proofs"] = proofs
        one = refuted(proofs) if found.get("outcome") == OK else None
        return [] if one is None else [one | {"change": "proof"}]

    def _elsewhere(
        self, case: Case, description: dict, found: dict, config: Mapping[str, Any], seconds: StageSeconds
    ) -> list[dict]:
        """Judge at changed inputs: return fields of verdicts where it is wrong, list in ``found`` where it is right."""
        if not self._changes or found.get("outcome") != OK:
            return []
        with seconds.of("elsewhere"):
            return self._changed(case, description, found, config)

    def _changed(self, case: Case, description: dict, found: dict, config: Mapping[str, Any]) -> list[dict]:
        request: dict = {"case": self._shipped(case), "seeds": self._seed_elsewhere(case), "description": description}
        request |= {"config": config, "memory": self.memory_mib << 20, "seconds": self.seconds}
        request["covered"] = self._covered
        wrong, right = [], []
        sizes = description["sizes"] if isinstance(description.get("sizes"), dict) else {}
        changes: dict[str, InputChange | SizeChange] = {
            **CHANGES,
            **{name: one for name, one in SIZES.items() if name in sizes},
        }
        answers = self._run(request | {"changes": [*changes]})
        for name, change in changes.items():
            # One that ended the process took the answers of the others with it: ask for each alone.
            answer = answers[name] if name in answers else self._alone(request, name)
            if answer.get("outcome") == OK:
                right.append(name)
            elif "outcome" in answer:
                made = "at the same with" if name in sizes else "on the same made"
                message = f"right on the case's own inputs, wrong {made} {change.words}: {answer['message']}"
                named = {"outcome": "wrong_elsewhere", "message": message, "change": name}
                wrong.append(answer | named | {"seeds": request["seeds"]})
        found["elsewhere"] = right
        return wrong

    def _seed_elsewhere(self, case: Case) -> list[int]:
        """Return the seed of the inputs to change: the first that was given, or one for several candidates."""
        if not isinstance(self._seeds, int):
            return list(self._seeds[:1])
        seed, uses = self._drawn_elsewhere.get(case, (drawn(1)[0], 0))
        self._drawn_elsewhere[case] = (seed, uses + 1) if uses + 1 < _CANDIDATES_PER_SEED else (drawn(1)[0], 0)
        return [seed]

    def _alone(self, request: dict, change: str) -> dict:
        found = self._run(request | {"changes": [change]})
        return found.get(change, found)

    def _run(self, request: dict) -> dict:
        if self._runner is not None and self._runner.gone:  # killed by an earlier candidate
            self._runner.end()
            self._runner = None
        if self._runner is None:
            self._runner = self._nursery.fork(RUN, self.memory_mib)
        limit = self.seconds + _GRACE_SECONDS
        try:
            self._runner.request(request | {"path": list(sys.path)}, limit)
            return self._runner.json(limit)
        except (ProcessEnded, ProcessTimeout, BadAnswer) as error:
            self._runner.end()
            self._runner = None
            outcome = "timeout" if isinstance(error, ProcessTimeout) else "crashed"
            return {"outcome": outcome, "message": f"while its PTX was run: {error}"}

    def _shipped(self, case: Case) -> bytes:
        if case not in self._shipments:
            case.problem()  # with the types that it has found
            self._shipments[case] = self._dumped(case)
        return self._shipments[case]

    def _verdict(self, about: Mapping[str, Any], found: Mapping[str, Any], started: float) -> Verdict:
        printed = sum(one.printed - before for one, before in self._printed.items())
        seconds = time.monotonic() - started
        return verdict_of(self.op.name, about, {"printed": printed, **found}, seconds, self._sources)
