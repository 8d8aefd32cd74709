"""The judge: a dozen cheats and more are refused, each by its name, and as many honest candidates pass."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from candidates import CHEAT_FILES, CHEATS, HONEST, HONEST_FILES, RIGHT, declared
from click.testing import CliRunner, Result
from judged_ops import COUNT, TOTAL, counted, doubled, row_softmax, shift_in_place, total
from sampling import long_if
from waiting import gone, wait_until

import workbench as wb
from workbench.cli import main
from workbench.errors import ArgumentError, UnknownNameError, WorkbenchError
from workbench.judge import OUTCOMES, SCHEMA_FILE, Judge, Judgement
from workbench.judge.buffers import Buffers

SCHEMA = json.loads(SCHEMA_FILE.read_text())


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(row_softmax, seeds=1) as made:
        yield made


@pytest.fixture(scope="module")
def narrow() -> Iterator[Judge]:
    """A judge with little memory."""
    with Judge(row_softmax, cases="first", seeds=1, memory_mib=512) as made:
        yield made


@pytest.fixture(scope="module")
def hasty() -> Iterator[Judge]:
    """A judge with little patience."""
    with Judge(row_softmax, cases="first", seeds=1, seconds=3) as made:
        yield made


def written(folder: Path, text: str) -> Path:
    path = folder / "candidate.py"
    path.write_text(text)
    return path


def valid(text: str) -> dict:
    """The JSON that was printed, which the schema allows."""
    jsonschema = pytest.importorskip("jsonschema", reason='python -m pip install -e ".[test]"')
    found = json.loads(text)
    jsonschema.validate(found, SCHEMA)
    return found


def outcomes(judgement: Judgement) -> list[str]:
    valid(judgement.to_json())
    return [verdict.outcome for verdict in judgement]


# -- honest candidates ----------------------------------------------------------------------------------------------

_EVERY_RUN = ("reduced by warps", "cached in dynamic shared memory", "atomics in shared memory")


@pytest.mark.parametrize("name", [long_if(name not in _EVERY_RUN, name) for name in HONEST])
def test_honest_sources_pass(judge: Judge, name: str):
    judgement = judge.check(HONEST[name])
    assert outcomes(judgement) == ["ok", "ok"], judgement
    assert all(verdict.max_error <= verdict.bound and len(verdict.seeds) == 1 for verdict in judgement)


@pytest.mark.parametrize("name", [long_if(name == "a template", name) for name in HONEST_FILES])
def test_honest_files_pass(judge: Judge, tmp_path: Path, name: str):
    judgement = judge.check(written(tmp_path, HONEST_FILES[name]))
    assert outcomes(judgement) == ["ok", "ok"], judgement


def test_an_ops_own_variants_are_judged_in_each_configuration(judge: Judge):
    judgement = judge.check(config="all")
    assert [(one.case, one.config) for one in judgement] == [
        (case, {"NUM_THREADS": threads}) for case in ("first", "odd") for threads in (64, 128)
    ]
    assert judgement.ok
    assert judgement.exit_status == 0
    assert judgement.first_failure is None
    assert "4 of 4 passed" in str(judgement)
    assert "✓ ok" in judgement._repr_html_()


@pytest.mark.parametrize("op", [shift_in_place, counted, total], ids=lambda op: op.name)
def test_arguments_in_place_constants_whole_numbers_and_one_number(op):
    judgement = wb.check(op)
    assert outcomes(judgement) == ["ok"], judgement


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [
        (COUNT.replace("+ x[i], 1", "+ x[i], 2"), "wrong_result"),
        (COUNT.replace("= 0;", "= threadIdx.x ? 0 : out[0];"), "uninitialised"),
        long_if(True, COUNT.replace("int i = threadIdx.x", "int i = threadIdx.x + 1"), "wrong_result"),
        long_if(
            True, COUNT.replace("out[threadIdx.x] = 0", "return").replace("atomicAdd(out", "(void)(out"), "unwritten"
        ),
    ],
)
def test_wrong_counts_are_refused(wrong: str, outcome: str):
    assert outcomes(wb.check(counted, wrong)) == [outcome]


@pytest.mark.parametrize(
    ("wrong", "outcome", "message"),
    [
        (TOTAL.replace("*out = sum", "*out = 9 * sum"), "wrong_result", "out is "),
        (
            TOTAL.replace("*out = sum", "if (!x) *out = sum"),
            "unwritten",
            "out is as it was before the launch, with 1 of 1 elements",
        ),
    ],
)
def test_a_wrong_number_without_dimensions_is_refused(wrong: str, outcome: str, message: str):
    (verdict,) = wb.check(total, wrong, seeds=1)
    assert (verdict.outcome, verdict.message[: len(message)]) == (outcome, message)


# -- cheats ---------------------------------------------------------------------------------------------------------

_OFTEN = (
    "constants", "leaves the output", "right for one shape", "writes past the output", "reads past the input",
    "a race that the usual order hides", "uninitialised shared memory", "atomics into the output", "modifies its input",
    "a barrier for some", "does not compile",
)  # fmt: skip


@pytest.mark.parametrize("name", [long_if(name not in _OFTEN, name) for name in CHEATS])
def test_cheats_are_refused(judge: Judge, name: str):
    outcome, source = CHEATS[name]
    judgement = judge.check(source)
    assert outcome in outcomes(judgement), judgement
    assert not judgement.ok
    assert judgement.first_failure.message
    assert judgement.exit_status not in (0, 2)


_RARELY = (
    "torch beside a kernel", "no function", "an error in its file", "a segmentation fault", "no grid",
    "kills its parent",
)  # fmt: skip


@pytest.mark.parametrize("name", [long_if(name in _RARELY, name) for name in CHEAT_FILES])
def test_cheating_files_are_refused_and_cost_nobody_else(judge: Judge, tmp_path: Path, name: str):
    outcome, text = CHEAT_FILES[name]
    judgement = judge.check(written(tmp_path, text))
    assert outcomes(judgement)[0] == outcome, judgement
    assert judgement.exit_status == OUTCOMES[outcome][0]


def test_a_judge_goes_on_after_all_that(judge: Judge):
    assert judge.check(RIGHT).ok


def test_a_failure_says_what_and_where_and_can_be_repeated(judge: Judge):
    wrong = RIGHT.replace("float m", "if (cols == 33 && t == 5 && blockIdx.x) row -= 33; float m")
    judgement = judge.check(wrong)
    first, odd = judgement
    assert first.ok
    assert judgement.first_failure is odd
    assert odd.place.startswith("out[1, 5] is ")
    assert odd.place in odd.message
    assert f"seed {odd.seeds[0]}" in odd.message
    with Judge(row_softmax, cases="odd", seeds=odd.seeds) as again:
        (repeated,) = again.check(wrong)
    assert (repeated.place, repeated.max_error) == (odd.place, odd.max_error)


def test_a_finding_has_its_line_and_the_tensors_name(judge: Judge):
    verdict = judge.check(CHEATS["writes past the output"][1]).first_failure
    assert verdict.findings[0].line == verdict.line
    number = int(verdict.line.rpartition(":")[2])
    assert "to[cols] =" in CHEATS["writes past the output"][1].splitlines()[number - 1]
    assert "of out, which has" in verdict.message


@pytest.mark.parametrize("further", [2, 7])
def test_further_findings_are_listed_by_kind_and_place(judge: Judge, further: int):
    stores = "".join(f"\nif (t == 1) out[cols * 99 + {i}] = 0;" for i in range(further + 1))
    text = RIGHT.replace("float m", f"{stores}\nfloat m")
    judgement = judge.check(text)
    verdict = judgement.first_failure
    first = text[: text.index("\nif (t == 1)")].count("\n") + 1
    assert len(verdict.findings) == further + 1
    listed = [f"out-of-bounds at {one.line}, 3 times" for one in verdict.findings[1:6]]
    listed += ["2 more, which the JSON has"] * (further == 7)
    assert list(verdict.further) == listed
    assert f"({further} further findings)" in verdict.message
    for text in (judgement._repr_html_(), judgement.markdown()):
        assert "".join("<br>" + one for one in listed) in text
    lines = str(judgement).splitlines()
    for one in verdict.findings[1:6]:
        at = lines.index(f"    {one.line}: {one.message}")
        number = int(one.line.rpartition(":")[2])
        assert lines[at + 1] == f"        {one.line}  {stores.splitlines()[number - first]}"
    assert ("    2 more, which the JSON has" in lines) is (further == 7)


def test_seeds_are_drawn_anew_for_each_description(judge: Judge):
    first, odd = judge.check(RIGHT)
    assert first.seeds != odd.seeds


def test_guard_zones_and_inputs_are_looked_at_beside_the_machines_own_checks():
    case = row_softmax.case("first")
    made = Buffers(case.inputs(case.problem()), (), 0)
    assert made.guards_written() == []
    assert made.changed_inputs() is None
    assert made.unwritten() == ("out[0, 0]", 210, 210)
    out = made.tensors["out"]
    out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(7)
    assert made.guards_written() == ["out"]
    made.tensors["x"][2, 3] += 1
    assert made.changed_inputs() == ("x[2, 3]", 1)


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        ("for (unsigned i = 0; cols; ++i) if (x[i % cols] == 12345.f) break;", "timeout"),
        ("while (cols) if (x[0] == 12345.f) break;", "barrier"),
    ],
)
def test_a_kernel_that_never_ends(hasty: Judge, loop: str, outcome: str):
    judgement = hasty.check(RIGHT.replace("float m", f"{loop} float m"))
    assert outcomes(judgement) == [outcome], judgement


def test_a_file_that_never_ends(hasty: Judge, tmp_path: Path):
    text = declared(before="import time\nwhile True: time.sleep(1)\n")
    assert outcomes(hasty.check(written(tmp_path, text))) == ["timeout"]


@pytest.mark.parametrize(
    ("before", "outcome"),
    [
        ("kept = bytearray(8 << 30)\n", "memory"),
        ("import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'?' * 70)\n  except OSError: pass\n", "invalid"),
    ],
)
def test_a_file_that_takes_or_says_too_much(narrow: Judge, tmp_path: Path, before: str, outcome: str):
    assert outcomes(narrow.check(written(tmp_path, declared(before=before)))) == [outcome]


@pytest.mark.long
def test_a_workspace_of_100_gigabytes_in_a_file(narrow: Judge, tmp_path: Path):
    text = HONEST_FILES["two kernels"].replace('"2 * x.shape[0]"', "25 * 10**9")
    assert outcomes(narrow.check(written(tmp_path, text))) == ["memory"]


def test_a_workspace_of_100_gigabytes():
    op = wb.op(lambda x: x + 1, name="much")
    source = 'extern "C" __global__ void f(float *out, float *room) { out[threadIdx.x] = 1; }'
    op.cuda(source, grid=1, block=8, workspace={"room": wb.full(0, 25 * 10**9)})
    op.case("small", x=wb.randn(8))
    judgement = wb.check(op)
    assert outcomes(judgement) == ["memory"]
    assert "workspace room is float32[25000000000], more than the 4,096 MiB" in judgement.first_failure.message


def test_what_a_candidate_leaves_running_is_ended(narrow: Judge, tmp_path: Path):
    note = tmp_path / "pid"
    before = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    open({str(note)!r}, "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists({str(note)!r}): time.sleep(0.01)
"""
    assert narrow.check(written(tmp_path, declared(before=before))).ok
    wait_until(lambda: gone(int(note.read_text())))


# -- wrong arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidate": "nowhere.cu"}, "There is no /"),
        ({"cases": "nothing"}, "first, odd"),
        ({"cases": []}, "first, odd"),
        ({"variants": "nothing"}, "judged_softmax"),
        ({"seeds": 0}, "1 to 1000"),
        ({"seeds": [-1]}, "whole numbers from 0"),
        ({"seconds": 0}, "more than 0"),
        ({"memory_mib": 1}, "64 or more"),
        ({"config": 3}, "a mapping"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, message: str):
    with pytest.raises(WorkbenchError, match=message):
        wb.check(**({"op": row_softmax} | arguments))


def test_a_candidate_that_stands_for_one_of_several_variants_must_say_which():
    with pytest.raises(
        ArgumentError, match=r"has no variant in CUDA C\+\+ .*def declare\(op\): op\.cuda\('kernel\.cu'"
    ):
        wb.check(row_softmax, RIGHT, variants="torch")
    with pytest.raises(UnknownNameError):
        wb.check(row_softmax, RIGHT, variants="another")
    own = row_softmax.variant("row_softmax")
    twin = replace(own, name="twin")
    with pytest.raises(ArgumentError, match=r"variants='row_softmax'; in a terminal --variant row_softmax\.$"):
        wb.check(row_softmax, RIGHT, variants=[own, twin])


def test_a_torch_variant_is_not_judged(judge: Judge):
    judgement = judge.check(variants="torch")
    assert outcomes(judgement) == ["no_kernel"]


def test_cases_whose_answer_never_changes_are_refused():
    op = wb.op(lambda x: x + 1, name="plus_one")
    op.case("zeros", x=wb.full(0, 8))
    op.cuda('extern "C" __global__ void f(float *out) { out[threadIdx.x] = 1; }', grid=1, block=8)
    with pytest.raises(ArgumentError, match="the same for every seed"):
        wb.check(op)
    op.case("drawn", x=wb.randn(8))
    assert outcomes(wb.check(op)) == ["ok", "wrong_result"]


def test_a_reference_that_fails_is_nobodys_verdict():
    def half(x):
        if x.dtype.is_floating_point and x.itemsize == 8:
            raise ValueError("no float64 here")
        return x / 2

    op = wb.op(half)
    op.case("small", x=wb.randn(8))
    op.cuda('extern "C" __global__ void f(float *out) { out[threadIdx.x] = 1; }', grid=1, block=8)
    with pytest.raises(WorkbenchError, match="the reference fails: ValueError: no float64 here"):
        wb.check(op)


def test_every_outcome_has_a_status_of_its_own():
    statuses = [status for status, _ in OUTCOMES.values()]
    assert len(set(statuses)) == len(statuses)
    assert 2 not in statuses
    assert max(statuses) < 126
    assert SCHEMA["$defs"]["verdict"]["properties"]["outcome"]["enum"] == list(OUTCOMES)


# -- the command ----------------------------------------------------------------------------------------------------

OP = f"{Path(__file__).with_name('judged_ops.py')}:row_softmax"


@pytest.fixture
def workbench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``workbench check`` with these arguments; what it does to the import path is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda *arguments: CliRunner().invoke(main, ["check", *map(str, arguments)])


def test_an_op_in_words_and_a_candidate_as_json(workbench, tmp_path: Path):
    done = workbench(OP, "--case", "odd", "--seeds", 1)
    assert done.exit_code == 0, done.output
    assert "judged_softmax: 1 of 1 passed" in done.output
    path = tmp_path / "candidate.cu"
    path.write_text(RIGHT)
    done = workbench(OP, "--candidate", path, "--json", "--seed", 5, "--seed", 6)
    found = valid(done.output)
    assert (done.exit_code, found["outcome"], found["candidate"]) == (0, "ok", str(path))
    assert [one["seeds"] for one in found["verdicts"]] == [[5, 6], [5, 6]]


@pytest.mark.parametrize("name", ["constants", "writes past the output", "a missing barrier"])
def test_the_status_says_what_failed(workbench, tmp_path: Path, name: str):
    outcome, source = CHEATS[name]
    path = tmp_path / "candidate.cu"
    path.write_text(source)
    done = workbench(OP, "--candidate", path, "--case", "first", "--seeds", 1, "--json")
    found = valid(done.output)
    assert found["outcome"] == outcome
    assert done.exit_code == found["exit_status"] == OUTCOMES[outcome][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.py:f",), "no file /"),
        ((f"{OP}s",), "row_softmax, shift_in_place, counted"),
        (("softmax_of_nobody",), "FILE.py:NAME"),
        ((OP, "--case", "large"), "first, odd"),
        ((OP, "--candidate", "nowhere.cu"), "There is no /"),
        ((OP, "--seeds", 0), "1 to 1000"),
        ((OP, "--seconds", "soon"), "not a valid float"),
    ],
)
def test_wrong_arguments_have_status_2(workbench, arguments: tuple, message: str):
    done = workbench(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_a_file_that_raises_has_status_2(workbench, tmp_path: Path):
    path = tmp_path / "broken_ops.py"
    path.write_text("raise SystemExit(0)\n")
    done = workbench(f"{path}:f")
    assert done.exit_code == 2
    assert "SystemExit" in done.output


def test_the_help_lists_every_outcome(workbench):
    text = workbench("--help").output
    assert all(f"{status:>4}  {name}: " in text for name, (status, _) in OUTCOMES.items())


@pytest.mark.parametrize("change", [{"outcome": "fine"}, {"verdicts": [{}]}, {"more": 1}, {"exit_status": None}])
def test_the_schema_refuses_what_is_no_judgement(change: dict):
    jsonschema = pytest.importorskip("jsonschema", reason='python -m pip install -e ".[test]"')
    found = valid(Judgement("op", "").to_json())
    with pytest.raises(jsonschema.ValidationError):
        valid(json.dumps(found | change))


def test_a_judgement_without_verdicts_is_not_ok():
    nothing = Judgement("op", "")
    assert (nothing.ok, nothing.outcome) == (False, "no_kernel")
    assert nothing.exit_status == OUTCOMES["no_kernel"][0]


# -- a kernel of the op's name ---------------------------------------------------------------------------------------

DOUBLED = """extern "C" __global__ void doubled(float *out, const float *x) {
    out[blockIdx.x * 64 + threadIdx.x] = FACTOR * x[blockIdx.x * 64 + threadIdx.x];
}"""
IN_TRITON = """import triton
from triton import language as tl

@triton.jit
def doubled(out, x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, FACTOR * tl.load(x + at))
"""
NAMED = {
    "text": ("candidate.py", f"doubled = r'''{DOUBLED}'''\n"),
    "a .cu file": ("candidate.cu", DOUBLED),
    "a function of Triton": ("candidate.py", IN_TRITON),
}


@pytest.fixture(scope="module")
def doubling() -> Iterator[Judge]:
    with Judge(doubled, seeds=1, elsewhere=False) as made:
        yield made


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in NAMED])
@pytest.mark.parametrize(("factor", "outcome"), [("2", "ok"), ("3", "wrong_result")])
def test_a_kernel_of_the_ops_name_is_launched_as_its_variant(doubling: Judge, tmp_path, name, factor, outcome):
    file, text = NAMED[name]
    (tmp_path / file).write_text(text.replace("FACTOR", factor))
    assert outcomes(doubling.check(tmp_path / file)) == [outcome]


REFUSED = {
    "plain Python": (
        "no_kernel",
        "def doubled(x):\n    return 2 * x\n",
        "candidate.py has no kernel: give it the CUDA",
    ),
    "a kernel of another name": (
        "not_loaded",
        f"{IN_TRITON.replace('doubled', 'twice')}\ndef doubled(x):\n    twice[(1,)](x, x, 64)\n",
        "Name the kernel doubled, or declare how twice is launched: def declare(op): op.triton(twice, grid=",
    ),
    "nothing": ("not_loaded", "x = 1\n", "doubled in it is nothing"),
    "an error": (
        "not_loaded",
        "import os\nundefined()\n",
        "candidate.py:2: NameError: name 'undefined' is not defined\n",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in REFUSED])
def test_the_refusal_of_a_file_names_it_and_the_case(doubling: Judge, tmp_path, name):
    outcome, text, told = REFUSED[name]
    verdict = doubling.check(written(tmp_path, text)).first_failure
    assert told in verdict.message
    assert (verdict.outcome, verdict.variant, verdict.case) == (outcome, "candidate.py", "small")
    assert str(verdict).startswith(f"doubled/candidate.py on small: {outcome}: ")


def test_of_several_variants_no_kernel_takes_over_a_launch(judge: Judge, tmp_path):
    file = written(tmp_path, IN_TRITON.replace("doubled", "judged_softmax"))
    verdict = judge.check(file).first_failure
    assert "judged_softmax has 0 variants of one kernel in triton" in verdict.message
