"""An op that is compiled, checked and counted again each time one of its files is saved: ``workbench watch``.

A server process has imported torch, Triton and the workbench. Each version of the files is looked at by a fork of it,
which runs the op's file as if for the first time; a later save ends the fork that is still at work.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from workbench.base.home import PACKAGE
from workbench.base.op_names import op_file
from workbench.base.processes.fork_server import ForkServer
from workbench.base.processes.process import ProcessEnded
from workbench.errors import ArgumentError, WorkbenchError

if TYPE_CHECKING:
    from workbench.base.processes.forking import Main
    from workbench.comparison.comparison import Comparison
    from workbench.ops.op import Op

_POLL_SECONDS = 0.05
_SEND_SECONDS = 60.0
_SECONDS_LIMIT = 60.0


@dataclass(frozen=True)
class FilesVerdict:
    """Result of one version of an op's files.

    Attributes:
        error: why the version could not be looked at, such as a Python error with its line; "" if it could.
        comparison: the op's variants side by side; None with an ``error``.
        findings: variant -> findings of the checks, as text; a variant that did not run has none.
        files: the files that the version was made of, and the times at which they were written.
        seconds: time from the save to this verdict.
    """

    error: str = ""
    comparison: Comparison | None = None
    findings: dict[str, tuple[str, ...]] | None = None
    files: Mapping[Path, int | None] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every variant is right and the checks found nothing."""
        return self.comparison is not None and self.comparison.all_correct and not any((self.findings or {}).values())

    def lines(self) -> Iterator[str]:
        """Yield the error, or a line for each variant and its findings."""
        if self.comparison is None:
            yield self.error
            return
        for trial in self.comparison.trials:
            found = (self.findings or {}).get(trial.variant)
            if trial.ok:
                words = f"right, error {trial.max_error:.1e} of {trial.error_bound:.1e}"
            else:
                words = f"{trial.outcome.replace('_', ' ').upper()}: {trial.message}"
            yield f"{trial.variant}: {words}" + ("; the checks found nothing" if found == () else "")
            yield from found or ()


def verdicts(op: str, case: str | None = None, variants: Sequence[str] | None = None) -> Iterator[FilesVerdict]:
    """Yield the verdict of an op's files as they are, then that of each version that is saved, without an end.

    Args:
        op: ``FILE.py:NAME``.
        case: name of a case; default: the op's quick one.
        variants: names of variants; default: every one that can run the case.

    Raises:
        ArgumentError: ``op`` is not in a file of its own.
    """
    if (named := op_file(op)) is None:
        raise ArgumentError("op", repr(op), "FILE.py:NAME", "An op of a package has no file that you are editing.")
    return _verdicts(_Request(op, case, variants), named[0])


class _Request(NamedTuple):
    op: str
    case: str | None
    variants: Sequence[str] | None


def _verdicts(request: _Request, file: Path) -> Iterator[FilesVerdict]:
    with contextlib.closing(ForkServer(f"{__name__}:prepare", str(file), marked=True)) as server:
        known, saved = _stamps([file]), time.perf_counter()
        while True:
            found = _looked_at(server, request, known)
            if found is not None:
                known = {**found.files, **known}
                yield replace(found, seconds=time.perf_counter() - saved)
                while _stamps(known) == known:
                    time.sleep(_POLL_SECONDS)
            saved = time.perf_counter()
            known = _settled(known)


def _looked_at(server: ForkServer, request: object, known: Mapping[Path, int | None]) -> FilesVerdict | None:
    """Return the verdict of a fork of the server, None if a file was saved again before it came."""
    child = server.fork("")
    try:
        child.request(request, _SEND_SECONDS)
        while not child.answers(_POLL_SECONDS):
            if _stamps(known) != known:
                return None
        found = pickle.loads(child.receive())
        assert isinstance(found, FilesVerdict)
        return found
    except ProcessEnded as error:
        return FilesVerdict(str(error))
    finally:
        child.end()


def _stamps(files: Iterable[Path]) -> dict[Path, int | None]:
    """Return the time at which each file was last written, None for one that is not there."""
    found: dict[Path, int | None] = {}
    for file in files:
        try:
            found[file] = file.stat().st_mtime_ns
        except OSError:
            found[file] = None
    return found


def _settled(files: Iterable[Path]) -> dict[Path, int | None]:
    """Return the stamps of files once an editor, which may write several or replace one, has finished."""
    before = _stamps(files)
    while True:
        time.sleep(_POLL_SECONDS)
        if (now := _stamps(files)) == before:
            return now
        before = now


# -- in the server's process --------------------------------------------------------------------------------------


def prepare(file: str) -> Callable[[str], Main]:
    """Import everything that takes its time; return the function of each fork, which looks at the op of a ``file``."""
    import triton.backends.nvidia.compiler
    import triton.compiler  # noqa: F401

    import workbench.comparison.compare
    import workbench.toolchain.triton_aot
    import workbench.tuning.measuring.measure  # noqa: F401

    sys.dont_write_bytecode = True  # Python takes that of a module saved in the same second, with as many bytes
    return lambda _: functools.partial(_look, Path(file))


def _look(file: Path, request: _Request, send: Callable[[bytes], None]) -> None:
    from workbench.ops.files import load_op
    from workbench.toolchain.nvrtc_client import compile_in_own_forks

    compile_in_own_forks()
    files, found = {file}, FilesVerdict()
    try:
        op = load_op(request.op)
        files |= {path for variant in op.variants for path in variant.files if not path.is_relative_to(PACKAGE)}
    except WorkbenchError as error:
        found = FilesVerdict(str(error))
    stamps = _stamps({*files, *_modules_beside(file)})
    if not found.error:
        found = _compared(op, request)
    send(pickle.dumps(replace(found, files=stamps)))


def _compared(op: Op, request: _Request) -> FilesVerdict:
    from workbench.comparison.compare import compare

    try:
        comparison = compare(op, request.case, request.variants, "sim")
        findings = {trial.variant: _findings(op, comparison, trial.variant) for trial in comparison.trials}
    except WorkbenchError as error:
        return FilesVerdict(str(error))
    return FilesVerdict("", comparison, {name: texts for name, texts in findings.items() if texts is not None})


def _findings(op: Op, comparison: Comparison, name: str) -> tuple[str, ...] | None:
    """Return the findings of one more run, with checks; None for a variant without a kernel that ran."""
    from workbench.analysis.check_report import CheckReport
    from workbench.launch import devices

    trial, variant = comparison[name], op.variant(name)
    if not variant.compiles or trial.outcome not in ("ok", "wrong_result"):
        return None
    problem = op.case(trial.case).problem(trial.config, arch=trial.arch)
    run = functools.partial(variant.run, trial.config, problem, op.case(trial.case).inputs(problem))
    report = run(devices.simulator(trial.arch), checks=True, seconds_limit=_SECONDS_LIMIT)
    return () if report is None else tuple(CheckReport(name, tuple(report.findings), report).lines())


def _modules_beside(file: Path) -> Iterator[Path]:
    """Yield the Python files of the op's folder that its file has imported."""
    for module in list(sys.modules.values()):
        where = getattr(module, "__file__", None)
        if where and where.endswith(".py") and os.path.dirname(where) == str(file.parent):
            yield Path(where)
