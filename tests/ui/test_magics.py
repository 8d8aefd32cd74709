"""``%load_ext workbench`` and ``%%cuda``, in an IPython shell without a terminal."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("IPython", reason='no IPython: python -m pip install -e ".[lab]"')

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb
from workbench.errors import CompileError, MissingToolError
from workbench.launch import Trace
from workbench.ptx import LaunchReport
from workbench.toolchain import nvcc

KERNELS = """\
extern "C" __global__ void scale(float *x, int n, float factor) {
  if (threadIdx.x < n) x[threadIdx.x] *= factor;
}
extern "C" __global__ void racy(float *x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[threadIdx.x ^ 32];
}
template <typename T> __global__ void fill(T *x, T value) { x[threadIdx.x] = value; }
#ifdef WITH
extern "C" __global__ void with_macro(float *x) { *x = WITH; }
#endif
"""


class Shell:
    """Runs cells and keeps what came out."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        InteractiveShell.clear_instance()
        self.shell = InteractiveShell.instance(colors="nocolor")
        self.shell.Completer.use_jedi = False
        self.capsys = capsys
        self.shell.run_line_magic("load_ext", "workbench")

    def run(self, cell: str) -> object:
        """The value of the cell's last expression."""
        result = self.shell.run_cell(cell, store_history=True)
        self.out, self.err = self.capsys.readouterr()
        self.error = result.error_in_exec or result.error_before_exec
        return result.result

    def good(self, cell: str) -> object:
        value = self.run(cell)
        assert self.error is None, self.err
        return value

    def complete(self, text: str) -> set[str]:
        with provisionalcompleter():
            return {found.text.removeprefix(".") for found in self.shell.Completer.completions(text, len(text))}


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]):
    yield Shell(capsys)
    InteractiveShell.clear_instance()


def test_a_cell_becomes_a_module(shell: Shell):
    assert shell.good(f"%%cuda\n{KERNELS}") is None
    assert shell.out == shell.err == "", "as silent as a function's definition"
    report = shell.good("import numpy as np\nx = np.ones(32, np.float32)\nkernels.scale(1, 32, x, 16, 3)")
    assert isinstance(report, LaunchReport)
    assert shell.shell.user_ns["x"].tolist() == [3.0] * 16 + [1.0] * 16
    assert re.fullmatch(r"Out\[2\]: <launch of scale: grid 1x1x1, block 32x1x1, \d+ warp instructions>\n", shell.out)
    shell.good('y = np.zeros(32)\nkernels["fill<double>"](1, 32, y, 2.5)')
    assert set(shell.shell.user_ns["y"]) == {2.5}


def test_name_macros_options_and_architecture(shell: Shell):
    shell.good(
        f"%%cuda mine -D WITH=6 -D FLAG --arch sm_89 --std c++20 --option=--use_fast_math --device sim\n{KERNELS}"
    )
    module = shell.shell.user_ns["mine"]
    assert "kernels" not in shell.shell.user_ns
    x = np.zeros(1, np.float32)
    module.with_macro(1, 1, x)
    assert x[0] == 6
    assert module.scale.compiled.arch == "sm_89"
    assert repr(module) == "<CUDA module of scale, racy, with_macro, fill<...> for sm_89 on sim>"
    shell.good("%%cuda twenty --std c++20\n#if __cplusplus != 202002L\n#error\n#endif\n__global__ void k() {}")


def test_compile_errors_are_shown_at_the_cells_own_lines(shell: Shell):
    shell.good("1")
    shell.run("%%cuda\n__global__ void k(float *x) {\n  float y = 1;\n  x[0] = z;\n}\n")
    assert isinstance(shell.error, CompileError), "the cell fails, so that a run of all cells stops here"
    lines = (shell.out + shell.err).splitlines()
    assert lines[0] == "The compiler refused In[2]:"
    assert lines[1] == 'In[2], line 4: error: identifier "z" is undefined', "line 1 is the magic's"
    assert lines[2].strip() == "x[0] = z;"
    assert lines[3].index("^") == lines[2].index("z")
    assert not any("Traceback" in line or ".py" in line for line in lines)
    assert "kernels" not in shell.shell.user_ns


def test_warnings_are_shown_and_do_not_fail(shell: Shell):
    shell.good("%%cuda\n__global__ void k(float *x) {\n  float unused;\n  *x = 1;\n}\n")
    assert shell.out.startswith('In[1], line 3: warning #177-D: variable "unused" was declared')
    assert "Remark" not in shell.out
    assert "k" in shell.complete("kernels.")


def test_check_shows_findings_and_goes_on(shell: Shell):
    shell.good(f"%%cuda --check\n{KERNELS}")
    report = shell.good(
        "import numpy as np\nx = np.arange(64, dtype=np.float32)\nreport = kernels.racy(1, 64, x)\nreport"
    )
    assert isinstance(report, LaunchReport)
    assert {finding.kind for finding in report.findings} == {"shared race", "uninitialised shared read"}
    assert "shared race" in shell.out
    assert "In[1]:7" in shell.out, "the line as the notebook numbers it"
    assert "tile[threadIdx.x] = x[threadIdx.x];" in shell.out, "the other side, with the cell's own text"
    assert shell.out.count("2 findings\n") == 1, "shown once, though the report is the cell's value"
    assert shell.out.rstrip().endswith("warp instructions, 2 findings>")
    assert not np.array_equal(shell.shell.user_ns["x"], np.arange(64)), "the results are written"
    shell.good("quiet = kernels.scale(1, 32, x, 32, 2)")
    assert shell.out == "", "nothing found, nothing shown"


def test_trace_returns_a_trace(shell: Shell):
    shell.good(f"%%cuda --trace\n{KERNELS}")
    found = shell.good("import numpy as np\nx = np.ones(32, np.float32)\nt = kernels.scale(1, 32, x, 32, 2)\nt")
    assert isinstance(found, Trace)
    assert found.line(3).text.strip() == "if (threadIdx.x < n) x[threadIdx.x] *= factor;"
    assert found.line(3).global_sectors == 8
    assert "\nlines of In[1]" in str(found)
    assert shell.shell.user_ns["x"].tolist() == [2.0] * 32
    shell.good(f"%%cuda both --trace --check\n{KERNELS}")
    both = shell.good("t = both.racy(1, 64, np.zeros(64, np.float32))\nt")
    assert isinstance(both, Trace)
    assert both.report.findings
    assert "shared race" in shell.out


def test_the_same_cell_run_again_is_of_its_own_number(shell: Shell):
    for number in (1, 2):
        shell.good(f"%%cuda --trace\n{KERNELS}")
        found = shell.shell.user_ns["kernels"].scale(1, 32, np.ones(32, np.float32), 32, 2)
        assert {line.file for line in found.lines} == {f"In[{number}]"}


def test_faults_name_the_cells_line(shell: Shell):
    shell.good(f"%%cuda\n{KERNELS}")
    shell.run("import numpy as np\nkernels.scale(1, 32, np.ones(4, np.float32), 32, 2)")
    assert type(shell.error).__name__ == "KernelFault"
    assert "In[1]:3" in str(shell.error)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--chek", r"unrecognized arguments: --chek.*\[--check\].*%%cuda\? explains"),
        ("--device tpu", "invalid choice: 'tpu'"),
        ("two names", "unrecognized arguments: names"),
        ("not-a-name", "'not-a-name' is not a valid variable name"),
        ("class", "'class' is not a valid variable name"),
        ("-D 1X=2", "a macro is NAME or NAME=VALUE"),
        ("--device cuda --trace", "with trace"),
        ("--arch sm_12", "arch: got 'sm_12'"),
        ("--option=--nonsense", "options: got"),
    ],
)
def test_what_is_refused_is_explained(shell: Shell, line: str, message: str):
    shell.run(f"%%cuda {line}\n{KERNELS}")
    assert shell.error is not None
    assert re.search(message, str(shell.error))


def test_a_cell_without_a_kernel(shell: Shell):
    shell.run("%%cuda\nint answer() { return 42; }\n")
    assert "no function in it is __global__" in str(shell.error)


PROGRAM = """\
#include <cstdio>
__global__ void set(int* values) { values[threadIdx.x] = LAST; }
int main() {
  int* values;
  cudaMallocManaged(&values, 8);
  set<<<1, 3>>>(values);
  cudaDeviceSynchronize();
  std::printf("last %d\\n", values[1]);
  return 3;
}
"""


@pytest.mark.long
def test_a_cell_with_a_main_is_run(shell: Shell):
    if problem := missing_nvcc():
        pytest.skip(problem)
    shell.good(f"%%cuda --device sim --check -D LAST=7\n{PROGRAM}")
    assert shell.out == "last 7\n"
    assert re.search(r"cell_\d+\.cu:3: set: out-of-bounds: 4 bytes", shell.err)
    assert "the program ended with status 3" in shell.err
    shell.good(f"%%cuda --device sim\n{PROGRAM}")
    assert re.search(r"cell_\d+\.cu\(3\): error: identifier \"LAST\" is undefined", shell.err)


def missing_nvcc() -> str | None:
    try:
        nvcc.program()
    except MissingToolError as error:
        return str(error)
    return None


def test_a_cell_with_a_main_has_no_trace(shell: Shell):
    shell.run(f"%%cuda --trace\n{PROGRAM}")
    assert "--trace is for a cell without a main()" in str(shell.error)


def test_completion_and_help(shell: Shell):
    shell.good(f"%%cuda\n__constant__ float taps[4];\n{KERNELS.replace('= x[', '= taps[0] + x[')}")
    assert {"scale", "racy", "globals", "constant"} <= shell.complete("kernels.")
    assert shell.complete("kernels.sc") == {"scale"}
    assert {"scale", "fill<"} <= shell.complete('kernels["')
    shell.good("variables = kernels.globals")
    assert "taps" in shell.complete('variables["')
    shell.good("%%cuda?\n")
    for word in ("%%cuda [--arch", "--check", "--trace", "-D", "every launch"):
        assert word in shell.out
    shell.good("kernels.scale?")
    assert "kernel scale(x: pointer, n: u32, factor: f32)" in shell.out


def test_importing_the_package_needs_no_ipython():
    import subprocess
    import sys

    code = "import sys, workbench; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert callable(wb.load_ipython_extension)


TRITON = """\
import torch, triton
import triton.language as tl
@triton.jit
def last_program(x):
    tl.store(x, tl.program_id(0))
"""


def test_a_cell_of_triton_is_checked_and_traced(shell: Shell):
    pytest.importorskip("triton")
    shell.good(TRITON)
    shell.good("%%workbench --check --trace --force\nx = torch.zeros(1, dtype=torch.int32)\nlast_program[(4,)](x);")
    assert "global race" in shell.out
    assert "tl.store(x, tl.program_id(0))" in shell.out
    assert "last_program, grid 4, block 128" in shell.out
    assert shell.good("launches[0].findings[0].kind") == "global race"
    shell.good("%%workbench found --check --force\nlast_program[(1,)](x);")
    assert "1 launch checked: nothing found" in shell.out
    shell.good("%workbench --check --force\nlast_program[(3,)](x)\n%workbench --off")
    assert "global race" in shell.out
    shell.run("last_program[(1,)](x)")
    assert shell.error is not None, "Triton has its driver back"
    shell.run("%%workbench --force\nlast_program[(1,)]()")
    assert "missing 1 required" in shell.err + shell.out
