"""Run a public test suite on the simulated GPU and print its row of docs/SUITES.md.

    python tests/suites/run.py liger FOLDER [--tests 300] [--seed 0] [--workers 2] [--details FILE]

FOLDER is a checkout of the suite (liger, fla, triton), which stays as it is. The tests are drawn by the seed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LIMIT = 120  # seconds for a test


@dataclass(frozen=True)
class Suite:
    """Where the tests of a public suite are, and what it needs on PYTHONPATH."""

    title: str
    tests: tuple[str, ...]
    path: tuple[str, ...] = ()
    model: str = "a100-sxm-80gb"


SUITES = {
    "liger": Suite("Liger-Kernel", ("test/transformers", "test/chunked_loss"), ("src",)),
    "fla": Suite("flash-linear-attention", ("tests/ops",), (".",)),
    "triton": Suite("Triton", ("python/test/unit/language",)),
}
CAUSES = {
    "more memory than the device has": r"OutOfMemoryError|out of memory",
    "several processes": r"NCCL|torch\.distributed|ProcessGroup",
    "the time limit": r"TimeoutError|KernelTimeout|took longer than",
    "the suite is newer than Triton": r"has no attribute|unexpected keyword|cannot import name|No module named",
    "findings": r"findings? on the simulated GPU",
    "an instruction that the machine does not run": r"UnsupportedInstruction|does not run|not supported",
    "another result": r"AssertionError|Mismatched elements|not close",
}

LIMITER = f"""
import signal
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    def late(*_):
        raise TimeoutError("the test took longer than {LIMIT} s")
    signal.signal(signal.SIGALRM, late)
    signal.alarm({LIMIT})
    try:
        return (yield)
    finally:
        signal.alarm(0)
"""


def pytest_of(suite: Suite, folder: Path, plugins: Path, *words: str, minutes: float | None = None) -> str:
    """Run pytest in the suite's folder, on the simulated GPU, and return its output; interrupt it after ``minutes``."""
    path = [str(plugins), *(str(folder / one) for one in suite.path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:nbval", "-o", "addopts=",
        f"--simulated-gpu={suite.model}", *words,
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
    parser.add_argument("--commit", default="")
    parser.add_argument("--details", type=Path, help="write the failures here")
    parser.add_argument("--first-config", action="store_true", help="take an autotuner's first configuration that runs")
    given = parser.parse_args()
    suite, folder = SUITES[given.name], given.folder.absolute()
    with tempfile.TemporaryDirectory() as name:
        plugins = Path(name)
        (plugins / "suite_limiter.py").write_text(LIMITER)
        collected = pytest_of(suite, folder, plugins, "--collect-only", *suite.tests)
        nodes = [line for line in collected.splitlines() if "::" in line and not line.startswith("ERROR")]
        errors = collected.count("ERROR collecting")
        chosen = random.Random(given.seed).sample(nodes, min(given.tests, len(nodes)))
        chosen.sort(key=nodes.index)
        (plugins / "nodes").write_text("\n".join(chosen))
        log = plugins / "junit.xml"
        began = time.monotonic()
        done = pytest_of(
            suite, folder, plugins, "-p", "suite_limiter", "--gpu-check", f"--gpu-seconds-limit={LIMIT}", "-n",
            str(given.workers), "--dist", "loadfile", f"--junitxml={log}",
            *(["--gpu-first-config"] if given.first_config else []), f"@{plugins / 'nodes'}",
            minutes=given.minutes,
        )  # fmt: skip
        minutes = (time.monotonic() - began) / 60
        if not log.is_file():
            sys.exit(done[-4000:])
        cases = list(xml.etree.ElementTree.parse(log).iter("testcase"))
    failed, causes, skipped = [], Counter[str](), 0
    for case in cases:
        problem = next((one for kind in ("failure", "error") if (one := case.find(kind)) is not None), None)
        skipped += case.find("skipped") is not None
        if problem is not None:
            text = f"{problem.get('message', '')}\n{problem.text or ''}"
            causes[cause_of(text)] += 1
            failed.append(f"{case.get('classname')}::{case.get('name')}\n{text}")
    if given.details is not None:
        given.details.write_text("\n\n".join(failed))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton"))
    versions += ", first configurations" if given.first_config else ""
    told = "; ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"
    passed = len(cases) - len(failed) - skipped
    print(
        f"| {suite.title} {given.commit} ({versions}) | {len(nodes)}{f' ({errors} files not)' if errors else ''} | "
        f"{len(cases)} of {len(chosen)} | {passed} | {told} | {skipped} | {minutes:.1f} |"
    )


if __name__ == "__main__":
    main()
