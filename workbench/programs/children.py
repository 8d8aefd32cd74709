"""Child processes of a program under ``workbench run``: they get the same devices and share one report.

The environment carries the options to a new process, whose ``sitecustomize`` (in ``child/``) reads them. Launches in
other processes than the program's own are written to a folder, one file per process.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.host_calls import HostCall
from workbench.analysis.launches import Launches
from workbench.analysis.refused_launches import notes_of
from workbench.analysis.seen_launches import SeenLaunch, SeenLaunches
from workbench.base.terminal import say
from workbench.driver.library_files import library_path
from workbench.driver.torch_device.child_processes import CHILD_FOLDER, in_front_of
from workbench.errors import HostCallFault
from workbench.programs.device_options import DeviceOptions
from workbench.programs.launch_page import PageRow, page_row

if TYPE_CHECKING:
    from workbench.analysis.launches import RecordedLaunch
    from workbench.errors import KernelFault

VARIABLE = "WORKBENCH_RUN"
_PYTHON, _LIBRARY = "WORKBENCH_PYTHON", "WORKBENCH_LIBPYTHON"  # which driver/library/interpreter.cpp reads


@contextlib.contextmanager
def shared(options: DeviceOptions) -> Iterator[RunLaunches]:
    """Yield a program's launches, which the processes that it starts add to; their devices have the same ``options``.

    The ``nvcc`` on their PATH compiles for the devices' architecture. Raises UnknownNameError or ArgumentError for a
    model or an architecture that does not exist.
    """
    folder = tempfile.mkdtemp(prefix="workbench-run-")  # TemporaryDirectory removes it at the end of a fork, too
    try:
        ours = _variables(options, folder)
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
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _variables(options: DeviceOptions, folder: str) -> dict[str, str]:
    """Return the environment by which child processes join: Python's by a sitecustomize, others by their libraries."""
    variables = {
        VARIABLE: json.dumps({"options": options.to_dict(), "folder": folder}),
        "WORKBENCH_NVCC_ARCH": options.code_arch.replace("sm_", "compute_"),
        "PYTHONPATH": in_front_of(CHILD_FOLDER, "PYTHONPATH"),
        "LD_LIBRARY_PATH": in_front_of(library_path().parent, "LD_LIBRARY_PATH"),
    }
    if (library := shared_python()) is not None:
        variables |= {_PYTHON: sys.executable, _LIBRARY: str(library)}
    return variables


def shared_python() -> Path | None:
    """Return this Python's shared library, which a program in machine code can load, or None."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}{sys.abiflags}.so.1.0"
    folders = [sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL"), Path(sys.base_prefix) / "lib"]
    folders += [Path(folder) / (sysconfig.get_config_var("MULTIARCH") or "") for folder in folders[:1] if folder]
    return next((path for folder in folders if folder and (path := Path(folder) / name).is_file()), None)


def given() -> tuple[RunLaunches, DeviceOptions]:
    """Return, in a child process of the program, the launches that it adds to and the options of its devices."""
    run = json.loads(os.environ[VARIABLE])
    return RunLaunches(Path(run["folder"]), 0), DeviceOptions.from_dict(run["options"])


@dataclass(frozen=True)
class ChildEntry:
    """One entry of another process's file: a launch, later notes on one, or a fault.

    ``count`` is the number of new findings, ``texts`` are their reports. ``kernel`` is "" for notes, faults and
    ``refused`` launches, which are not launches of their own. ``row`` is the row of the page, if a trace was asked for.
    """

    process: int
    kernel: str
    count: int
    texts: tuple[str, ...]
    row: PageRow | None = None
    fault: bool = False
    refused: bool = False


def leave() -> None:
    """Leave the run that started this process, so that it can start its own, as a pytest-xdist worker does."""
    os.environ.pop(VARIABLE, None)
    sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "__module__", "") != "sitecustomize"]


class SharedSeenLaunches(SeenLaunches):
    """Launches to prove; processes other than ``owner`` write them to ``folder``."""

    def __init__(self, folder: Path, owner: int):
        super().__init__()
        self._folder, self._owner = folder, owner

    def add(self, launch: SeenLaunch) -> bool:
        """Add a launch as `SeenLaunches.add` does; in another process, write it to the process's file."""
        new = super().add(launch)
        if new and os.getpid() != self._owner:
            with contextlib.suppress(OSError), open(self._folder / f"{os.getpid()}.seen", "ab") as file:
                file.write(base64.b64encode(pickle.dumps(launch)) + b"\n")
        return new

    def take_all(self) -> list[SeenLaunch]:
        """Return the launches of all processes so far, and start anew."""
        for path in sorted(self._folder.glob("*.seen")):
            for line in path.read_bytes().splitlines():
                super().add(pickle.loads(base64.b64decode(line)))
            path.unlink()
        return self.take()


class RunLaunches(Launches):
    """Launches of a run; processes other than ``owner``, forks of it included, also write them to ``folder``."""

    seen: SharedSeenLaunches

    def __init__(self, folder: Path, owner: int):
        super().__init__()
        self._folder, self._owner = folder, owner
        self.seen = SharedSeenLaunches(folder, owner)
        self._told: set[tuple[object, ...]] = set()

    def add(self, *launch: Any, **options: Any) -> RecordedLaunch:
        """Add a launch as `Launches.add` does; in another process, write its new findings to the process's file."""
        row = super().add(*launch, **options)
        if os.getpid() != self._owner:
            reports = self.unseen(row)
            texts = tuple(str(report) for report in reports)
            page = page_row(row) if row.report.has_statistics else None
            self._write(ChildEntry(os.getpid(), row.kernel.label, sum(map(len, reports)), texts, page))
        return row

    def note(self, label: str, notes: Sequence[str]) -> RecordedLaunch | None:
        """Add notes as `Launches.note` does; in another process, write the new ones to the process's file."""
        row = super().note(label, notes)
        if row is not None and os.getpid() != self._owner:
            reports = self.unseen(row)
            texts = tuple(str(report) for report in reports)
            self._write(ChildEntry(os.getpid(), "", sum(map(len, reports)), texts))
        return row

    def failed(self, fault: KernelFault) -> bool:
        """Add a fault as `Launches.failed` does; in another process, write it to the process's file."""
        new = super().failed(fault)
        if new and os.getpid() != self._owner:
            from workbench.analysis.check_report import fault_text

            ended = not isinstance(fault, HostCallFault)
            self._write(ChildEntry(os.getpid(), "", 1, (fault_text(fault),), fault=ended))
        return new

    def settle(self) -> None:
        """Write the refused launches to the process's file, in another process than the owner, whose end this is."""
        if os.getpid() != self._owner:
            refused = self.take_refused()
            found = [one.report for one in refused if not one.asked]
            for text in found:
                self._write(ChildEntry(os.getpid(), "", 1, (text,), refused=True))
            if notes := notes_of(refused):
                self._write(ChildEntry(os.getpid(), "", 0, tuple(notes), refused=True))

    def called(self, call: HostCall) -> None:
        """Add a library call as `Launches.called` does; in another process, write it to a file of such calls."""
        super().called(call)
        if os.getpid() != self._owner:
            self._append(f"{os.getpid()}.calls", [call.name, call.shape])

    def all_host_calls(self) -> list[HostCall]:
        """Return the library calls on the host of all processes."""
        lines = [line for path in sorted(self._folder.glob("*.calls")) for line in path.read_text().splitlines()]
        return [*self.host_calls, *(HostCall(*json.loads(line)) for line in lines)]

    def unseen(self, row: RecordedLaunch) -> list[Any]:
        """Return, in a list, a report of the launch's findings and notes that are new; an empty list without any."""
        from workbench.analysis.check_report import CheckReport

        keys = [(one.kernel, one.kind, one.sides) for one in row.findings]
        new = tuple(one for key, one in zip(keys, row.findings, strict=True) if key not in self._told)
        notes = tuple(note for note in row.notes if (row.kernel.label, note) not in self._told)
        doubts = [one for one in row.report.notes if (one.kernel, one.kind, one.sides) not in self._told]
        self._told.update(keys, ((row.kernel.label, note) for note in notes))
        self._told.update((one.kernel, one.kind, one.sides) for one in doubts)
        report = CheckReport(row.kernel.label, new, replace(row.report, notes=doubts), notes)
        return [report] if new or notes or doubts else []

    def elsewhere(self) -> list[ChildEntry]:
        """Return the launches of other processes, process by process."""
        rows = []
        for path in sorted(self._folder.glob("*.jsonl"), key=lambda path: int(path.stem)):
            for line in path.read_text().splitlines():
                given = json.loads(line)
                row = given["row"] and PageRow(**given["row"] | {"process": given["process"]})
                rows.append(ChildEntry(**given | {"texts": tuple(given["texts"]), "row": row}))
        return rows

    def _write(self, one: ChildEntry) -> None:
        if not self._append(f"{os.getpid()}.jsonl", asdict(one)):
            for text in one.texts:
                say(f"workbench: {text}", err=True)

    def _append(self, name: str, row: Any) -> bool:
        """Append a line to a file; return False if the program has ended, and its folder is gone."""
        try:
            with open(self._folder / name, "a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError:
            return False
        return True
