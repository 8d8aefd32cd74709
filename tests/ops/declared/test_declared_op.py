"""``@wb.op``: everything that the built-in ops have, from a declaration."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import softmax_ops
import torch
from softmax_ops import row_softmax

import workbench as wb
from workbench.errors import ArgumentError, StaleTuningWarning, UnknownNameError
from workbench.ops.files import load_op
from workbench.ops.remedies import tune_remedy
from workbench.ops.tuned import SIM_TABLE, TunedEntry, lookup, problem_record
from workbench.tuning.result import table

FILE = Path(softmax_ops.__file__)
KERNELS = ("row_softmax", "row_softmax_kernel")


def test_it_takes_at_most_thirty_lines():
    text = FILE.read_text()
    declaration = text[text.index("@wb.op") : text.index("if __name__")]
    assert len([line for line in declaration.splitlines() if line.strip()]) <= 30


def test_compare_finds_both_kernels_right():
    found = wb.compare(row_softmax)
    assert found.all_correct, str(found)
    assert [trial.variant for trial in found.trials] == ["torch", *KERNELS]
    assert found["row_softmax"].counts["global_load_requests"] > 0
    assert found.op == "row_softmax"


@pytest.mark.parametrize("variant", KERNELS)
@pytest.mark.parametrize("case", ["small", "wide"])
def test_a_trace_names_the_users_lines(variant, case):
    trace = wb.trace(row_softmax, case, variant=variant)
    assert any("x[" in line.text or "x + row" in line.text for line in trace.lines if line.global_requests), str(trace)


def test_it_is_tuned_kept_and_found_again(fresh_home):
    first = wb.tune(row_softmax, ["small"], device="sim", budget=3)
    assert first.best is not None
    assert {trial.variant for trial in first.trials} == set(KERNELS)
    again = wb.tune("row_softmax", "small", device="sim", budget=3)
    assert (again.new, again.reused) == (0, len(first.trials))
    best = lookup("row_softmax", None, row_softmax.case("small").problem())
    assert (best.variant, best.config, best.level) == (first.best.variant, first.best.config, "exact")
    assert lookup(row_softmax, None, row_softmax.case("wide").problem()).level in ("nearest", "default")


@pytest.mark.parametrize("folder", [FILE.parent, Path(sys.prefix)])
def test_a_stale_answer_points_at_the_call_and_names_a_command_that_finds_the_op(fresh_home, monkeypatch, folder):
    monkeypatch.chdir(folder)
    problem, variant = row_softmax.case("small").problem(), row_softmax.variant("row_softmax")
    config = variant.default_config(problem)
    found = TunedEntry("row_softmax", variant.name, problem_record(problem), config, 1e-6, "predicted", "older")
    table.record([found], name=SIM_TABLE, arch="sm_80", description="a device")
    with pytest.warns(StaleTuningWarning) as warned:
        row_softmax(row_softmax.case("small").arguments()["x"], variant="row_softmax")
    assert [Path(one.filename) for one in warned] == [Path(__file__)]
    name = FILE.name if folder == FILE.parent else str(FILE)
    assert str(warned[0].message).endswith(f"Tune again: workbench tune {name}:row_softmax")
    assert load_op(f"{name}:row_softmax") is row_softmax


def test_an_op_that_a_terminal_cannot_name_is_tuned_by_a_call():
    assert tune_remedy(wb.op(lambda x: x, name="own_hidden"), "fast") == "wb.tune(own_hidden, variants='fast')"
    command = "workbench tune paged_attention --variant torch --model h200"
    assert tune_remedy(wb.ops.get("paged_attention"), "torch", "h200") == command


@pytest.mark.parametrize("variant", ["auto", "torch", *KERNELS])
def test_it_is_called_like_its_reference(variant):
    x = torch.randn(3, 100, dtype=torch.float16)
    assert torch.allclose(row_softmax(x, variant=variant), torch.softmax(x, -1), atol=1e-3)
    assert torch.allclose(row_softmax(x=x, variant=variant), torch.softmax(x, -1), atol=1e-3)


@pytest.mark.parametrize("variant", KERNELS)
def test_torch_takes_it_for_one_of_its_own(variant):
    x = torch.randn(3, 128, dtype=torch.float16)
    torch.library.opcheck(row_softmax.library_op(x), (x, variant, None))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def double(x):
        return 2 * row_softmax(x, variant=variant)

    assert torch.allclose(double(x), 2 * torch.softmax(x, -1), atol=2e-3)


def test_a_configuration_is_used_and_checked():
    x = torch.randn(3, 100, dtype=torch.float16)
    config = {"NUM_THREADS": 64, "VEC": 4}
    assert torch.allclose(row_softmax(x, variant="row_softmax", config=config), torch.softmax(x, -1), atol=1e-3)
    with pytest.raises(ArgumentError, match=re.escape("where[0]: cols % VEC == 0")):
        row_softmax(x, variant="row_softmax", config=config | {"VEC": 8})


@pytest.mark.long
def test_the_file_is_a_script():
    done = subprocess.run([sys.executable, str(FILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "row_softmax_kernel" in done.stdout


def test_the_file_is_a_name_for_the_terminal(tmp_path):
    from click.testing import CliRunner

    from workbench.cli import main

    store = str(tmp_path / "store.sqlite")
    options = ["--variant", "row_softmax", "--device", "sim", "--store", store, "--budget", "3"]
    tuned = CliRunner().invoke(main, ["tune", f"{FILE}:row_softmax", *options])
    assert tuned.exit_code == 0, tuned.output
    assert "winner: row_softmax " in tuned.output
    for text, why in ((f"{FILE}:softmax", "row_softmax"), (f"{FILE}", "FILE.py:NAME"), ("no.py:op", "no file")):
        failed = CliRunner().invoke(main, ["compare", text])
        assert failed.exit_code == 2
        assert why in failed.output


def test_it_is_benchmarked_on_every_case():
    from click.testing import CliRunner

    from workbench.cli import main

    done = CliRunner().invoke(main, ["bench", f"{FILE}:row_softmax", "--device", "sim", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {(row["case"].split()[0], row["variant"]) for row in rows} == {
        (case, variant) for case in ("small", "wide") for variant in ("torch", *KERNELS)
    }
    assert all(row["us"] > 0 for row in rows if row["variant"] != "torch")


@pytest.mark.gpu
def test_it_is_benchmarked_on_a_gpu_beside_torch():
    from workbench.comparison.bench.own_op import run

    result = run(row_softmax, ["small"], ["torch", *KERNELS], device="cuda")
    assert result.all_correct, str(result)
    assert all(row.trial.basis == "measured" for row in result.rows)


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["auto", *KERNELS])
def test_on_a_gpu(variant):
    x = torch.randn(3, 104, dtype=torch.float16, device="cuda")
    expected = torch.softmax(x.cpu().double(), -1)
    assert torch.allclose(row_softmax(x, variant=variant).cpu().double(), expected, atol=1e-3)
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(x)
    with torch.cuda.graph(graph):
        out.copy_(row_softmax(x, variant=variant))
    graph.replay()
    assert torch.allclose(out.cpu().double(), expected, atol=1e-3)


@pytest.mark.gpu
def test_compare_on_a_gpu():
    assert wb.compare(row_softmax, device="cuda").all_correct


def test_a_worker_process_takes_an_op_that_only_this_one_has(fresh_home):
    op = scaled()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        run = wb.tune(op, device="sim", executor=pool)
    assert run.outcomes == {"ok": 2}, str(run)


def scaled(source: str = "", name: str = "scaled", **more):
    """An op that no module has: its reference and a kernel as text."""

    @wb.op(name=name)
    def function(x, factor):
        return x * factor

    function.case("small", x=wb.randn(1000), factor=3.0)
    text = (
        source
        or """extern "C" __global__ void scale(float *out, const float *x, float factor, int n)
    { int i = blockIdx.x * THREADS + threadIdx.x; if (i < n) out[i] = x[i] * factor; }"""
    )
    options = {"tune": {"THREADS": (64, 128)}, "grid": "cdiv(n, THREADS)", "block": "THREADS"}
    function.cuda(text, **(options | {"sizes": lambda x: {"n": x.numel()}} | more))
    return function


def test_a_broken_kernel_has_its_outcome(fresh_home):
    wrong = """extern "C" __global__ void scale(float *out, const float *x, float factor, int n)
    { int i = blockIdx.x * THREADS + threadIdx.x;
    #if THREADS == 32
      if (i < n) out[i] = x[i];
    #elif THREADS == 64
      this is no C++
    #elif THREADS == 96
      if (i <= n) out[i + (i == n) * 1000000] = x[i] * factor;
    #else
      if (i < n) out[i] = x[i] * factor;
    #endif
    }"""
    run = wb.tune(scaled(wrong, tune={"THREADS": (32, 64, 96, 128)}), device="sim")
    assert [trial.outcome for trial in run.trials] == ["wrong_result", "compile_error", "launch_error", "ok"]
    assert re.search(r"out\[\d+\] is .*, expected .*; 1,000 of 1,000 elements are wrong", run.trials[0].message)
    told = str(run).splitlines()
    for outcome, threads, why in (("wrong_result", 32, "expected"), ("launch_error", 96, "out-of-bounds: 4 bytes")):
        (at,) = [at for at, line in enumerate(told) if line.startswith(f"  {outcome}: ")]
        assert f"THREADS={threads}: " in told[at + 1]
        assert why in told[at + 1]


def test_a_changed_source_has_rows_of_its_own(fresh_home):
    assert wb.tune(scaled(), device="sim").new == 2
    assert wb.tune(scaled(), device="sim").new == 0
    changed = scaled("""extern "C" __global__ void scale(float *out, const float *x, float factor, int n)
    { int i = threadIdx.x + blockIdx.x * THREADS; if (i < n) out[i] = factor * x[i]; }""")
    assert len(changed.variants) == 2  # torch and the kernel, not its older self
    assert wb.tune(changed, device="sim").new == 2


# -- more than one output, kernel or size -----------------------------------------------------------------------------


def test_several_outputs_and_one_in_place():
    @wb.op(name="own_topped", outputs=("largest", "doubled"), in_place=("count",))
    def function(x, count):
        count += 1
        return x.amax(0), 2 * x

    function.case("small", x=wb.randn(300), count=wb.full(5, 1, dtype="int32"))
    function.cuda(
        """extern "C" __global__ void f(float *largest, float *doubled, const float *x, int *count, int n)
        {
            float most = x[0];
            for (int i = 0; i < n; ++i) { most = fmaxf(most, x[i]); doubled[i] = 2 * x[i]; }
            *largest = most, *count += 1;
        }""",
        grid=1,
        block=1,
        args={"n": "x.numel()"},
    )
    found = wb.compare(function)
    assert found.all_correct, str(found)
    x, count = torch.randn(300), torch.zeros(1, dtype=torch.int32)
    largest, doubled = function(x, count, variant="f")
    assert (largest, count.item()) == (x.max(), 1)
    assert torch.equal(doubled, 2 * x)


def test_two_kernels_with_a_workspace_and_a_template():
    @wb.op(name="own_sum")
    def function(x):
        return x.sum(0, keepdim=True)

    function.case("n", x=wb.rand("n"), n=(100, 5000))
    assert list(function.cases) == ["n n=100", "n n=5000"]
    function.cuda(
        """template <typename T, int STEP> __global__ void parts(T *partial, const T *x, int n)
        { T sum = 0; for (int i = blockIdx.x; i < n; i += STEP) sum += x[i]; partial[blockIdx.x] = sum; }
        extern "C" __global__ void total(float *out, const float *partial)
        { float sum = 0; for (int i = 0; i < BLOCKS; ++i) sum += partial[i]; *out = sum; }""",
        kernel="parts<ctype(x), BLOCKS>",
        tune={"BLOCKS": (1, 8, 64)},
        workspace={"partial": wb.full(0, "BLOCKS")},
        grid="BLOCKS",
        block=1,
        args=("partial", "x", "x.numel()"),
        then=[wb.step("total", grid=1, block=1)],
    )
    run = wb.tune(function, list(function.cases), device="sim", record=False)
    assert run.outcomes == {"ok": 6}, str(run)


def test_an_autotuned_triton_function_brings_its_configurations():
    import triton

    configs = [triton.Config({"BLOCK": 1024}, num_warps=2), triton.Config({"BLOCK": 2048}, num_warps=8, num_stages=2)]
    function = triton.autotune(configs, key=["cols"])(softmax_ops.row_softmax_kernel)
    arguments = ("out", "x", "x.stride(0)", "out.stride(0)", "x.shape[1]")
    made = row_softmax.triton(function, name="autotuned", grid="x.shape[0]", args=arguments)
    try:
        problem = row_softmax.case("small").problem()
        assert made.configurations(problem) == [
            {"BLOCK": 1024, "num_warps": 2, "num_stages": 3},
            {"BLOCK": 2048, "num_warps": 8, "num_stages": 2},
        ]
        assert wb.compare(row_softmax, variants="autotuned").all_correct
    finally:
        row_softmax.variants = tuple(one for one in row_softmax.variants if one.name != "autotuned")


def test_a_gradient_of_ones_own():
    def backward(gradient, out, x):
        return (gradient - (gradient * out).sum(-1, keepdim=True)) * out

    op = wb.op(softmax_ops.row_softmax.contract.function, name="own_softmax_with_gradient", backward=backward)
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(op, (x,))


# -- a published search space -----------------------------------------------------------------------------------------

CONVOLUTION = """
__constant__ float d_filter[filter_height * filter_width];

extern "C" __global__ void convolution(float *out, const float *image, int width, int in_width)
{
    constexpr int COLUMNS = block_size_x * tile_size_x + filter_width - 1;
    constexpr int ROWS = block_size_y * tile_size_y + filter_height - 1;
    __shared__ float tile[ROWS][COLUMNS + use_padding];
    int x0 = blockIdx.x * block_size_x * tile_size_x, y0 = blockIdx.y * block_size_y * tile_size_y;
    int thread = threadIdx.y * block_size_x + threadIdx.x;
    for (int i = thread; i < ROWS * COLUMNS; i += block_size_x * block_size_y) {
        const float *from = image + (y0 + i / COLUMNS) * in_width + x0 + i % COLUMNS;
        tile[i / COLUMNS][i % COLUMNS] = read_only ? __ldg(from) : *from;
    }
    __syncthreads();
    for (int ty = 0; ty < tile_size_y; ++ty)
        for (int tx = 0; tx < tile_size_x; ++tx) {
            int x = threadIdx.x + tx * block_size_x, y = threadIdx.y + ty * block_size_y;
            float sum = 0;
            for (int i = 0; i < filter_height; ++i)
                for (int j = 0; j < filter_width; ++j) sum += tile[y + i][x + j] * d_filter[i * filter_width + j];
            out[(y0 + y) * width + x0 + x] = sum;
        }
}
"""


def convolution():
    """The space of Kernel Tuner's convolution benchmark (van Werkhoven et al.), with a kernel of ours."""

    @wb.op
    def own_convolution(image, d_filter):
        return torch.nn.functional.conv2d(image[None, None], d_filter[None, None])[0, 0]

    own_convolution.case("small", image=wb.rand("height+14", "width+14"), d_filter=wb.rand(15, 15), width=64, height=32)
    own_convolution.cuda(
        CONVOLUTION,
        tune={
            "block_size_x": (1, 2, 4, 8, 16, 32, 48, 64, 96, 112, 128),
            "block_size_y": (1, 2, 4, 8, 16, 32),
            "filter_height": (15,),
            "filter_width": (15,),
            "read_only": (0, 1),
            "tile_size_x": (1, 2, 3, 4, 5, 6, 7, 8),
            "tile_size_y": (1, 2, 3, 4, 5, 6, 7, 8),
            "use_padding": (0, 1),
        },
        where=[
            "block_size_x * block_size_y >= 64",
            "block_size_x * block_size_y <= 1024",
            "tile_size_x * tile_size_y < 30",
            "width % (block_size_x * tile_size_x) == 0 and height % (block_size_y * tile_size_y) == 0",
        ],
        sizes=lambda out: {"height": out.shape[0], "width": out.shape[1]},
        constants={"d_filter": "d_filter"},
        grid=("width // block_size_x // tile_size_x", "height // block_size_y // tile_size_y"),
        block=("block_size_x", "block_size_y"),
        args=("out", "image", "width", "width + 14"),
    )
    return own_convolution


def test_a_published_convolution_is_declared_is_right_and_tunes(fresh_home):
    op = convolution()
    assert len(op.variants[1].configurations(op.case("small").problem())) > 100
    run = wb.tune(op, device="sim", strategy="random", budget=4)
    assert run.outcomes == {"ok": 4}, str(run)


# -- bad input --------------------------------------------------------------------------------------------------------

GOOD = 'extern "C" __global__ void f(float *out, const float *x, int n) { if (n) out[0] = x[0]; }'
BAD = {
    "an unknown name in where": ({"where": ["n % VEK == 0"]}, r"where\[0\].*'VEK'.*out, x, half, n"),
    "an unknown name in grid": ({"grid": "rows"}, r"grid.*'rows'"),
    "an unknown name in args": ({"args": ("out", "y", "n")}, r"args\['x'\].*'y'"),
    "too few arguments": ({"args": ("out", "x")}, r"args.*'n' has none.*3: out, x, n"),
    "too many arguments": ({"args": ("out", "x", "n", "n")}, r"args.*'n' is one too many"),
    "an argument of no parameter": ({"args": {"m": "n"}}, r"args\['m'\].*out, x, n"),
    "an unused tunable": ({"tune": {"VEC": (1, 2)}}, "tune.*'VEC'.*Nothing of own_bad/f reads it"),
    "no legal configuration": ({"tune": {"B": (1, 2)}, "grid": "B", "where": ["B > 2"]}, "none is legal"),
    "an unknown kernel": ({"kernel": "g"}, "kernel.*'g'.*f"),
    "an unknown constant": ({"constants": {"table": 1.0}}, "constants.*'table'.*none"),
    "no expression": ({"grid": "for n"}, "grid.*a Python expression"),
    "a wrong dtype": ({"args": ("out", "half", "n")}, "argument 1 'x'.*float16.*float32"),
    "sizes that fail": ({"sizes": lambda x: {"n": x.shape[7]}}, "sizes.*IndexError"),
    "sizes of no argument": ({"sizes": lambda y: {}}, "sizes.*'y'.*x"),
    "a missing file": ({"source": "nowhere.cu"}, "nowhere.cu"),
    "no source": ({"source": 5}, "source.*int"),
    "several kernels": ({"source": GOOD + GOOD.replace(" f(", " g(")}, "kernel.*2 kernels.*f, g"),
    "a name that the reference has": ({"name": "torch"}, "name.*'torch'"),
    "half a block": ({"block": "n / 2"}, "block.*whole numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["odd[/]", "two words", "1st", "é", 3])
def test_a_name_that_torch_could_not_have(name):
    with pytest.raises(ArgumentError, match=r"name: got .*letters, digits"):
        wb.op(lambda x: x, name=name)
    with pytest.raises(ArgumentError, match="name: got '<lambda>'"):
        wb.op(lambda x: x)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_declaration_names_the_argument_and_leaves_nothing(what):
    @wb.op(name="own_bad")
    def function(x, half):
        return x[:1].clone()

    function.case("small", x=wb.randn(64), half=wb.randn(64, dtype="float16"))
    options, message = BAD[what]
    given = {"source": GOOD, "grid": 1, "block": 32, "sizes": lambda x: {"n": x.numel()}, "args": ("out", "x", "n")}
    with pytest.raises(ArgumentError, match=re.compile(message, re.DOTALL)):
        function.cuda(**(given | options))
    assert [one.name for one in function.variants] == ["torch"]


def test_a_bad_reference_or_case_names_what_is_wrong():
    @wb.op
    def own_nothing(x):
        x + 1

    with pytest.raises(ArgumentError, match=r"reference of own_nothing.*returns nothing.*in_place"):
        own_nothing.case("small", x=wb.randn(4))
    with pytest.raises(ArgumentError, match="paged_attention"):
        wb.op(row_softmax.contract.function, name="paged_attention")

    @wb.op
    def own_pair(x, y):
        return x + y

    with pytest.raises(ArgumentError, match=r"case 'small'.*nothing for y; .*no default\. .*: y=wb.randn\(\.\.\.\)\.$"):
        own_pair.case("small", x=wb.randn(4))
    with pytest.raises(ArgumentError, match=r"reference of own_pair.*RuntimeError.*float32"):
        own_pair.case("small", x=wb.randn(4), y=wb.randn(5))
    with pytest.raises(ArgumentError, match=r"input 'y'.*a tensor.*wb.randn"):
        own_pair.case("small", x=wb.randn(4), y=torch.zeros(4))
    with pytest.raises(ArgumentError, match=r"none of own_pair.*own_pair.case"):
        wb.compare(own_pair)
    assert own_pair.cases == {}
    with pytest.raises(UnknownNameError, match="own_nowhere"):
        wb.compare("own_nowhere")


@pytest.mark.parametrize(("given", "eps"), [({}, 1e-6), ({"eps": 0.5}, 0.5)])
def test_a_case_has_the_reference_s_defaults(given, eps):
    @wb.op
    def own_norm(x, *, eps=1e-6, shift=None):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

    first = own_norm.case("rows", x=wb.randn(2, "cols"), cols=(4, 8), **given)
    assert list(own_norm.cases) == ["rows cols=4", "rows cols=8"]
    for case in own_norm.cases.values():
        assert case.arguments()["eps"] == eps
        x = case.arguments()["x"]
        assert torch.equal(case.reference()["out"], own_norm.contract.function(x.double(), eps=eps))
    assert own_norm.case(first.name) is first
    assert own_norm.case(first.name, cols=16).arguments()["eps"] == eps
    assert own_norm.case(first.name, eps=2.0).arguments()["eps"] == 2.0
    assert own_norm.cases[first.name] is first
    with pytest.raises(ArgumentError, match=r"nothing for x; .*name it: rows cols=4, rows cols=8\.$"):
        own_norm.case("row", cols=16)


def test_a_function_that_makes_an_input_makes_the_same_each_time():
    """A kernel that is right was called wrong: the reference saw other numbers of a global generator."""
    import random

    import numpy as np

    @wb.op
    def own_mask(x, y, z):
        return x * y * z

    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    case = own_mask.case(
        "drawn",
        x=lambda: (torch.rand(64) > 0.5).float(),
        y=lambda: torch.from_numpy(np.random.rand(64).astype(np.float32)),
        z=lambda: torch.tensor([random.random() for _ in range(64)]),
    )
    first, second, other = case.arguments(), case.arguments(), case.override(seed=1).arguments()
    for name in "xyz":
        assert first[name].equal(second[name])
        assert not first[name].equal(other[name]), "another seed draws others"
    assert case.check({"out": first["x"] * first["y"] * first["z"]}).ok
    assert torch.get_rng_state().equal(before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]
    entropy = np.random.default_rng()
    own_mask.case("fresh", x=wb.randn(4), y=lambda: torch.from_numpy(entropy.random(4, np.float32)), z=1.0)
    with pytest.raises(
        ArgumentError, match=r"input 'y': got a function that returns other values each time.*generator"
    ):
        own_mask.case("fresh").reference()


def test_the_only_variant_with_a_kernel_is_the_one_that_is_traced():
    alone = scaled(
        """extern "C" __global__ void scale(float *out, const float *x, float factor, int n)
    { int i = blockIdx.x * THREADS + threadIdx.x; if (i < n) out[i] = x[i] * factor; }""",
        tune={"THREADS": (64,)},
    )
    assert wb.trace(alone).kernel.name == "scale"
    named = r"variant='row_softmax'; in a terminal --variant row_softmax\.$"
    with pytest.raises(ArgumentError, match=rf"missing; allowed: row_softmax, row_softmax_kernel\. .*{named}"):
        wb.trace(row_softmax)
    with pytest.raises(ArgumentError, match=r"variant: missing; .*it has none\. Give own_bare a kernel\.$"):
        wb.trace(wb.op(lambda x: x, name="own_bare"))


def test_the_repr_is_a_line():
    text = repr(row_softmax)
    assert text == "<op row_softmax(x): torch, row_softmax, row_softmax_kernel; cases small, wide>"


def test_a_lambda_may_stand_where_a_text_of_several_lines_ends(tmp_path):
    file = tmp_path / "own_twice.py"
    file.write_text(
        "import workbench as wb\n\n@wb.op\ndef own_twice(x):\n    return 2 * x\n\n"
        "own_twice.case('small', x=wb.randn(64))\n"
        "own_twice.cuda(r'''\nextern \"C\" __global__ void f(float *out, const float *x) {\n"
        "    out[blockIdx.x * 32 + threadIdx.x] = 2 * x[blockIdx.x * 32 + threadIdx.x];\n}\n"
        "''', sizes=lambda x: {'n': x.shape[0]}, grid='n // 32', block=32)\n"
    )
    assert wb.compare(load_op(f"{file}:own_twice")).all_correct
