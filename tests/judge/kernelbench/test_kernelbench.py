"""Solutions in KernelBench's format: honest ones pass, cheats fail by name, and sizes shrink by the stated rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from solutions import CHEATS, HONEST, NORM_SUMMED_IN, PROBLEMS, scale

import workbench as wb
from workbench.cli import main
from workbench.driver.torch_device.library import installed_torch
from workbench.errors import ArgumentError
from workbench.judge.kernelbench.problem import BUDGET, KernelBenchProblem

_TORCH = installed_torch()
_TAKES_GPU_BUILD = pytest.mark.skipif(
    _TORCH is None or _TORCH.problem is not None, reason="takes torch's build for CUDA 13"
)
_QUICK = {"triton scale", "a captured graph", "a decoy", "computed on the host", "no finding kept"}


def _marked(names: dict) -> list:
    return [name if name in _QUICK else pytest.param(name, marks=pytest.mark.long) for name in names]


def written(folder: Path, problem: str, solution: str) -> tuple[Path, Path]:
    """Write the two files, the problem at awkward sizes that take moments."""
    files = folder / "problem.py", folder / "solution.py"
    files[0].write_text(PROBLEMS[problem].replace("4096", "61").replace("16384", "250").replace("2048", "64"))
    files[1].write_text(solution)
    return files


@_TAKES_GPU_BUILD
@pytest.mark.parametrize("name", _marked(HONEST))
def test_an_honest_solution_passes(tmp_path, name):
    found = wb.check_kernelbench(*written(tmp_path, *HONEST[name]), full=True, torch_compile=False)
    assert found.ok, str(found)
    verdict = found.verdicts[0]
    assert verdict.launches == 1 or "autotuned" in name or "graph" in name
    assert verdict.torch_compile_seconds is None
    assert (verdict.predicted_seconds or 0.0) > 0
    assert ("copy_" in verdict.operators) == ("clone" in HONEST[name][1]), verdict.operators
    assert {"x100", "negative", "nan", "minus_inf"} <= set(verdict.elsewhere)


@_TAKES_GPU_BUILD
def test_loading_a_solution_obeys_the_limit(tmp_path):
    solution = "print('A' * (3 << 20), flush=True)\nwhile True: pass\n"
    found = wb.check_kernelbench(*written(tmp_path, "scale", solution), full=True, seconds=1)
    assert found.outcome == "timeout", str(found)
    assert "while it was loaded: stopped after 1 s of CPU time" in found.verdicts[0].message
    assert found.verdicts[0].printed_bytes > 3 << 20
    assert "it printed 3 MiB" in str(found.verdicts[0])


@_TAKES_GPU_BUILD
@pytest.mark.parametrize("kind", ["float16", pytest.param("float32", marks=pytest.mark.long)])
def test_a_sum_in_16_bits_is_named_with_its_line(tmp_path, kind):
    solution = NORM_SUMMED_IN.replace("KIND", kind)
    line = next(at for at, text in enumerate(solution.splitlines(), 1) if "tl.sum(" in text)
    found = str(wb.check_kernelbench(*written(tmp_path, "norm", solution), full=True, torch_compile=False, seeds=1))
    said = f"float32 is summed in float16 at solution.py:{line}, which keeps 10 of its 23 bits"
    assert (said in found) == (kind == "float16"), found


@_TAKES_GPU_BUILD
@pytest.mark.parametrize("name", _marked(CHEATS))
def test_a_cheat_fails_by_name(tmp_path, name):
    outcome, solution = CHEATS[name]
    found = wb.check_kernelbench(*written(tmp_path, "scale", solution), full=True, torch_compile=False)
    assert found.outcome == outcome, str(found)
    if outcome == "out_of_bounds":
        assert found.verdicts[0].line.startswith("solution.py:")


@_TAKES_GPU_BUILD
@pytest.mark.long
@pytest.mark.parametrize(("name", "left"), [("triton scale", ()), ("triton matmul", ("mm",))])
def test_the_reference_by_torch_compile_has_a_predicted_time_beside_it(tmp_path, name, left):
    files = written(tmp_path, *HONEST[name])
    found = wb.check_kernelbench(*files, full=True)
    verdict = found.verdicts[0]
    assert (verdict.torch_compile_seconds or 0.0) > 0, str(found)
    assert verdict.torch_compile_operators == left
    assert "the reference by torch.compile" in str(verdict)
    assert type(found).from_dict(json.loads(found.to_json())) == found
    assert wb.check_kernelbench(*files, full=True).verdicts[0].torch_compile_seconds == verdict.torch_compile_seconds


@_TAKES_GPU_BUILD
@pytest.mark.long
def test_a_reference_that_torch_compile_refuses_says_why_it_has_no_time(tmp_path):
    files = written(tmp_path, *HONEST["triton scale"])
    refused = "torch.relu(x * self.weight) if not x.is_cuda else 1 / 0"
    files[0].write_text(files[0].read_text().replace("torch.relu(x * self.weight)", refused))
    verdict = wb.check_kernelbench(*files, full=True).verdicts[0]
    assert verdict.ok
    assert verdict.torch_compile_seconds is None
    assert "ZeroDivisionError" in verdict.torch_compile_message


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("scale", {"batch_size": 2048, "dim": 2048}),
        ("matmul", {"M": 256, "K": 256, "N": 512}),
        ("softmax", {"batch_size": 2048, "input_shape[0]": 4096}),
    ],
)
def test_sizes_are_halved_until_the_budget_is_kept(tmp_path, name, used):
    path = tmp_path / "problem.py"
    path.write_text(PROBLEMS[name])
    problem = KernelBenchProblem.read(path)
    fitted = problem.fitted()
    assert fitted.used == used
    assert fitted.cost().bytes <= BUDGET.bytes
    assert fitted.cost().instructions <= BUDGET.instructions
    assert problem.cost().bytes > BUDGET.bytes or problem.cost().instructions > BUDGET.instructions


def test_a_size_that_the_model_needs_is_kept(tmp_path):
    path = tmp_path / "problem.py"
    model = 'assert x.shape[1] == 16384, "meant for 16384"\n        return'
    path.write_text(PROBLEMS["scale"].replace("        return torch", f"        {model} torch"))
    used = KernelBenchProblem.read(path).fitted().used
    assert "dim" not in used
    assert used["batch_size"] < 4096


@pytest.mark.parametrize(
    ("problem", "message"), [("x = 1", "without Model, get_inputs"), ("1 +", "problem: got"), ("1 / 0", "ZeroDivision")]
)
def test_a_file_that_is_no_problem_is_refused(tmp_path, problem, message):
    path = tmp_path / "problem.py"
    path.write_text(problem)
    with pytest.raises(ArgumentError, match=message):
        KernelBenchProblem.read(path)


@_TAKES_GPU_BUILD
def test_the_command_prints_the_judges_json(tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason='python -m pip install -e ".[test]"')
    from workbench.judge.verdict import SCHEMA_FILE

    files = written(tmp_path, "scale", CHEATS["torch alone"][1])
    found = CliRunner().invoke(main, ["check", "--kernelbench", *map(str, files), "--json"])
    printed = json.loads(found.stdout)
    jsonschema.validate(printed, json.loads(SCHEMA_FILE.read_text()))
    assert (found.exit_code, printed["outcome"]) == (14, "no_kernel")
    assert "torch ran mul, relu" in printed["verdicts"][0]["message"]


@_TAKES_GPU_BUILD
@pytest.mark.long
def test_the_command_judges_several_pairs_a_line_of_json_each(tmp_path):
    pairs = []
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        solution = HONEST["triton scale"][1] if name == "good" else CHEATS["a decoy"][1]
        pairs += ["--kernelbench", *map(str, written(tmp_path / name, "scale", solution))]
    options = ["--json", "--full", "--skip-torch-compile"]
    found = CliRunner().invoke(main, ["check", *pairs, *options])
    assert [json.loads(line)["outcome"] for line in found.stdout.splitlines()] == ["ok", "no_kernel"]
    assert found.exit_code == 14


def test_options_of_other_ways_are_refused():
    found = CliRunner().invoke(main, ["check", "--kernelbench", "problem.py", "solution.py", "--all-configs"])
    assert "all_configs: got given; allowed: no value with --kernelbench" in found.output + str(found.exception)


_STEEP = HONEST["triton softmax"][1].replace("tl.exp(row - tl.max(row, 0))", "tl.exp(row)")


@_TAKES_GPU_BUILD
def test_a_softmax_without_its_maximum_is_wrong_on_large_inputs(tmp_path):
    found = wb.check_kernelbench(*written(tmp_path, "softmax", _STEEP), torch_compile=False)
    own, *changed = found.verdicts
    assert own.ok, str(found)
    assert found.outcome == "wrong_elsewhere"
    assert {one.case for one in changed} >= {"full, x100", "full, x10000", "full, large_mean"}
    assert "negative" in own.elsewhere
    alone = wb.check_kernelbench(*written(tmp_path, "softmax", _STEEP), torch_compile=False, elsewhere=False)
    assert alone.ok
    assert alone.verdicts[0].elsewhere == ()


@_TAKES_GPU_BUILD
@pytest.mark.long
@pytest.mark.parametrize("full", [True, False])
def test_a_solution_for_one_size_is_not_held_to_others_at_its_own_sizes(tmp_path, full):
    problem, solution = HONEST["triton softmax"]
    made_for = solution.replace(
        "y = torch.empty_like(x)", "assert x.shape == (61, 8192)\n        y = torch.empty_like(x)"
    )
    found = wb.check_kernelbench(*written(tmp_path, problem, made_for), full=full, torch_compile=False)
    assert found.ok == full, str(found)
    told = found.verdicts[0].notes[0] if full else found.verdicts[1].message
    assert ("it is made for its sizes" in told) if full else ("wrong at input_shape[0]=" in told)


@_TAKES_GPU_BUILD
@pytest.mark.parametrize(
    ("then", "answer"), [("* 4 / 4", "the same computation in 15,250"), ("+ 1e-9", "not the same")]
)
def test_the_launches_of_a_solution_are_repeated_on_elements(tmp_path, then, answer):
    """Its operators too."""
    files = written(tmp_path, "scale", scale(f"return scaled(x, self.weight) {then}"))
    found = wb.check_kernelbench(*files, full=True, torch_compile=False, seeds=1, elsewhere=False, exact=True)
    assert found.ok, str(found)  # a difference fails nobody
    assert found.verdicts[0].exact.startswith(answer)
    words = "every element of out is a number more than the reference's"
    assert (words in found.verdicts[0].exact_difference) == (answer == "not the same")
