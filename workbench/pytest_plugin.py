"""``pytest --simulated-gpu``: a simulated GPU for a test suite; with ``--gpu-check`` a finding fails its test.

With ``--gpu-prove`` the kernels of its launches are proved, and a refuted one fails it.

The plugin does nothing without the option. Options reach pytest-xdist's workers, and results come back in the reports.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from workbench.analysis.launches import Launches
    from workbench.programs.children import RunLaunches
    from workbench.proof.launches import Known
    from workbench.ptx import Finding

_MARK = "gpu_findings_ok"
_SECTION = "simulated GPU"
_OPTIONS = (
    "gpu_devices", "gpu_check", "gpu_schedules", "gpu_prove", "gpu_trace", "gpu_first_config", "gpu_seconds_limit",
)  # fmt: skip
_LAUNCHES, _FINDINGS, _INSTRUCTIONS, _KERNEL = "gpu_launches", "gpu_findings", "gpu_instructions", "gpu_kernel"
_FINDING, _PROOF = "gpu_finding", "gpu_proof"
_PROVED = "proofs of launches"
_EFFORT = 12_000_000
"""Resources of one proof, in Z3's own count: about six seconds."""
_MOST_LISTED = 5
_MOST_CACHED = 2**28
"""Bytes that torch's allocator may cache from one test to the next; the device's memory is memory of the host."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group "simulated GPU"."""
    group = parser.getgroup("simulated GPU")
    group.addoption(
        "--simulated-gpu", nargs="?", const="h200", metavar="MODEL",
        help="give torch, Triton and CUDA programs a simulated GPU (default model: h200)",
    )  # fmt: skip
    group.addoption("--gpu-devices", type=int, default=0, metavar="N", help="the number of devices (default: 1)")
    group.addoption("--gpu-check", action="store_true", help="watch every launch; a finding fails its test")
    group.addoption(
        "--gpu-schedules", type=int, default=0, metavar="N",
        help="with --gpu-check, run each launch in N other orders first; values that change are a finding",
    )  # fmt: skip
    group.addoption(
        "--gpu-prove", action="store_true",
        help="prove the kernels that tests launch, for all sizes that the launches stand for; a refuted one fails its "
        "test",
    )  # fmt: skip
    group.addoption("--gpu-trace", metavar="DIR", help="write a page for each test with its launches, line by line")
    group.addoption(
        "--gpu-first-config",
        action="store_true",
        help="take the first configuration of each Triton autotuner that runs; a suite that keeps tuned files of its "
        "own keeps these, so give it another folder",
    )
    group.addoption("--gpu-seconds-limit", type=float, metavar="S", help="the time limit of a launch in seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the device before a conftest imports torch."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker ``gpu_findings_ok``."""
    config.addinivalue_line("markers", f"{_MARK}(reason): findings of --gpu-check do not fail this test")


def _start(config: pytest.Config, options: Any) -> None:
    if options.simulated_gpu is None:
        for name in _OPTIONS:
            if getattr(options, name):
                raise pytest.UsageError(f"--{name.replace('_', '-')} needs --simulated-gpu")
        return
    from workbench.base.progress import announce_by
    from workbench.driver.simulated import default_memory
    from workbench.driver.torch_device.starting import refuse_interpreter
    from workbench.errors import WorkbenchError
    from workbench.programs import children
    from workbench.programs.device_options import DeviceOptions
    from workbench.programs.running import start_devices

    devices = DeviceOptions(
        model=options.simulated_gpu, devices=options.gpu_devices or 1, check=options.gpu_check,
        schedules=options.gpu_schedules, trace=options.gpu_trace is not None, counts=True, prove=options.gpu_prove,
        seconds_limit=options.gpu_seconds_limit, first_config=options.gpu_first_config,
        memory_gib=default_memory() / 2**30 / int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    )  # fmt: skip
    if options.gpu_trace is not None and importlib.util.find_spec("anywidget") is None:
        raise pytest.UsageError("--gpu-trace needs anywidget: python -m pip install anywidget")
    if options.gpu_prove and importlib.util.find_spec("z3") is None:
        raise pytest.UsageError('--gpu-prove needs Z3: python -m pip install "kernel-workbench[proof]"')
    children.leave()
    announce_by(functools.partial(_uncaptured, config))
    stack = contextlib.ExitStack()
    try:
        refuse_interpreter()
        launches = stack.enter_context(children.shared(devices))
        start_devices(launches, devices)
    except WorkbenchError as error:
        stack.close()
        raise pytest.UsageError(str(error)) from error
    config.add_cleanup(stack.close)
    config.add_cleanup(gc.freeze)  # decoded kernels are millions of objects, which the interpreter's end would visit
    folder = Path(options.gpu_trace).absolute() if options.gpu_trace is not None else None
    config.pluginmanager.register(SimulatedGpu(launches, folder), "workbench-simulated-gpu")


def _uncaptured(config: pytest.Config, text: str) -> None:
    """Print a line on stderr although pytest captures it."""
    manager: Any = config.pluginmanager.getplugin("capturemanager")
    with manager.global_and_fixture_disabled() if manager is not None else contextlib.nullcontext():
        print(f"\n{text}", file=sys.stderr, flush=True)


class SimulatedGpu:
    """Plugin object that attributes launches and findings to the tests that caused them."""

    def __init__(self, launches: RunLaunches, folder: Path | None):
        self._launches, self._folder = launches, folder
        self._elsewhere = 0
        self._totals, self._kernels = Counter[str](), Counter[str]()  # counts of the running test
        self._places: list[str] = []
        self._proofs: list[tuple[str, str]] = []
        self._known_proofs: Known = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Add the launches of a test's phase to its report, and fail the phase for findings."""
        report: Any = yield
        self._keep(item, report)
        self._prove(item, report)
        if report.when == "teardown":
            _free_cached()
        if report.when == "teardown" and self._totals:
            totals = dict(self._totals) | {_INSTRUCTIONS: sum(self._kernels.values())}
            report.user_properties += totals.items()
            heaviest = self._kernels.most_common(_MOST_LISTED)
            report.user_properties += [(_KERNEL, f"{name} {count}") for name, count in heaviest]
            report.user_properties += [(_FINDING, place) for place in self._places]
            self._totals, self._kernels, self._places = Counter(), Counter(), []
        if report.when == "teardown" and self._proofs:
            report.user_properties += [(_PROOF, f"{kernel} {status}") for kernel, status in self._proofs]
            self._proofs = []
        return report

    def _prove(self, item: pytest.Item, report: Any) -> None:
        """Prove the kernels of a test's phase; fail it for one that is refuted."""
        seen = self._launches.seen.take_all()
        if not seen:
            return
        from workbench.proof.launches import prove_launches

        proofs = prove_launches(seen, effort=_EFFORT, known=self._known_proofs)
        self._proofs += [(one.kernel, one.status) for one in proofs]
        refuted = [one for one in proofs if one.status == "refuted"]
        texts = [str(one) for one in proofs if one.status != "proved" or one.remark]
        if texts:
            report.sections.append((_PROVED, "\n".join(texts)))
        if refuted and item.get_closest_marker(_MARK) is None and report.outcome == "passed":
            report.outcome = "failed"
            report.longrepr = "\n".join(f"refuted: {one.kernel}: {one.counterexample}" for one in refuted)

    def _keep(self, item: pytest.Item, report: Any) -> None:
        from workbench.analysis.check_report import fault_text
        from workbench.errors import HostCallFault

        own = self._launches.take()
        elsewhere = self._launches.elsewhere()[self._elsewhere :]
        self._elsewhere += len(elsewhere)
        faults = sum(not isinstance(fault, HostCallFault) for fault in own.faults)
        launches = len(own) + faults + len(own.refused) + len(elsewhere)
        if not launches and not own.faults:
            return
        texts = [str(row.check) for row in own if row.findings]
        texts += [fault_text(fault) for fault in own.faults]
        texts += [one.report for one in own.unasked]
        texts += [f"in process {one.process}: {text}" for one in elsewhere if one.count for text in one.texts]
        findings = len(own.findings) + sum(one.count for one in elsewhere)
        self._totals.update({_LAUNCHES: launches, _FINDINGS: findings})
        for row in own:
            self._kernels[row.kernel.label] += row.report.instructions
        self._write_page(item, report, own)
        if texts:
            texts.append(f"To stop inside: workbench run --debug-on-finding -m pytest -s {shlex.quote(item.nodeid)}")
            report.sections.append((_SECTION, "\n".join(texts)))
            if item.get_closest_marker(_MARK) is not None:
                return
            self._places += [_placed(finding, item) for finding in own.findings]
            if not own.findings:
                self._places.append(_placed(None, item))
            if report.outcome == "passed":
                report.outcome = "failed"
                report.longrepr = f"{findings} finding{'s' if findings != 1 else ''} on the simulated GPU"

    def _write_page(self, item: pytest.Item, report: Any, own: Launches) -> None:
        if self._folder is not None and len(own):
            from workbench.programs.launch_page import write_page

            name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in item.nodeid)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_page(own, self._folder / f"{name}.{report.when}.html", title=item.nodeid)


def _free_cached() -> None:
    """Free the blocks that torch's allocator caches, if they exceed 256 MiB."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    devices = range(torch.cuda.device_count())
    if sum(torch.cuda.memory_reserved(one) - torch.cuda.memory_allocated(one) for one in devices) > _MOST_CACHED:
        torch.cuda.empty_cache()


def _placed(finding: Finding | None, item: pytest.Item) -> str:
    """Return a finding as ``path:line: message``; the line is the test's if the kernel's file lies outside the root."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or item.config.rootpath).resolve()
    line = finding.kernel_line or finding.line if finding is not None else None
    if finding is not None and line:
        source = Path(finding.kernel_source if finding.kernel_line else finding.source).resolve()
        if source.is_relative_to(root):
            return f"{source.relative_to(root)}:{line}: {finding.message.replace(f'{root}{os.sep}', '')}"
    path, at, _ = item.reportinfo()
    name = Path(path).resolve()
    what = finding.message if finding is not None else "a finding in a process that the test started"
    return f"{name.relative_to(root) if name.is_relative_to(root) else name}:{(at or 0) + 1}: {what}"


def _annotation(place: str) -> str:
    """Return the workflow command with which GitHub Actions shows a finding on a line of the pull request."""
    path, line, message = place.split(":", 2)
    escapes = {"%": "%25", "\r": "%0D", "\n": "%0A"}
    text = "".join(escapes.get(letter, letter) for letter in message.strip())
    name = "".join((escapes | {":": "%3A", ",": "%2C"}).get(letter, letter) for letter in path)
    return f"::error file={name},line={line},title={_SECTION}::{text}"


def _counted(proofs: Mapping[str, set[str]]) -> str:
    """Return the number of kernels by verdict; of a kernel with several the worst counts."""
    order = ("refuted", "unknown", "proved")
    worst = {kernel: min(found, key=order.index) for kernel, found in proofs.items()}
    counts = Counter(worst.values())
    unknown = [kernel for kernel, status in worst.items() if status == "unknown"]
    named = f" ({', '.join(unknown[:_MOST_LISTED])}{', ...' * (len(unknown) > _MOST_LISTED)})" if unknown else ""
    return f"kernels: {counts['proved']} proved, {counts['refuted']} refuted, {counts['unknown']} unknown{named}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print launches, instructions and findings of the simulated GPU, summed over all workers."""
    if config.getoption("simulated_gpu", None) is None:
        return
    from workbench.driver.torch_device import library

    totals: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    places: dict[str, None] = {}
    proofs: dict[str, set[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == _KERNEL:
                    kernel, _, count = value.rpartition(" ")
                    kernels[kernel] += int(count)
                elif name == _FINDING:
                    places[value] = None
                elif name == _PROOF:
                    kernel, _, status = value.rpartition(" ")
                    proofs.setdefault(kernel, set()).add(status)
                elif name in (_LAUNCHES, _FINDINGS, _INSTRUCTIONS):
                    totals[name] += value
    terminalreporter.section(_SECTION)
    found = f", {totals[_FINDINGS]} findings" if config.getoption("gpu_check") else ""
    terminalreporter.line(f"{totals[_LAUNCHES]} launches, {totals[_INSTRUCTIONS]:,} instructions{found}")
    if config.getoption("gpu_prove"):
        terminalreporter.line(_counted(proofs))
    torch = library.installed_torch()
    if torch is not None and torch.problem is not None:
        terminalreporter.line(torch.problem)
    for kernel, count in kernels.most_common(_MOST_LISTED):
        terminalreporter.line(f"  {count:>16,} {kernel}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for place in places:
            terminalreporter.line(_annotation(place))
