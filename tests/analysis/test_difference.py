"""Differences of comparisons and traces: figures, source lines, conditions, and the files that they are read from."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.analysis import summary
from workbench.analysis.difference.figures import figure_name, may_have
from workbench.analysis.difference.lines import COUNTS, line_changes
from workbench.base.documents import COMPARED, document
from workbench.cli import main
from workbench.errors import ArgumentError, DocumentError, UnknownNameError
from workbench.ops.files import load_op

OPS = """
import workbench as wb

@wb.op
def doubled(x):
    return 2 * x

doubled.case("small", x=wb.randn(128))
doubled.case("large", x=wb.randn(4096))
doubled.cuda('''extern "C" __global__ void f(float *out, const float *x, int n) {
    for (int i = threadIdx.x; i < n; i += N) {
        BODY
    }
}''', tune={"N": (32, 64)}, grid=1, block="N", args={"n": "x.numel()"})
"""
BODIES = {
    "base": "out[i] = 2 * x[i];",
    "slower": "float once = x[(i + 64) % 128 * 1];\n        out[i] = 2 * x[i] + 0 * once;",
    "wrong": "out[i] = 3 * x[i];",
    "slower where large": "out[i] = 2 * x[i];\n        for (int k = 128; k < n; k += 128) out[i] += 0 * x[k];",
    "wrong where large": "out[i] = n < 1000 ? 2 * x[i] : 3 * x[i];",
}


def workbench(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def op_file(tmp_path: Path, monkeypatch, fresh_home) -> Iterator[Callable[[str], str]]:
    """A function that declares the op with another body, always in the same file."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(body: str) -> str:
        sys.modules.pop("doubled_ops", None)
        (tmp_path / "doubled_ops.py").write_text(OPS.replace("BODY", BODIES[body]))
        return f"{tmp_path}/doubled_ops.py:doubled"

    yield write
    sys.modules.pop("doubled_ops", None)


@pytest.mark.parametrize("command", ["compare", "trace"])
def test_a_pull_request_is_compared_with_what_was_saved(command: str, op_file, tmp_path: Path):
    saved, summary, page = (tmp_path / name for name in ("saved.json", "summary.md", "page.html"))
    done = workbench(command, op_file("base"), "--save", saved)
    assert done.exit_code == 0, done.output
    same = workbench(command, op_file("base"), "--against", saved, "--fail-if", "warp_instructions > 1")
    assert (same.exit_code, "figures are the same" in same.output) == (0, True), same.output
    against = (command, op_file("slower"), "--against", saved)
    worse = ("--fail-if", "warp_instructions > 1.02", "--fail-if", "absolute registers > 999")
    failed = workbench(*against, *worse, "--markdown", summary, "--html", page)
    assert failed.exit_code == 3, failed.output
    assert "warp_instructions is" in failed.output
    for row in ("| ✗ | warp_instructions > 1.02 |", "| ✓ | absolute registers > 999 |"):
        assert row in summary.read_text()
    assert "CONDITIONS FAIL" in page.read_text()
    passed = workbench(*against, "--fail-if", "warp_instructions < 1", "--markdown", summary)
    assert passed.exit_code == 0, passed.output
    assert all(row in summary.read_text() for row in ("✗ | warp_instructions > 1.02", "✓ | warp_instructions < 1"))
    printed = json.loads(workbench(*against, *worse, "--json").stdout)
    assert (printed["schema"], printed["ok"]) == ("workbench-diff/1", False)
    edited = "float once" in failed.output and "requests" in failed.output
    assert edited == (command == "trace"), "a trace shows what each line gained"
    assert workbench(*against, "--save", saved).exit_code == 2, "it would hide what got worse"


def test_a_wrong_variant_is_one_also_beside_a_saved_result(op_file, tmp_path: Path):
    saved = tmp_path / "saved.json"
    workbench("compare", op_file("base"), "--save", saved)
    done = workbench("compare", op_file("wrong"), "--against", saved, "--fail-if", "warp_instructions > 9")
    assert done.exit_code == 1
    assert "f: outcome: ok → wrong_result" in done.output
    assert "warp_instructions is gone" in done.output, "and the check that checks nothing does not pass"


def test_rows_of_several_cases_are_saved_and_paired(op_file, tmp_path: Path):
    saved, summary, page = (tmp_path / name for name in ("saved.json", "summary.md", "page.html"))
    both = ("--case", "small", "--case", "large", "--device", "sim")
    done = workbench("compare", op_file("base"), *both, "--save", saved)
    assert done.exit_code == 0, done.output
    rows = json.loads(saved.read_text())["variants"]
    assert [(row["case_name"], row["variant"]) for row in rows] == [
        ("small", "torch"), ("small", "f"), ("large", "torch"), ("large", "f"),
    ]  # fmt: skip
    assert rows[3]["case"] == "large x float32[4096]"
    pages = ("--markdown", summary, "--html", page)
    limit = ("--fail-if", "warp_instructions > 2")
    failed = workbench("compare", op_file("slower where large"), *both, "--against", saved, *limit, *pages)
    assert failed.exit_code == 3, failed.output
    assert re.search(r"f on large:\s+warp_instructions is", failed.output), failed.output
    assert not re.search(r"f on small:\s+warp_instructions is", failed.output)
    assert "| large | f | warp_instructions |" in summary.read_text()
    assert "<td" in page.read_text()
    assert page.read_text().count("doubled on large x float32[4096], device sim") == 1
    wrong = workbench("compare", op_file("wrong where large"), *both, "--against", saved, "--html", page)
    assert wrong.exit_code == 1
    assert "f on large: outcome: ok → wrong_result" in " ".join(wrong.output.split())
    assert "<dd>a100-sxm-80gb</dd>" in page.read_text()
    gone = workbench("compare", op_file("base"), "--case", "small", "--device", "sim", "--against", saved, *limit)
    assert gone.exit_code == 3
    assert "f on large: warp_instructions is gone" in " ".join(gone.output.split())


def test_several_cases_in_python(op_file, tmp_path: Path):
    op = load_op(op_file("base"))
    found = wb.compare(op, ["small", "large"], "f", device="sim")
    assert found["large"]["f"].counts["warp_instructions"] > found["small"]["f"].counts["warp_instructions"]
    with pytest.raises(UnknownNameError, match="case: got 'huge'; allowed: small, large"):
        found["huge"]
    assert list(found.to_frame().index) == [("small", "f"), ("large", "f")]
    again = wb.diff(found.save(tmp_path / "both.json"), found, fail_if="registers > 1")
    assert (again.ok, again.notes) == (True, ())
    assert again.results[0].checked == ("f on small", "f on large")
    one = wb.diff(found, wb.compare(op, "large", "f", device="sim"))
    assert (one.notes, {change.case for change in one.changes}) == (("f on small: gone",), {"large"})


# -- conditions, on documents made by hand ------------------------------------------------------------------------


def compared(tmp_path: Path, name: str, variants: dict[str, dict[str, Any]], **head: Any) -> Path:
    """A saved comparison: of each variant what differs from figures that are all 10."""
    plain = {
        "language": "cuda",
        "arch": "sm_80",
        "outcome": "ok",
        "message": "",
        "configuration_is": "given",
        "config": {"N": 32},
        "sample": None,
        "remarks": [],
        "exact": None,
        "exact_difference": [],
    }
    plain |= dict.fromkeys(COMPARED.split(), 10) | {"compiler": "nvrtc 13.0.88", "time_is": "predicted"}
    rows = [{"variant": one} | plain | {"predicted_for": "a100-sxm-80gb"} | row for one, row in variants.items()]
    about = {"op": "o", "case": "c", "device": "sim", "machine": "", "written": "", "versions": {"triton": "3.7.1"}}
    path = tmp_path / name
    path.write_text(document("compare", **(about | head), all_correct=True, variants=rows))
    return path


@pytest.mark.parametrize(
    ("condition", "before", "now", "failure"),
    [
        ("warp_instructions > 1.02", {}, {"warp_instructions": 10.2}, ""),
        ("warp_instructions > 1.02", {}, {"warp_instructions": 11}, "f: warp_instructions is 11, 1.100 of 10"),
        ("warp_instructions>=1.1", {}, {"warp_instructions": 11}, "f: warp_instructions is 11, 1.100 of 10"),
        ("occupancy < 0.9", {"occupancy": 1.0}, {"occupancy": 0.5}, "f: occupancy is 0.5, 0.500 of 1"),
        ("registers != 1", {}, {}, ""),
        ("spill_bytes > 1", {"spill_bytes": 0}, {"spill_bytes": 8}, "f: spill_bytes is 8, ∞ of 0"),
        ("spill_bytes > 1", {"spill_bytes": 0}, {"spill_bytes": 0}, ""),
        ("absolute spill_bytes > 0", {"spill_bytes": 8}, {"spill_bytes": 8}, "f: spill_bytes is 8"),
        ("absolute spill_bytes > 0", {"spill_bytes": None}, {"spill_bytes": 0}, ""),
        ("registers > 9", {}, {"registers": None}, "f: registers is gone; it was 10"),
        ("registers > 9", {"registers": None}, {}, "nothing has registers before and now"),
        ("absolute registers > 9", {"registers": None}, {"registers": None}, "nothing has registers"),
        ("seconds > 1.5", {}, {"seconds": 20}, "f: seconds is 20,000,000.00 µs, 2.000 of 10,000,000.00 µs"),
        (
            "seconds > 1.5", {}, {"predicted_for": "h100-sxm"},
            "f: seconds cannot be compared: it is predicted for h100-sxm, and was predicted for a100-sxm-80gb",
        ),
        ("registers > 1.5", {}, {"predicted_for": "h100-sxm"}, ""),
    ],
)  # fmt: skip
def test_a_condition_fails_where_it_holds_or_can_no_longer_be_checked(
    condition: str, before: dict, now: dict, failure: str, tmp_path: Path
):
    files = [compared(tmp_path, name, {"f": row}) for name, row in (("before.json", before), ("now.json", now))]
    found = wb.diff(*files, fail_if=condition)
    assert found.ok == (not failure)
    assert list(found.results[0].failures) == [failure] * bool(failure)
    done = workbench("diff", *files, "--fail-if", condition)
    assert done.exit_code == (3 if failure else 0), done.output
    assert " ".join(failure.split()) in " ".join(done.output.split())


def test_a_variant_that_is_gone_fails_and_a_new_one_does_not(tmp_path: Path):
    before = compared(tmp_path, "before.json", {"f": {}, "g": {}})
    now = compared(tmp_path, "now.json", {"f": {}, "h": {"registers": 99}})
    found = wb.diff(before, now, fail_if=["registers > 1.5", "absolute registers > 64"])
    assert {"h: new", "g: gone"} <= set(found.notes)
    assert [one.failures for one in found.results] == [
        ("g: registers is gone; it was 10",),
        ("h: registers is 99", "g: registers is gone; it was 10"),
    ]


def test_what_differs_beside_the_figures_is_said(tmp_path: Path):
    before = compared(tmp_path, "before.json", {"f": {}})
    row = {"config": {"N": 64}, "arch": "sm_90", "predicted_for": "h100-sxm", "compiler": "nvrtc 13.1.0"}
    sampled = {"sample": {"blocks": 16, "of": 64}}
    now = compared(tmp_path, "now.json", {"f": row | sampled}, versions={"triton": "3.8.0"}, device="cuda")
    found = wb.diff(before, now)
    assert set(found.notes) == {
        "device: sim → cuda",
        "version of triton: 3.7.1 → 3.8.0",
        "f: N: 32 → 64",
        "f: arch: sm_80 → sm_90",
        "f: compiler: nvrtc 13.0.88 → nvrtc 13.1.0",
        "f: blocks that ran: none → 16 of 64",
        "f: times are predicted for a100-sxm-80gb → predicted for h100-sxm: not comparable",
    }
    printed = " ".join(str(found).split())
    assert all(note in printed and note in found.markdown() for note in found.notes)
    other = wb.diff(before, compared(tmp_path, "other.json", {"f": {}}, case="d"))
    assert other.notes == ("case: c → d", "f on d: new", "f on c: gone")
    assert not [one for one in other.changes if one.changed]


def test_a_file_without_cases_in_its_rows_is_of_one_case(tmp_path: Path):
    old = compared(tmp_path, "old.json", {"f": {}})
    same = compared(tmp_path, "same.json", {"f": {"case": "c", "case_name": "c", "registers": 20}})
    found = wb.diff(old, same)
    assert [(one.case, one.subject, one.ratio) for one in found["registers"]] == [("c", "f", 2)]
    other = compared(tmp_path, "other.json", {"f": {"case": "c x float32[8]", "case_name": "c"}})
    assert wb.diff(old, other).notes == ("f on c x float32[8]: new", "f on c: gone")
    resized = compared(tmp_path, "resized.json", {"f": {"case": "c x float32[9]", "case_name": "c"}})
    assert wb.diff(other, resized).notes == ("f on c x float32[9]: new", "f on c x float32[8]: gone")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trace copy_blocks --case a --case b --save A", r"--case: got a, b; allowed: one case with --save"),
        (
            "compare copy_blocks --fail-if registers>1",
            r"--fail-if: got registers>1; allowed: a condition with --against",
        ),
        (
            "compare copy_blocks --against A --fail-if sectors>1",
            r"fail_if: got 'sectors'; allowed: .*, sectors_per_request, ",
        ),
        (
            "trace copy_blocks --against A --fail-if spill_bytes>1",
            r"fail_if: got 'spill_bytes'; allowed: .*, predicted_us, regis",
        ),
        ("trace copy_blocks --against A --fail-if registers_of_f>1", r"is a 'compare', not a trace"),
        ("diff A A --fail-if warp_instructions", r"fail_if: got 'warp_instructions'; allowed: FIGURE > RATIO"),
        ("diff A A --fail-if warp_instructions>1.0.2", r"fail_if: got 'warp_instructions>1.0.2'"),
        ("diff A A --fail-if conflicts>1", r"fail_if: got 'conflicts'; allowed: .*shared_conflicts"),
        ("diff A B", r"now: got op 'p'; allowed: op 'o'"),
    ],
)
def test_a_wrong_argument_exits_with_2_before_anything_runs(words: str, message: str, tmp_path: Path):
    files = {"A": compared(tmp_path, "a.json", {"f": {}}), "B": compared(tmp_path, "b.json", {"f": {}}, op="p")}
    done = workbench(*(files.get(word, word) for word in words.split()))
    assert done.exit_code == 2, done.output
    assert re.search(message, done.output), done.output


def test_every_fact_of_a_trace_is_a_figure_that_a_condition_may_name():
    facts = []
    for node in ast.walk(ast.parse(inspect.getsource(summary))):
        called = isinstance(node, ast.Call) and ast.unparse(node.func) == "Fact"
        rows = node.value.elts if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "rows" else []
        for name in [node.args[0]] if called else [row.elts[0] for row in rows]:
            start = name.values[0] if isinstance(name, ast.JoinedStr) else name
            facts += [start.value] if isinstance(start, ast.Constant) else []  # else the name of a row
    assert sorted(facts) == sorted([*summary.OF_RUN, *summary.OF_KERNEL])
    assert all(may_have("trace", figure_name(fact)) for fact in facts)
    assert may_have("trace", "registers_of_scale")
    assert not may_have("compare", "registers_of_scale")


# -- source lines -------------------------------------------------------------------------------------------------


def lines(*texts: str, path: str = "/a/f.cu") -> list[dict[str, Any]]:
    return [
        {"path": path, "line": number, "text": text} | dict.fromkeys(COUNTS, 0) | {"instructions": 10 * number}
        for number, text in enumerate(texts, 1)
    ]


@pytest.mark.parametrize(
    ("before", "now", "pairs"),
    [
        (("a = 1;", "b = 2;"), ("a = 1;", "b = 2;"), ["1", "2"]),
        (("a = 1;", "b = 2;"), ("  a  =  1;", "c();", "b = 2;"), ["1", "– → 2", "2 → 3"]),
        (("a = 1;", "gone();", "b = 2;"), ("a = 1;", "b = 2;"), ["1", "2 → –", "3 → 2"]),
        (("a = 1;", "y[i] = f(x[i]);", "}"), ("a = 1;", "y[i] = f(x[i + 1]);", "}"), ["1", "2", "3"]),
        (("load(x);", "key[j].load(p);"), ("while (true) {", "key[k].load(p);"), ["1 → –", "– → 1", "2"]),
        (("", ""), ("", ""), ["1", "2"]),
    ],
)
def test_lines_are_aligned_by_their_text(before: tuple, now: tuple, pairs: list[str]):
    found = line_changes(lines(*before), lines(*now, path="/elsewhere/f.cu"))
    assert sorted(one.place for one in found) == sorted(pairs)
    unnamed = line_changes(lines(*before), lines(*now, path="/elsewhere/0123.cu"))
    assert [one.place for one in unnamed] == [one.place for one in found], "the only file of each"


def test_two_traces_of_different_kernels(tmp_path: Path):
    cuda, triton = (wb.trace("copy_blocks", variant=name) for name in ("cuda_vectors", "triton_vectors"))
    found = wb.diff(cuda, triton)
    assert found["warp_instructions"][0].before == cuda.instructions
    assert found["warp_instructions"][0].now == triton.instructions
    assert sum(one.delta("instructions") for one in found.lines) == triton.instructions - cuda.instructions
    assert "variant: cuda_vectors → triton_vectors" in found.notes
    assert "(+" in found._repr_html_()
    again = wb.diff(cuda.save(tmp_path / "cuda.json"), cuda)
    assert not [one for one in (*again.changes, *again.lines) if one.changed]
    with pytest.raises(ArgumentError, match=r"now: got workbench-compare/1; allowed: another workbench-trace/1"):
        wb.diff(cuda, compared(tmp_path, "compared.json", {"f": {}}))
    with pytest.raises(ArgumentError, match="before: got int"):
        wb.diff(3, cuda)


# -- files from outside -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a JSON document"),
        ("[" * 100_000, "nested too deep"),
        ("{}", "not a document of the workbench: its schema is None"),
        ("[1]", "not a document of the workbench"),
        ('{"schema": "pytest/1"}', "its schema is 'pytest/1'"),
        ('{"schema": "workbench-doctor/1", "workbench": "1"}', "is a 'doctor', not a compare or trace"),
        ('{"schema": "workbench-compare/2", "workbench": "9.0"}', "only version 1 is known: workbench 9.0 wrote it"),
        ('{"schema": "workbench-compare/1"}', "damaged or of another version: data must contain"),
        (
            lambda text: text.replace('"registers": 10', '"registers": "many"'),
            r"variants\[0\].registers must be number",
        ),
        (lambda text: text.replace('"registers": 10', '"registers": NaN'), "NaN is not a JSON number"),
        (lambda text: text.replace('"registers": 10', '"registers": 1e999'), "too large"),
        (lambda text: text.replace('"registers": 10', '"registers": 1' + "0" * 5000), "too many digits"),
        (lambda text: text[:-20], "is not a JSON document"),
        (b"\xff\xfe", "is not a JSON document"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_by_name(content: Any, message: str, tmp_path: Path):
    good = compared(tmp_path, "good.json", {"f": {}})
    bad = tmp_path / "bad.json"
    if content is not None:
        text = content(good.read_text()) if callable(content) else content
        bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DocumentError, match=rf"bad\.json.*{message}.*Save one with workbench compare OP --save FILE"):
        wb.diff(bad, good)
    assert workbench("diff", good, bad).exit_code == 2
