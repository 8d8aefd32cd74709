"""Commands with their outcomes: exit status, the message, and whether anything heavy was imported for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from workbench.cli import main

HEAVY = ("torch", "triton", "numpy")
PROGRAM = """
import contextlib, io, json, sys
from workbench.cli import main
commands, heavy = map(json.loads, sys.argv[1:])
for words in commands:
    said, status = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words.split())
        except SystemExit as leaving:
            status = leaving.code
    print(json.dumps([status, [name for name in heavy if name in sys.modules], said.getvalue()]))
"""


def outcomes(commands: list[str]) -> list[tuple[int, list[str], str]]:
    """Run commands in a fresh process; return the status of each, the heavy modules so far, and the output."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands), json.dumps(HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


REFUSED = {
    "nothing to check": ("check", "Missing argument 'OP' (a name, or FILE.py:NAME), or --kernelbench."),
    "nothing to occupy": ("occupancy", "Missing argument 'OP' (a name, or FILE.py:NAME), or both --block and"),
    "command": ("tnue", "No such command 'tnue'. Did you mean tune?"),
    "op of check": ("check paged_atention", "Did you mean paged_attention?"),
    "op of compare": ("compare paged_atention", "Did you mean paged_attention?"),
    "op of trace": ("trace paged_atention", "Did you mean paged_attention?"),
    "op of tune": ("tune paged_atention", "Did you mean paged_attention?"),
    "op of bench": ("bench paged_atention", "Did you mean paged_attention?"),
    "benchmark": ("bench predct", "Did you mean predict?"),
    "op of occupancy": ("occupancy paged_atention", "Did you mean paged_attention?"),
    "op of compare-code": ("compare-code paged_atention", "Did you mean paged_attention?"),
    "file": ("compare no_such_file.py:rows", "FILE.py:NAME of a file that exists"),
    "file without a name": ("trace my_ops.py", "Name the op behind it: my_ops.py:my_op"),
    "nothing like it": ("check zzz", "Declare your own op with @workbench.op"),
    "budget": ("tune paged_attention --budget 3x", "budget: got '3x'"),
    "no budget": ("tune paged_attention --budget 0", "budget: got '0'"),
    "model": ("compare paged_attention --model h20", "Did you mean h200?"),
    "model of trace": ("trace paged_attention --model h20", "Did you mean h200?"),
    "model of tune": ("tune paged_attention --model h20", "Did you mean h200?"),
    "model of run": ("run --model h20 x.py", "Did you mean h200?"),
    "device": ("compare paged_attention --device cud", "Did you mean cuda?"),
    "device of tune": ("tune paged_attention --device smi", "Choose one of these"),
    "condition": ("compare paged_attention --fail-if nonsense", "fail_if: got 'nonsense'"),
    "kind of schema": ("schema compar", "Did you mean compare?"),
    "option": ("compare paged_attention --devise sim", "No such option"),
    "no op": ("compare", "Missing argument 'OP'"),
}


def test_wrong_words_are_refused_before_anything_heavy_is_imported():
    found = outcomes([words for words, _ in REFUSED.values()])
    for (name, (_, told)), (status, heavy, text) in zip(REFUSED.items(), found, strict=True):
        assert told in text, name
        assert (status, heavy) == (2, []), name


DONE = ["--version", "--help", "compare --help", "check --help", "run --help", "tune --help", "bench --help", "schema"]


def test_what_needs_nothing_heavy_imports_nothing_heavy():
    assert [found[:2] for found in outcomes(DONE)] == [(0, [])] * len(DONE)


OP = """import workbench as wb

@wb.op
def twice(x):
    return 2 * x

twice.case("small", x=wb.randn(4, 64))
RIGHT = '''extern "C" __global__ void twice(float *out, const float *x) {
    out[blockIdx.x * 64 + threadIdx.x] = FACTOR * x[blockIdx.x * 64 + threadIdx.x];
}'''
twice.cuda(RIGHT.replace("FACTOR", "2"), grid=lambda x: x.shape[0], block=64, args=("out", "x"))

@wb.op
def thrice(x):
    return 3 * x

thrice.case("small", x=wb.randn(4, 64))
thrice.cuda(RIGHT.replace("FACTOR", "2"), grid=lambda x: x.shape[0], block=64, args=("out", "x"))
"""

FINISHED = {
    "right": ("compare {file}:twice --device sim --save {folder}/base.json", 0),
    "wrong": ("compare {file}:thrice --device sim", 1),
    "one of several": ("compare {file}:twice --device sim --case small --case large", 2),
    "checked": ("check {file}:twice --seeds 1 --skip-elsewhere", 0),
    "checked and wrong": ("check {file}:thrice --seeds 1 --skip-elsewhere", 1),
    "traced": ("trace {file}:twice", 0),
    "no such op in the file": ("compare {file}:twise --device sim", 2),
    "no such baseline": ("compare {file}:twice --device sim --against {folder}/none.json", 2),
    "a saved file of nothing": ("diff {file} {file}", 2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("statuses")
    (made / "doubled.py").write_text(OP)
    return made


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in FINISHED])
def test_statuses_of_commands_that_run(name, folder):
    words, expected = FINISHED[name]
    done = CliRunner().invoke(main, words.format(file=folder / "doubled.py", folder=folder).split())
    assert done.exit_code == expected, done.output


def test_a_define_behind_a_program_is_the_programs_and_the_reader_is_told(monkeypatch):
    monkeypatch.setattr("workbench.programs.running.run_program", lambda *words, **options: 0)
    told = CliRunner().invoke(main, ["run", "a.cu", "-DBUG", "-x"]).output
    assert told.splitlines() == [
        "workbench: -DBUG goes to the program, as all that stands behind a.cu. For the compiler: --nvcc '-DBUG', "
        "before a.cu."
    ]
    assert CliRunner().invoke(main, ["run", "a.cu", "BUG"]).output == ""
