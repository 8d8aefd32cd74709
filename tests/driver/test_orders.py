"""Operations that nothing orders, and accesses of the host that come too early.

Each is found with both lines. Run late, it leaves wrong values behind, and its right twin the right ones.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import main
from workbench.driver.order import GONE, HOST_ACCESS, REUSED, UNORDERED
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import HostCallFault, MissingToolError
from workbench.programs.children import RunLaunches
from workbench.programs.running import FOUND, _report
from workbench.ptx import Finding
from workbench.toolchain import nvcc

HERE = Path(__file__).parent
TORCH = installed_torch()
RIGHT = {"kept_pinned", "training", "freed", "default_waits", "callback"}  # pairs that are right in both forms
# Pairs whose values --late leaves as they are: fills that do not interleave, rows chosen by indices, freed memory.
UNSEEN = {"workspace", "chosen_rows", "captured_input"}
KINDS = {
    **dict.fromkeys(("pinned_reuse", "early_read", "numpy_view"), HOST_ACCESS),
    **dict.fromkeys(("managed_read", "early_copy", "ring", "upload_again", "early_result", "managed"), HOST_ACCESS),
    "record_stream": REUSED,
    **dict.fromkeys(("captured_input", "graph_of_host"), GONE),
}
REMEDIES = {UNORDERED: "wait_stream", REUSED: "record_stream", HOST_ACCESS: "ynchronize", GONE: "as long as the graph"}


def marked(program: Path) -> dict[tuple[str, str], int]:
    """Return the lines of a program that end in ``first: pair``, ``second: pair``, or ``both: pair``."""
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(program.read_text().splitlines(), 1):
        found = re.search(r"(?:#|//) (first|second|both): (.+)$", line)
        if found is None:
            continue
        for pair in found[2].split(", "):
            for side in ("first", "second") if found[1] == "both" else (found[1],):
                lines[side, pair] = number
    return lines


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, cwd=HERE, check=False
    )


def rows(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], dict]:
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) > 10, done.stdout + done.stderr
    return {(one["pair"], one["form"]): one for one in found}


def compare_late(late: dict[tuple[str, str], float], in_order: dict[tuple[str, str], float], unseen: set[str]) -> None:
    """Compare values of the late run with those of the run in the order of the calls."""
    assert late.keys() == in_order.keys()
    for (pair, form), value in late.items():
        if form == "fixed" or pair in RIGHT | unseen:
            assert value == in_order[pair, form], (pair, form)
        else:
            assert value != in_order[pair, form], (pair, form)


def values(found: dict[tuple[str, str], dict]) -> dict[tuple[str, str], float]:
    return {key: one["value"] for key, one in found.items()}


def check_findings(program: Path, found: dict[tuple[str, str], dict]) -> None:
    lines = marked(program)
    for (pair, form), row in found.items():
        if form == "fixed" or pair in RIGHT:
            assert not row["found"], row
            continue
        kind = KINDS.get(pair, UNORDERED)
        assert {(one["kind"], one["other"], one["line"]) for one in row["found"]} == {
            (kind, lines["first", pair], lines["second", pair])
        }, row
        assert all(REMEDIES[kind] in one["text"] for one in row["found"])


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
def test_each_pair_of_torch():
    program = HERE / "torch_orders.py"
    done = run(str(program))
    # It ends with a fault of its own, which the watch on pages leaves to Python's handler, and that to the system.
    assert (done.returncode, done.stderr.count("Fatal Python error")) == (-signal.SIGSEGV, 1), done.stderr
    found = rows(done)
    check_findings(program, found)
    compare_late(values(rows(run(str(program), "late", "0"))), values(found), UNSEEN)


@pytest.mark.usefixtures("pycuda")
def test_each_pair_of_pycuda():
    program = HERE / "pycuda_orders.py"
    found = rows(run(str(program)))
    check_findings(program, found)
    late = values(rows(run(str(program), "late", "0")))
    compare_late(late, values(found), set())
    chosen = [values(rows(run(str(program), "late", "4"))) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert {key: one for key, one in chosen[0].items() if key[1] == "fixed"} == {
        key: one for key, one in late.items() if key[1] == "fixed"
    }
    assert chosen[0] != late  # some of it ran earlier


def test_a_cuda_program():
    try:
        nvcc.program()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    program = HERE / "cuda_orders.cu"
    lines, command = marked(program), ("-m", "workbench.cli", "run", "--simulated")
    late, in_order = {}, {}
    for form in ("bug", "fixed"):
        done = run(*command, "--check", str(program), form)
        found = re.findall(
            rf"cuda_orders\.cu:(\d+): ({UNORDERED}|{HOST_ACCESS}|{GONE}): .*at cuda_orders\.cu:(\d+)\)", done.stderr
        )
        pairs = {pair for _, pair in lines} if form == "bug" else set()
        wanted = {(str(lines["second", one]), KINDS.get(one, UNORDERED), str(lines["first", one])) for one in pairs}
        assert set(found) == wanted, done.stderr
        assert done.returncode == (form == "bug"), done.stderr
        assert form == "bug" or "nothing found" in done.stderr
        put_off = run(*command, "--late", str(program), form)
        for text, one in ((done.stdout, in_order), (put_off.stdout, late)):
            one |= {(pair, form): float(value) for pair, form, value in (line.split() for line in text.splitlines())}
    assert len(late) == 18, put_off.stderr
    compare_late(late, in_order, set())


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--late", "--check"], "--check"), (["--late", "--trace", "a.html"], "--trace"), (["--seed", "3"], "--seed")],
)
def test_options_that_do_not_fit(options, named):
    done = CliRunner().invoke(main, ["run", *options, "program.py"])
    assert (done.exit_code, named in done.output) == (2, True), done.output


def test_the_report_of_a_program_that_only_copies(tmp_path, capsys):
    launches = RunLaunches(tmp_path, os.getpid())
    finding = Finding(
        HOST_ACCESS, f"{HOST_ACCESS}: ...", "a copy", block=(0, 0, 0), thread=(0, 0, 0), address=0, buffer=None, line=7,
        source="a.py", other_line=6, other_source="a.py", ptx_line=0, other_ptx_line=None, count=1,
    )  # fmt: skip
    launches.failed(HostCallFault(f"a.py:7: {HOST_ACCESS}: ...", finding))
    assert _report(launches) == FOUND
    assert capsys.readouterr().err.splitlines() == [
        f"workbench: a.py:7: {HOST_ACCESS}: ...",
        "workbench: 0 launches checked, 1 finding",
    ]
