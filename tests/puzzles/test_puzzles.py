"""Puzzles: their checks name the mistakes of wrong answers and accept the solutions; their notebooks are complete."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

import pytest
import torch
from wrong_answers import DIRECT_TRANSPOSE, FOLDER, NOTEBOOKS, SOLUTIONS, WRONG, cells, changed, source

import workbench as wb
from workbench.errors import ArgumentError, UnknownNameError
from workbench.puzzles import NAMES, puzzle
from workbench.puzzles.feedback import cells_of
from workbench.puzzles.task import LANGUAGES

HEADER = "import triton\nimport triton.language as tl\n\n\n"


@pytest.fixture
def compiled(tmp_path):
    """A function that compiles a kernel's text."""

    def compile_(text: str, language: str):
        if language == "CUDA":
            return wb.load_cuda(text, device="sim")
        path = tmp_path / "kernel.py"
        path.write_text(HEADER + text + "\n")
        spec = importlib.util.spec_from_file_location("puzzle_kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return next(value for name, value in vars(module).items() if name.endswith("_triton"))

    return compile_


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "language", "mistake", "change"),
    WRONG,
    ids=[f"{name}-{what}-{language}" for name, language, what, _ in WRONG],
)
def test_a_wrong_answer_is_named(compiled, name, language, mistake, change):
    feedback = puzzle(name).check(compiled(changed(name, language, change), language))
    assert not feedback.ok
    assert feedback.mistakes == (mistake,)
    assert mistake.upper() in str(feedback)
    assert mistake in feedback._repr_html_().replace("&#x27;", "'")
    assert all(remark.seen and remark.remedy for remark in feedback.remarks)


def test_every_puzzle_has_wrong_answers_in_both_languages():
    for name in NAMES:
        told = {(language, mistake) for one, language, mistake, _ in WRONG if one == name}
        assert len({mistake for _, mistake in told}) >= 3, name
        assert {language for language, _ in told} == set(LANGUAGES), name


@pytest.mark.parametrize("name", NAMES)
def test_no_sign_sees_its_mistake_in_right_or_random_results(name):
    one = puzzle(name)
    generator = torch.Generator().manual_seed(1)
    for sizes in one.sizes:
        for is_right in (True, False):
            run = one._prepared("CUDA", sizes)
            for key, out in run.outputs.items():
                drawn = (torch.rand(out.shape, generator=generator) * 100).to(out.dtype)
                out.copy_(run.expected[key] if is_right else drawn)
            assert run.is_right == is_right
            assert [mistake.name for mistake in one.mistakes if mistake.sign(run) is not None] == []


@pytest.mark.long  # nbval runs them, too
@pytest.mark.parametrize(("name", "language"), SOLUTIONS)
def test_a_solution_is_right(compiled, name, language):
    feedback = puzzle(name).check(compiled(SOLUTIONS[name, language], language))
    assert feedback.ok, feedback
    assert bool(feedback)
    assert str(feedback).startswith(f"{name} in {language}: solved")
    assert all(goal.ok for goal in feedback.goals)
    assert [goal for goal in feedback.goals if goal.at_most > 2 * max(goal.value, 1)] == [], "no goal is out of reach"


ENDLESS = "out[threadIdx.x] = 1; for (int i = 0; x[i & 3] == x[i & 3]; ++i) ;"
WAITS = "out[threadIdx.x] = 1; while (x[0] == x[0]) ;"
SOME_REACH = "out[threadIdx.x] = x[threadIdx.x]; for (int s = 16; s > 0; s /= 2) if (threadIdx.x < s) __syncthreads();"
READS_FIRST = "out[threadIdx.x] += x[threadIdx.x];"
SMALL_TILE = "__shared__ float t[9]; t[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] = t[127 - threadIdx.x];"
TRAP = 'out[threadIdx.x] = 1; if (threadIdx.x == 5) asm("trap;");'


@pytest.mark.parametrize(
    ("body", "mistakes"),
    [
        ("", ("nothing written",)),
        (ENDLESS, ("kernel that does not end",)),
        (WAITS, ("wait that does not end",)),
        (SOME_REACH, ("input copied", "barrier that only some threads reach")),
        (READS_FIRST, ("output read before it is written",)),
        (TRAP, ("trap",)),
        (SMALL_TILE, ("index beyond the shared array",)),
        ("out[threadIdx.x] = 3;", ("wrong values",)),
        ("if (threadIdx.x < 5) out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];", ("elements left out",)),
    ],
)
def test_what_may_go_wrong_in_any_puzzle_is_named(monkeypatch, compiled, body, mistakes):
    monkeypatch.setattr("workbench.puzzles.task._SECONDS", 0.5)
    text = f'extern "C" __global__ void square(float *out, const float *x) {{ {body} }}'
    feedback = puzzle("map").check(compiled(text, "CUDA"))
    assert feedback.mistakes == mistakes
    assert all(remark.seen and remark.remedy for remark in feedback.remarks)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ('extern "C" __global__ void f(float *out) {}', "parameters (out); allowed: (out, x)"),
        (
            'extern "C" __global__ void f() {}\nextern "C" __global__ void g() {}',
            "a module of f, g; allowed: one kernel",
        ),
        (None, "NoneType; allowed: a kernel in CUDA C++ or Triton"),
    ],
)
def test_what_is_no_kernel_of_the_puzzle_is_refused(kernel, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        puzzle("map").check(wb.load_cuda(kernel, device="sim") if kernel else kernel)


def test_a_triton_kernel_without_its_constant_is_refused(compiled):
    kernel = compiled("@triton.jit\ndef f_triton(out, x, SIZE: tl.constexpr):\n    pass", "Triton")
    with pytest.raises(ArgumentError, match="without BLOCK"):
        puzzle("map").check(kernel)


def test_an_unknown_puzzle_or_language_is_refused():
    with pytest.raises(UnknownNameError, match="guard, stencil"):
        puzzle("gard")
    with pytest.raises(ArgumentError, match="CUDA or Triton"):
        puzzle("map").launch("OpenCL")


def test_hints_come_one_by_one_and_begin_again(capsys):
    one = replace(puzzle("scan"))
    for _ in range(len(one.hints) + 1):
        one.hint()
    told = re.findall(r"hint (\d) of 3", capsys.readouterr().out)
    assert told == ["1", "2", "3", "1"]


def test_a_missed_goal_has_a_picture_of_the_request(compiled):
    conflicts = puzzle("transpose").check(compiled(changed("transpose", "CUDA", [("[33]", "[32]")]), "CUDA"))
    assert "32 wavefronts" in conflicts.picture.headline
    far = puzzle("transpose").check(compiled(DIRECT_TRANSPOSE, "CUDA"))
    assert "32 sectors (4 would do)" in far.picture.headline
    assert far.trace.global_sectors == far.goals[0].value
    assert "out[c * rows + r + j] = x[" in far.remarks[0].line


def test_elements_are_drawn_by_their_state():
    drawn = cells_of("out", [["right"] * 70, ["wrong", "not written"] + ["right"] * 68])
    assert drawn.count("<rect") == 2 + 4
    assert drawn.count("#D55E00") == 1
    assert drawn.count("stroke-dasharray") == 1
    assert "(the first 16 lines)" in cells_of("out", [["right"]] * 17)


def test_a_launch_runs_under_the_tools_of_the_package(compiled):
    kernel = compiled(SOLUTIONS["guard", "CUDA"], "CUDA").guard_kernel
    assert wb.check(kernel, **puzzle("guard").launch("CUDA", 0)).ok
    assert wb.trace(kernel, **puzzle("guard").launch("CUDA")).global_sectors == 250


def test_the_page_shows_the_check_as_it_prints(compiled):
    text = "// a solution without its guard\n" + changed("guard", "CUDA", [("if (i < n) ", "")])
    printed = str(puzzle("guard").check(compiled(text, "CUDA")))
    assert f"```text\n{printed}\n```" in (FOLDER.parents[1] / "docs" / "PUZZLES.md").read_text()


# -- the notebooks ----------------------------------------------------------------------------------------------


def test_every_puzzle_is_in_a_notebook_with_both_kernels_and_folded_solutions():
    assert [name for name, language in SOLUTIONS if language == "CUDA"] == list(NAMES)
    assert [name for name, language in SOLUTIONS if language == "Triton"] == list(NAMES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_mistakes_first_and_has_its_solutions_folded(path):
    code = cells(path)
    assert len(code) < 25
    names = [found[1] for cell in code if (found := re.search(r'puzzle\("(\w+)"\)', source(cell)))]
    assert len(names) in (2, 3)
    for name in names:
        checks = [
            cell for cell in code if re.search(rf"^{name}_puzzle\.check\(my_{name}(_triton)?\)$", source(cell), re.M)
        ]
        assert len(checks) == 2
        for cell in checks:
            told = "".join(cell["outputs"][-1]["data"]["text/plain"])
            assert re.match(rf"{name} in (CUDA|Triton): \d mistakes?\n", told)
            assert "WRONG VALUES" not in told, "the mistake has a name"
        assert any(source(cell).startswith(f"{name}_puzzle.hint()") for cell in code)
    solved = [cell for cell in code if "solution" in cell["metadata"].get("tags", ())]
    assert len(solved) == 2 * len(names)
    assert all(cell["metadata"]["jupyter"] == {"source_hidden": True} for cell in solved)
    told = "".join(text for cell in solved for output in cell["outputs"] for text in output["text"])
    assert told.splitlines() == [f"{name} in {language}: solved" for name in names for language in LANGUAGES]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_right_answer_is_compared_without_a_tolerance(compiled, language):
    """A factor of 1.00001 is no mistake, and no longer the same computation."""
    feedback = puzzle("reduction").check(compiled(SOLUTIONS["reduction", language], language), exact=True)
    assert "\nexact: the same computation in 4 of 4 elements" in str(feedback)
    if language == "CUDA":
        text = SOLUTIONS["reduction", "CUDA"].replace("= part[0]", "= part[0] * 1.00001f")
        feedback = puzzle("reduction").check(compiled(text, "CUDA"), exact=True)
        assert feedback.ok
        assert feedback.exact.same is False
        assert "\n    every element of out is 1.00001 times the specification's\n" in str(feedback)
        assert "a difference fails nothing by itself" in str(feedback)
        assert puzzle("reduction").check(compiled(text, "CUDA")).exact is None
