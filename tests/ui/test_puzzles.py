"""Puzzles: what their checks say about wrong answers, each of which is a solution of the notebooks with one mistake."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ui.puzzles import NAMES, puzzle
from workbench.ui.puzzles.feedback import cells_of
from workbench.ui.puzzles.task import LANGUAGES

FOLDER = Path(__file__).parents[2] / "notebooks" / "puzzles"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
HEADER = "import triton\nimport triton.language as tl\n\n\n"
BARRIER = ("__syncthreads();", "")
MAP_AT = "blockIdx.x * blockDim.x + threadIdx.x"


def cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def solutions() -> dict[tuple[str, str], str]:
    """The solutions of the notebooks by puzzle and language: the folded cells, without the magic and the check."""
    found = {}
    for path in NOTEBOOKS:
        for cell in cells(path):
            if "solution" not in cell["metadata"].get("tags", ()):
                continue
            text = source(cell)
            if text.startswith("%%cuda"):
                found[re.search(r"%%cuda (\w+)_solution", text)[1], "CUDA"] = text.split("\n", 1)[1]
            else:
                found[re.search(r"def (\w+)_solution_triton", text)[1], "Triton"] = text.split("\n\n\nfor kernel")[0]
    return found


SOLUTIONS = solutions()

UNTILED_STENCIL = """extern "C" __global__ void stencil_kernel(float *out, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = (i > 0 ? x[i - 1] : 0) + x[i] + (i + 1 < n ? x[i + 1] : 0);
}
"""
ONE_THREAD_SCAN = """extern "C" __global__ void scan_kernel(float *out, const float *x, int cols)
{
    float sum = 0;
    const float *row = x + blockIdx.x * cols;
    if (threadIdx.x == 0)
        for (int c = 0; c < cols; ++c) out[blockIdx.x * cols + c] = sum += row[c];
}
"""
DIRECT_TRANSPOSE = """extern "C" __global__ void transpose_kernel(float *out, const float *x, int rows, int cols)
{
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (r + j < rows && c < cols) out[c * rows + r + j] = x[(r + j) * cols + c];
}
"""
UNTILED_MATMUL = """extern "C" __global__
void matmul_kernel(float *out, const float *a, const float *b, int m, int n, int k)
{
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    if (i < m && j < n)
        for (int s = 0; s < k; ++s) sum += a[i * k + s] * b[s * n + j];
    if (i < m && j < n) out[i * n + j] = sum;
}
"""
TREE = """    for (int s = 64; s > 0; s /= 2) {
        __syncthreads();
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    }
"""
READ_AGAIN = "    for (int c = threadIdx.x; c < cols; c += 32) sum += 0 * row[c];\n    for (int s = 16"
SERIAL = """    __syncthreads();
    if (threadIdx.x == 0)
        for (int s = 1; s < 128; ++s) part[0] += part[s];
"""
STRIDED = "for (int c = threadIdx.x; c < cols; c += 128) sum += row[c];"
CHUNKED = "for (int c = threadIdx.x * 8; c < cols && c < threadIdx.x * 8 + 8; ++c) sum += row[c];"

# puzzle, language, the name of the mistake, and how the solution is changed (pairs), or a text that replaces it
WRONG = [
    ("map", "CUDA", "input copied", [("x[i] * x[i]", "x[i]")]),
    ("map", "CUDA", "block index left out", [(MAP_AT, "threadIdx.x")]),
    ("map", "CUDA", "index off by one", [(MAP_AT, f"{MAP_AT} + 1")]),
    ("map", "CUDA", "neighbouring threads far apart", [(MAP_AT, "threadIdx.x * gridDim.x + blockIdx.x")]),
    ("map", "CUDA", "doubled, not squared", [("x[i] * x[i]", "x[i] + x[i]")]),
    ("map", "CUDA", "thread index left out", [(MAP_AT, "blockIdx.x")]),
    ("map", "Triton", "block size left out", [("tl.program_id(0) * BLOCK", "tl.program_id(0)")]),
    ("zip", "CUDA", "bias taken by the row", [("bias[c]", "bias[r]")]),
    ("zip", "CUDA", "wrong stride of the rows", [("r * cols", "r * rows")]),
    (
        "zip",
        "CUDA",
        "rows and columns swapped",
        [("int c =", "int q ="), ("int r =", "int c ="), ("int q =", "int r =")],
    ),
    ("zip", "CUDA", "columns one after the other", [("r * cols + c", "c * rows + r")]),
    ("zip", "CUDA", "block index of the rows left out", [("blockIdx.y * blockDim.y + ", "")]),
    ("zip", "CUDA", "block index of the columns left out", [("blockIdx.x * blockDim.x + ", "")]),
    ("zip", "CUDA", "block index left out", [("blockIdx.x * blockDim.x + ", ""), ("blockIdx.y * blockDim.y + ", "")]),
    ("zip", "Triton", "row left out", [("tl.program_id(0)", "0")]),
    ("zip", "Triton", "first bias for all", [("bias + c", "bias")]),
    ("guard", "CUDA", "missing guard", [("if (i < n) ", "")]),
    ("guard", "CUDA", "guard off by one", [("i < n", "i <= n")]),
    ("guard", "CUDA", "last element left out", [("i < n", "i < n - 1")]),
    ("guard", "CUDA", "last block left out", [("i < n", "blockIdx.x < n / 128")]),
    ("guard", "CUDA", "negative elements kept", [("fmaxf(x[i], 0)", "x[i]")]),
    ("guard", "Triton", "store without a guard", [(", 0.0), mask=at < n", ", 0.0)")]),
    ("guard", "Triton", "guard off by one", [("at < n", "at <= n")]),
    ("guard", "Triton", "kernel that does not compile", [("value, 0.0", "valu, 0.0")]),
    ("guard", "Triton", "smaller instead of larger", [("tl.maximum", "tl.minimum")]),
    ("stencil", "CUDA", "missing barrier", [BARRIER]),
    ("stencil", "CUDA", "no guard before the first element", [("i > 0 ? x[i - 1] : 0", "x[i - 1]")]),
    ("stencil", "CUDA", "no guard after the last element", [("i < n ? x[i] : 0", "x[i]")]),
    (
        "stencil",
        "CUDA",
        "neighbours in other blocks left out",
        [("i > 0 ? x[i - 1] : 0", "0"), ("i + 1 < n ? x[i + 1] : 0", "0")],
    ),
    ("stencil", "CUDA", "neighbours loaded from global memory", UNTILED_STENCIL),
    (
        "stencil",
        "CUDA",
        "part of the tile not loaded",
        [("    if (threadIdx.x == 127)", "    if (threadIdx.x == 128)")],
    ),
    ("stencil", "CUDA", "index beyond the shared array", [("t = threadIdx.x + 1", "t = threadIdx.x")]),
    ("stencil", "CUDA", "one of the three left out", [("tile[t - 1] + ", "")]),
    ("stencil", "Triton", "no guard before the first element", [("(at >= 1) & (at <= n)", "at <= n")]),
    ("stencil", "Triton", "one of the three left out", [("left + middle + right", "left + right")]),
    ("reduction", "CUDA", "missing barrier", [BARRIER]),
    ("reduction", "CUDA", "last step of the tree left out", [("s > 0", "s > 1")]),
    ("reduction", "CUDA", "neighbouring threads far apart", [(STRIDED, CHUNKED)]),
    ("reduction", "CUDA", "one thread adds while the others wait", [(TREE, SERIAL)]),
    ("reduction", "CUDA", "output read before it is written", [("out[blockIdx.x] =", "out[blockIdx.x] +=")]),
    ("reduction", "CUDA", "columns added by several threads", [("c += 128", "++c")]),
    ("reduction", "Triton", "only the last 128 columns", [("total +=", "total =")]),
    ("reduction", "Triton", "masked elements without a value", [(", other=0.0", "")]),
    ("reduction", "Triton", "first row for all", [("row * cols + c", "c")]),
    ("scan", "CUDA", "missing barrier", [("            __syncthreads();\n", "")]),
    ("scan", "CUDA", "carry left out", [("= carry + part", "= part")]),
    (
        "scan",
        "CUDA",
        "sum without the element itself",
        [("= carry + part[now][t]", "= carry + part[now][t] - x[blockIdx.x * cols + c]")],
    ),
    ("scan", "CUDA", "doubling ends too early", [("s < 128", "s < 32")]),
    ("scan", "CUDA", "one thread does the work of all", ONE_THREAD_SCAN),
    ("scan", "CUDA", "only the last chunk carried", [("carry += part", "carry = part")]),
    ("scan", "Triton", "carry left out", [("carry + tl.cumsum", "tl.cumsum")]),
    ("scan", "Triton", "only the last chunk carried", [("carry += tl", "carry = tl")]),
    ("transpose", "CUDA", "missing barrier", [BARRIER]),
    ("transpose", "CUDA", "bank conflicts", [("[33]", "[32]")]),
    ("transpose", "CUDA", "rows read and columns written", DIRECT_TRANSPOSE),
    ("transpose", "CUDA", "wrong stride of the output's rows", [("* rows + r]", "* cols + r]")]),
    (
        "transpose",
        "CUDA",
        "tile not transposed",
        [("tile[threadIdx.x][threadIdx.y + j]", "tile[threadIdx.y + j][threadIdx.x]")],
    ),
    ("transpose", "CUDA", "rows after the first 8 of a tile left out", [("j < 32", "j < 8")]),
    (
        "transpose",
        "CUDA",
        "blocks not swapped",
        [
            ("c = blockIdx.x * 32 + threadIdx.y", "c = blockIdx.y * 32 + threadIdx.y"),
            ("r = blockIdx.y * 32 + threadIdx.x", "r = blockIdx.x * 32 + threadIdx.x"),
        ],
    ),
    ("transpose", "CUDA", "missing guard", [("if (r < rows && c + j < cols) ", "")]),
    ("transpose", "Triton", "wrong stride of the output's rows", [("c[:, None] * rows", "c[:, None] * cols")]),
    (
        "transpose",
        "Triton",
        "tile not transposed",
        [("tl.trans(tile)", "tile"), ("mask=exists)", "mask=exists, other=0.0)")],
    ),
    ("softmax", "CUDA", "maximum not subtracted", [(" - top", "")]),
    ("softmax", "CUDA", "maximum that starts at 0", [("top = -INFINITY", "top = 0")]),
    ("softmax", "CUDA", "missing barrier", [("top = part[0];\n    __syncthreads();", "top = part[0];")]),
    ("softmax", "CUDA", "not divided by the sum", [(" / sum;", ";")]),
    ("softmax", "CUDA", "maximum not subtracted", [("expf(row[c] - top) / sum", "expf(row[c]) / sum")]),
    ("softmax", "CUDA", "only the last 128 columns in the sum", [("sum += expf", "sum = expf")]),
    (
        "softmax",
        "CUDA",
        "columns after the first 128 left out of the sum",
        [("for (int c = t; c < cols; c += 128) sum += expf(row[c] - top)", "if (t < cols) sum = expf(row[t] - top)")],
    ),
    ("softmax", "Triton", "masked columns counted", [('-float("inf")', "0.0")]),
    ("matmul", "CUDA", "missing barrier", [("        __syncthreads();\n    }", "    }")]),
    ("matmul", "CUDA", "tile of b read with its indices swapped", [("bs[s][x]", "bs[x][s]")]),
    ("matmul", "CUDA", "tile of a read with its indices swapped", [("as[y][s]", "as[s][y]")]),
    ("matmul", "CUDA", "only the first tiles", [("start += 16", "start += k")]),
    (
        "matmul",
        "CUDA",
        "first tiles in every step",
        [("i * k + start + x]", "i * k + x]"), ("(start + y) * n + j]", "y * n + j]")],
    ),
    ("matmul", "CUDA", "tiles not shared", UNTILED_MATMUL),
    ("matmul", "CUDA", "wrong stride of a", [("i * k + start + x]", "i * n + start + x]")]),
    ("matmul", "Triton", "only the last tiles", [("acc += tl.dot", "acc = tl.dot")]),
    ("matmul", "Triton", "multiplied element by element", [("tl.dot(left, right)", "left * right")]),
    ("matmul", "Triton", "first tiles in every step", [("start + tl.arange(0, TILE)", "tl.arange(0, TILE)")]),
    (
        "online_softmax",
        "CUDA",
        "old sums not rescaled",
        [
            ("sum = sum * shrink + weight", "sum += weight"),
            ("weighted = weighted * shrink + weight ", "weighted += weight "),
        ],
    ),
    ("online_softmax", "CUDA", "maximum that starts at 0", [("top = -INFINITY", "top = 0")]),
    (
        "online_softmax",
        "CUDA",
        "lanes added without rescaling",
        [
            ("sum * shrink + sum2 * shrink2", "sum + sum2"),
            ("weighted * shrink + weighted2 * shrink2", "weighted + weighted2"),
        ],
    ),
    ("online_softmax", "CUDA", "row read more than once", [("    for (int s = 16", READ_AGAIN)]),
    ("online_softmax", "CUDA", "old sums not rescaled", [("sum = sum * shrink + weight", "sum = sum + weight")]),
    ("online_softmax", "CUDA", "weights not multiplied by v", [("weight * v[c]", "weight")]),
    ("online_softmax", "CUDA", "value of the lane, not of the column", [("v[c]", "v[threadIdx.x]")]),
    ("online_softmax", "CUDA", "lanes left out", [("s = 16; s > 0", "s = 16; s > 1")]),
    ("online_softmax", "CUDA", "not divided by the sum", [("weighted / sum", "weighted")]),
    ("online_softmax", "Triton", "old sums not rescaled", [("shrink = tl.exp(top - larger)", "shrink = 1.0")]),
    ("online_softmax", "Triton", "masked columns counted", [('other=-float("inf")', "other=0.0")]),
    ("online_softmax", "Triton", "maximum not kept", [("        top = larger\n", "")]),
    ("paged_read", "CUDA", "table not used", [("block_tables[s * max_blocks + t / block_size]", "t / block_size")]),
    ("paged_read", "CUDA", "table of the first sequence for all", [("s * max_blocks + t /", "t /")]),
    (
        "paged_read",
        "CUDA",
        "page and slot swapped",
        [("t / block_size]", "t %% block_size]"), ("t % block_size;", "t / block_size;"), ("%%", "%")],
    ),
    ("paged_read", "CUDA", "tokens beyond the sequence read", [("if (t < seq_lens[s])", "")]),
    ("paged_read", "CUDA", "token taken for its page", [("+ t / block_size]", "+ t]")]),
    ("paged_read", "CUDA", "slot in the page left out", [("slot = t % block_size", "slot = 0")]),
    ("paged_read", "CUDA", "size of a page or of a token left out", [("(page * block_size + slot)", "(page + slot)")]),
    ("paged_read", "CUDA", "size of a page or of a token left out", [("slot) * 64 +", "slot) +")]),
    ("paged_read", "CUDA", "end off by one", [("t < seq_lens[s]", "t <= seq_lens[s]")]),
    ("paged_read", "CUDA", "zeros after the end left out", [("    out[", "    if (t < seq_lens[s]) out[")]),
    ("paged_read", "CUDA", "sequence left out of the output's index", [("(s * max_blocks * block_size + t)", "t")]),
    (
        "paged_read",
        "CUDA",
        "token and sequence swapped",
        [("t = blockIdx.x, s = blockIdx.y", "s = blockIdx.x, t = blockIdx.y")],
    ),
    ("paged_read", "Triton", "tokens beyond the sequence read", [(", mask=exists, other=0.0", "")]),
    ("quantize", "CUDA", "cut off, not rounded", [("rintf", "")]),
    ("quantize", "CUDA", "scale by 128", [("/ 127", "/ 128")]),
    ("quantize", "CUDA", "sign of the largest forgotten", [("fabsf(row[c])", "row[c]")]),
    ("quantize", "CUDA", "missing barrier", [("    __syncthreads();\n    float step", "    float step")]),
    ("quantize", "CUDA", "multiplied by the scale", [("row[c] / step", "row[c] * step")]),
    ("quantize", "CUDA", "cut off, not rounded", [("rintf(row[c] / step)", "(row[c] / step + 0.5f)")]),
    ("quantize", "CUDA", "scale not written", [("if (t == 0) scale[blockIdx.x] = step;", "")]),
    ("quantize", "CUDA", "scale not divided by 127", [("scale[blockIdx.x] = step", "scale[blockIdx.x] = part[0]")]),
    (
        "quantize",
        "CUDA",
        "reciprocal of the scale",
        [("part[0] / 127", "127 / part[0]"), ("row[c] / step", "row[c] * step")],
    ),
    (
        "quantize",
        "CUDA",
        "columns left out of the scale",
        [("c < cols; c += 128) top", "c < 128 && c < cols; c += 128) top")],
    ),
    (
        "quantize",
        "Triton",
        "cut off, not rounded",
        [("tl.extra.cuda.libdevice.rint(values / step)", "(values / step)")],
    ),
]


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


def changed(name: str, language: str, change: list[tuple[str, str]] | str) -> str:
    if isinstance(change, str):
        return change
    text = SOLUTIONS[name, language]
    for old, new in change:
        assert old in text, f"the solution has no {old!r}"
        text = text.replace(old, new)
    return text


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


ENDLESS = "out[threadIdx.x] = 1; while (x[0] == x[0]) ;"
SOME_REACH = "out[threadIdx.x] = x[threadIdx.x]; for (int s = 16; s > 0; s /= 2) if (threadIdx.x < s) __syncthreads();"
READS_FIRST = "out[threadIdx.x] += x[threadIdx.x];"
SMALL_TILE = "__shared__ float t[9]; t[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] = t[127 - threadIdx.x];"
TRAP = 'out[threadIdx.x] = 1; if (threadIdx.x == 5) asm("trap;");'


@pytest.mark.parametrize(
    ("body", "mistakes"),
    [
        ("", ("nothing written",)),
        (ENDLESS, ("kernel that does not end",)),
        (SOME_REACH, ("input copied", "barrier that only some threads reach")),
        (READS_FIRST, ("output read before it is written",)),
        (TRAP, ("trap",)),
        (SMALL_TILE, ("index beyond the shared array",)),
        ("out[threadIdx.x] = 3;", ("wrong values",)),
        ("if (threadIdx.x < 5) out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];", ("elements left out",)),
    ],
)
def test_what_may_go_wrong_in_any_puzzle_is_named(monkeypatch, compiled, body, mistakes):
    monkeypatch.setattr("workbench.ui.puzzles.task._SECONDS", 0.5)
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
    assert len(names) == 3
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
    assert len(solved) == 6
    assert all(cell["metadata"]["jupyter"] == {"source_hidden": True} for cell in solved)
    told = "".join(text for cell in solved for output in cell["outputs"] for text in output["text"])
    assert told.splitlines() == [f"{name} in {language}: solved" for name in names for language in LANGUAGES]
