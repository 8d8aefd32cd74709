"""Run a public test suite on the simulated GPU and print its row of docs/SUITES.md.

    python tests/suites/run.py liger FOLDER [--tests 300] [--seed 0] [--workers 2] [--results FILE]

FOLDER is a checkout of the suite (liger, fla, triton, gluon), which stays as it is. The tests are drawn by the seed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LIMIT = 120  # seconds of processor time for a test
SHARED = 5  # times as long by the clock, where others use the processors too


@dataclass(frozen=True)
class Suite:
    """Where the tests of a public suite are, and what it needs on PYTHONPATH."""

    title: str
    tests: tuple[str, ...]
    path: tuple[str, ...] = ()


SUITES = {
    "liger": Suite("Liger-Kernel", ("test/transformers", "test/chunked_loss"), ("src",)),
    "fla": Suite("flash-linear-attention", ("tests/ops",), (".",)),
    "triton": Suite("Triton", ("python/test/unit/language",)),
    "gluon": Suite("Gluon in Triton", ("python/test/gluon/test_core.py", "python/test/gluon/test_lowerings.py")),
}
CAUSES = {
    "more memory than the device has": r"OutOfMemoryError|out of memory",
    "several processes": r"NCCL|torch\.distributed|ProcessGroup",
    "the time limit": r"TimeoutError|KernelTimeout|took longer than",
    "a worker that died": r"worker '\w+' crashed",
    "the suite is newer than Triton": r"has no attribute|unexpected keyword|cannot import name|No module named",
    "findings": r"findings? on the simulated GPU",
    "an instruction that the machine does not run": r"UnsupportedInstruction|operation not supported",
    "another result": r"AssertionError|Mismatched elements|not close",
}

PLUGIN = f"""
import json
import os
import signal
import time
import pytest

def _seconds():
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    began, until = _seconds(), time.monotonic() + {LIMIT * SHARED}
    def late(*_):
        left = {LIMIT} - (_seconds() - began)
        if left <= 0 or time.monotonic() > until:
            raise TimeoutError("the test took longer than {LIMIT} s")
        signal.alarm(int(left) + 1)
    signal.signal(signal.SIGALRM, late)
    signal.alarm({LIMIT})
    try:
        return (yield)
    finally:
        signal.alarm(0)

def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when in ("setup", "teardown") and report.passed):
        return
    text = str(report.longrepr or "") if report.failed else ""
    text += "".join(f"\\n{{body}}" for name, body in report.sections if report.failed and name == "simulated GPU")
    with open(os.environ["SUITE_RESULTS"], "a") as results:
        print(json.dumps([report.nodeid, report.outcome, text]), file=results)
"""


def pytest_of(
    suite: Suite, model: str, folder: Path, plugins: Path, results: Path, *words: str, minutes: float | None = None
) -> str:
    """Run pytest in the suite's folder, on the simulated GPU, and return its output; interrupt it after ``minutes``."""
    path = [str(plugins), *(str(folder / one) for one in suite.path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    environment["SUITE_RESULTS"] = str(results)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:nbval", "-o", "addopts=",
        f"--simulated-gpu={model}", *words,
    ]  # fmt: skip
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, by children too
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            return process.communicate(timeout=None if minutes is None else 60 * minutes)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # which lets it write what has run
            return process.communicate()[0]


def read_results(path: Path) -> dict[str, tuple[str, str]]:
    """Return the outcome and the message of each test that has run; a failure in any of its phases counts."""
    results: dict[str, tuple[str, str]] = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        node, outcome, text = json.loads(line)
        if results.get(node, ("", ""))[0] != "failed":
            results[node] = (outcome, text)
    return results


def cause_of(text: str) -> str:
    """Return the cause of a failure by its message."""
    return next((cause for cause, pattern in CAUSES.items() if re.search(pattern, text)), "other")


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SUITES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, help="interrupt the run after these; the row counts what has run")
    parser.add_argument("--model", default="a100-sxm-80gb", help="the simulated GPU")
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path, help="keep each test's result here; a later run goes on from there")
    parser.add_argument("--details", type=Path, help="write the failures here")
    parser.add_argument("--first-config", action="store_true", help="take an autotuner's first configuration that runs")
    given = parser.parse_args()
    suite, folder = SUITES[given.name], given.folder.absolute()
    with tempfile.TemporaryDirectory() as name:
        plugins = Path(name)
        results = given.results.absolute() if given.results is not None else plugins / "results"
        (plugins / "suite_plugin.py").write_text(PLUGIN)
        collected = pytest_of(suite, given.model, folder, plugins, results, "--collect-only", *suite.tests)
        nodes = [line for line in collected.splitlines() if "::" in line and not line.startswith("ERROR")]
        errors = collected.count("ERROR collecting")
        chosen = random.Random(given.seed).sample(nodes, min(given.tests, len(nodes)))
        chosen.sort(key=nodes.index)
        known = read_results(results)
        (plugins / "nodes").write_text("\n".join(node for node in chosen if node not in known))
        done = ""
        if not known.keys() >= set(chosen):
            done = pytest_of(
                suite, given.model, folder, plugins, results, "-p", "suite_plugin", "--gpu-check",
                f"--gpu-seconds-limit={SHARED * LIMIT}", "-n", str(given.workers), "--dist", "loadfile",
                *(["--gpu-first-config"] if given.first_config else []), f"@{plugins / 'nodes'}",
                minutes=given.minutes,
            )  # fmt: skip
        known = read_results(results)
    cases = {node: known[node] for node in chosen if node in known}
    if chosen and not cases:
        sys.exit(done[-4000:])
    failed = {node: text for node, (outcome, text) in cases.items() if outcome == "failed"}
    skipped = sum(outcome == "skipped" for outcome, _ in cases.values())
    causes = Counter(cause_of(text) for text in failed.values())
    if given.details is not None:
        given.details.write_text("\n\n".join(f"{node}\n{text}" for node, text in failed.items()))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton"))
    versions += ", first configurations" if given.first_config else ""
    versions += f", seed {given.seed}"
    told = "; ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"
    findings = sum("finding" in text for text in failed.values())
    collected_files = f"{len(nodes):,}" + (f" (all files but {errors})" if errors else "")
    print(
        f"| {suite.title} {given.commit} ({versions}) | {given.model} | {collected_files} | "
        f"{len(cases)} of {len(chosen)} | {len(cases) - len(failed) - skipped} | {told} | {skipped} | {findings} |"
    )


if __name__ == "__main__":
    main()
