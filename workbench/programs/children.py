"""The processes that a program under ``workbench run`` starts: simulated as the program is, with one report.

The environment carries the options to a new process, whose ``sitecustomize`` (in ``child/``) reads them. What is
launched elsewhere than in the program's own process is written to a folder, a file for each process.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.host_calls import HostCall
from workbench.analysis.launches import Launches
from workbench.base.terminal import say
from workbench.driver.simulated import library_path
from workbench.driver.torch_device.child_processes import CHILD_FOLDER, in_front_of
from workbench.programs.launch_page import PageRow, page_row

if TYPE_CHECKING:
    from workbench.analysis.launches import Launch
    from workbench.errors import KernelFault

VARIABLE = "WORKBENCH_RUN"
_PYTHON, _LIBRARY = "WORKBENCH_PYTHON", "WORKBENCH_LIBPYTHON"  # which driver/library/interpreter.cpp reads


@contextmanager
def shared(options: dict[str, Any], arch: str) -> Iterator[RunLaunches]:
    """Share the launches of a program with the processes that it starts, which are simulated with ``options``.

    The ``nvcc`` that they find compiles for ``arch``.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-run-") as folder:
        ours = _variables(options, folder, arch)
        kept = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield RunLaunches(Path(folder), os.getpid())
        finally:
            for name, value in kept.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _variables(options: dict[str, Any], folder: str, arch: str) -> dict[str, str]:
    """Return the environment by which a process joins: Python by its start, another by the libraries it loads."""
    variables = {
        VARIABLE: json.dumps({"options": options, "folder": folder}),
        "WORKBENCH_NVCC_ARCH": arch.replace("sm_", "compute_"),
        "PYTHONPATH": in_front_of(CHILD_FOLDER, "PYTHONPATH"),
        "LD_LIBRARY_PATH": in_front_of(library_path().parent, "LD_LIBRARY_PATH"),
    }
    if (library := shared_python()) is not None:
        variables |= {_PYTHON: sys.executable, _LIBRARY: str(library)}
    return variables


def shared_python() -> Path | None:
    """Return this Python's shared library, which a program in machine code can load; None where there is none."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL"), Path(sys.base_prefix) / "lib"]
    folders += [Path(folder) / (sysconfig.get_config_var("MULTIARCH") or "") for folder in folders[:1] if folder]
    return next((path for folder in folders if folder and (path := Path(folder) / name).is_file()), None)


def given() -> tuple[RunLaunches, dict[str, Any]]:
    """In a process that the program started: where its launches go, and the options."""
    run = json.loads(os.environ[VARIABLE])
    return RunLaunches(Path(run["folder"]), 0), run["options"]


@dataclass(frozen=True)
class Elsewhere:
    """One launch of another process, or what came of one: the number of its findings, and their reports.

    ``kernel`` is "" where it is of a launch that has been told; ``row`` is that of the page, where a trace was asked
    for.
    """

    process: int
    kernel: str
    count: int
    texts: tuple[str, ...]
    row: PageRow | None = None
    fault: bool = False


def leave() -> None:
    """In a process that a run started: have a run of its own instead, as a worker of pytest-xdist has."""
    os.environ.pop(VARIABLE, None)
    sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "__module__", "") != "sitecustomize"]


class RunLaunches(Launches):
    """Launches of the process ``owner``; those of any other, a fork of it too, go to files in ``folder``."""

    def __init__(self, folder: Path, owner: int):
        super().__init__()
        self._folder, self._owner = folder, owner
        self._told: set[tuple[object, ...]] = set()

    def add(self, *launch: Any, **options: Any) -> Launch:
        """Keep a launch as `Launches.add` does; in another process what is new goes to its file."""
        row = super().add(*launch, **options)
        if os.getpid() != self._owner:
            reports = self.unseen(row)
            texts = tuple(str(report) for report in reports)
            page = page_row(row) if row.report.has_statistics else None
            self._write(Elsewhere(os.getpid(), row.kernel.label, sum(map(len, reports)), texts, page))
        return row

    def note(self, label: str, notes: Sequence[str]) -> Launch | None:
        """Add notes as `Launches.note` does."""
        row = super().note(label, notes)
        if row is not None and os.getpid() != self._owner:
            reports = self.unseen(row)
            texts = tuple(str(report) for report in reports)
            self._write(Elsewhere(os.getpid(), "", sum(map(len, reports)), texts))
        return row

    def failed(self, fault: KernelFault) -> None:
        """Keep a fault as `Launches.failed` does; in another process it goes to its file."""
        super().failed(fault)
        if os.getpid() != self._owner:
            self._write(Elsewhere(os.getpid(), "", 1, (f"a launch ended early: {fault}",), fault=True))

    def called(self, call: HostCall) -> None:
        """Keep a call as `Launches.called` does; in another process it goes to a file of such calls."""
        super().called(call)
        if os.getpid() != self._owner:
            self._append(f"{os.getpid()}.calls", [call.name, call.shape])

    def all_host_calls(self) -> list[HostCall]:
        """Return the calls of libraries on the host, in whichever process."""
        lines = [line for path in sorted(self._folder.glob("*.calls")) for line in path.read_text().splitlines()]
        return [*self.host_calls, *(HostCall(*json.loads(line)) for line in lines)]

    def unseen(self, row: Launch) -> list[Any]:
        """The report of a launch with what no earlier one had, in a list; an empty one where there is nothing new."""
        from workbench.analysis.check_report import CheckReport

        keys = [(one.kernel, one.kind, one.sides) for one in row.findings]
        new = tuple(one for key, one in zip(keys, row.findings, strict=True) if key not in self._told)
        notes = tuple(note for note in row.notes if (row.kernel.label, note) not in self._told)
        doubts = [one for one in row.report.notes if (one.kernel, one.kind, one.sides) not in self._told]
        self._told.update(keys, ((row.kernel.label, note) for note in notes))
        self._told.update((one.kernel, one.kind, one.sides) for one in doubts)
        report = CheckReport(row.kernel.label, new, replace(row.report, notes=doubts), notes)
        return [report] if new or notes or doubts else []

    def elsewhere(self) -> list[Elsewhere]:
        """Return what other processes launched, process by process."""
        rows = []
        for path in sorted(self._folder.glob("*.jsonl"), key=lambda path: int(path.stem)):
            for line in path.read_text().splitlines():
                given = json.loads(line)
                row = given["row"] and PageRow(**given["row"] | {"process": given["process"]})
                rows.append(Elsewhere(**given | {"texts": tuple(given["texts"]), "row": row}))
        return rows

    def _write(self, one: Elsewhere) -> None:
        if not self._append(f"{os.getpid()}.jsonl", asdict(one)):
            for text in one.texts:
                say(f"workbench: {text}", err=True)

    def _append(self, name: str, row: Any) -> bool:
        """Add a line to a file; False where the program has ended before this process."""
        try:
            with open(self._folder / name, "a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError:
            return False
        return True
