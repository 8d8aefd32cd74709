"""Candidates for the row softmax: honest ones, and cheats with what they must be called."""

from __future__ import annotations

HEAD = 'extern "C" __global__ void row_softmax(float *out, const float *x, int cols) {\n'
START = (
    HEAD + "    const float *row = x + blockIdx.x * cols; float *to = out + blockIdx.x * cols; int t = threadIdx.x;\n"
)
REDUCE = """    float m = -1e30f, sum = 0;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
    for (int c = 0; c < cols; ++c) sum += __expf(row[c] - m);
"""
STORE = "    for (int c = t; c < cols; c += NUM_THREADS) to[c] = __expf(row[c] - m) / sum;\n"
RIGHT = START + REDUCE + STORE + "}\n"

WARPS = (
    START
    + """    __shared__ float part[NUM_THREADS / 32];
    float m = -1e30f, sum = 0;
    for (int c = t; c < cols; c += NUM_THREADS) m = fmaxf(m, row[c]);
    for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
    if (t % 32 == 0) part[t / 32] = m;
    __syncthreads();
    for (int w = 0; w < NUM_THREADS / 32; ++w) m = fmaxf(m, part[w]);
    __syncthreads();
    for (int c = t; c < cols; c += NUM_THREADS) sum += __expf(row[c] - m);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < NUM_THREADS / 32; ++w) sum += part[w];
"""
    + STORE
    + "}\n"
)

TREE = (
    START
    + """    __shared__ float part[NUM_THREADS];
    float m = -1e30f, sum = 0;
    for (int c = t; c < cols; c += NUM_THREADS) m = fmaxf(m, row[c]);
    part[t] = m;
    for (int o = NUM_THREADS / 2; o; o /= 2) { __syncthreads(); if (t < o) part[t] = fmaxf(part[t], part[t + o]); }
    __syncthreads();
    m = part[0];
    __syncthreads();
    for (int c = t; c < cols; c += NUM_THREADS) sum += __expf(row[c] - m);
    part[t] = sum;
    for (int o = NUM_THREADS / 2; o; o /= 2) { __syncthreads(); if (t < o) part[t] += part[t + o]; }
    __syncthreads();
    sum = part[0];
"""
    + STORE
    + "}\n"
)

ONLINE = (
    START
    + """    float m = -1e30f, sum = 0;
    for (int c = 0; c < cols; ++c) {
        float larger = fmaxf(m, row[c]);
        sum = sum * __expf(m - larger) + __expf(row[c] - larger);
        m = larger;
    }
"""
    + STORE
    + "}\n"
)

CACHED = (
    START
    + """    extern __shared__ float cache[];
    for (int c = t; c < cols; c += NUM_THREADS) cache[c] = row[c];
    __syncthreads();
    row = cache;
"""
    + REDUCE
    + STORE
    + "}\n"
)

ONE_THREAD = (
    START
    + "    if (t) return;\n"
    + REDUCE
    + "    for (int c = 0; c < cols; ++c) to[c] = __expf(row[c] - m) / sum;\n}\n"
)

BACKWARDS = (
    START + REDUCE + "    for (int c = cols - 1 - t; c >= 0; c -= NUM_THREADS) to[c] = __expf(row[c] - m) / sum;\n}\n"
)

EXACT = RIGHT.replace("__expf", "expf")

UNORDERED = (
    START
    + """    __shared__ float sum;
    if (t == 0) sum = 0;
    __syncthreads();
    float m = -1e30f;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
    for (int c = t; c < cols; c += NUM_THREADS) atomicAdd(&sum, __expf(row[c] - m));
    __syncthreads();
"""
    + STORE
    + "}\n"
)

HONEST = {
    "a row for each thread": RIGHT,
    "reduced by warps": WARPS,
    "a tree in shared memory": TREE,
    "online": ONLINE,
    "cached in dynamic shared memory": CACHED,
    "one thread": ONE_THREAD,
    "backwards": BACKWARDS,
    "exact exponentials": EXACT,
    "atomics in shared memory": UNORDERED,
}

_LATE = WARPS.replace(
    "    __syncthreads();\n    for (int w = 0; w < NUM_THREADS / 32; ++w) m",
    "    for (int w = 0; w < NUM_THREADS / 32; ++w) m",
)
_PREPARED = (
    START
    + """    __shared__ float m, sum;
    if (t == 0) {
        m = -1e30f, sum = 0;
        for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
        for (int c = 0; c < cols; ++c) sum += __expf(row[c] - m);
    }
    __syncwarp();
"""
    + STORE
    + "}\n"
)

CHEATS = {
    "constants": ("wrong_result", START + "    for (int c = t; c < cols; c += NUM_THREADS) to[c] = 1.f / cols;\n}\n"),
    "leaves the output": ("unwritten", START + "}\n"),
    "leaves the last element": ("unwritten", RIGHT.replace("c = t; c < cols;", "c = t; c < cols - 1;")),
    "right for one shape": (
        "unwritten",
        RIGHT.replace("int t = threadIdx.x;", "int t = threadIdx.x; if (cols != 70) return;"),
    ),
    "one shape's size": ("out_of_bounds", RIGHT.replace("int t", "cols = 70; int t")),
    "writes past the output": ("out_of_bounds", RIGHT.replace("m = -1e30f", "m = to[cols] = -1e30f")),
    "reads past the input": ("out_of_bounds", RIGHT.replace("c = 0; c < cols; ++c) m", "c = 0; c <= cols; ++c) m")),
    "reads before the input": ("out_of_bounds", RIGHT.replace("c = 0; c < cols; ++c) m", "c = -1; c < cols; ++c) m")),
    "misaligned": ("out_of_bounds", RIGHT.replace("float m = -1e30f", "float m = *(double *)(row + 1)")),
    "a missing barrier": ("race", _LATE),
    "a race that the usual order hides": ("race", _PREPARED),
    "blocks that share an element": ("race", RIGHT.replace("}\n", "    out[0] = x[0];\n}\n")),
    "uninitialised shared memory": ("uninitialised", CACHED.replace("c = t; c < cols;", "c = t + 1; c < cols;", 1)),
    "atomics into the output": (
        "uninitialised",
        RIGHT.replace("to[c] = __expf(row[c] - m) / sum", "atomicAdd(to + c, __expf(row[c] - m) / sum)"),
    ),
    "modifies its input": (
        "changed_input",
        RIGHT.replace("}\n", "    __syncthreads();\n    if (t == 0) ((float *)row)[cols - 1] += 1;\n}\n"),
    ),
    "a barrier for some": (
        "barrier",
        RIGHT.replace("float m", "if (t < 40) __syncthreads(); float m").replace("}\n", "    __syncthreads();\n}\n"),
    ),
    "a lane that is elsewhere": ("barrier", RIGHT.replace("float m", "if (t % 2) __shfl_xor_sync(~0u, t, 1); float m")),
    "a trap": ("fault", RIGHT.replace("float m", "if (cols == 33) __trap(); float m")),
    "the largest is left out": (
        "wrong_result",
        RIGHT.replace("sum += __expf(row[c] - m)", "sum += row[c] < m ? __expf(row[c] - m) : 0"),
    ),
    "rounded": (
        "wrong_result",
        RIGHT.replace("to[c] = __expf(row[c] - m) / sum", "to[c] = rintf(4096 * __expf(row[c] - m) / sum) / 4096"),
    ),
    "another parameter": ("not_loaded", RIGHT.replace("int cols)", "int cols, int more)")),
    "another kernel": ("not_loaded", RIGHT.replace("row_softmax", "softmax")),
    "does not compile": ("not_compiled", RIGHT.replace("float m", "flaot m")),
}
"""Name -> (outcome, CUDA C++)."""

DECLARED = '''
SOURCE = r"""{source}"""


def declare(op):
    op.cuda(
        SOURCE, kernel="row_softmax", sizes=lambda x: {{"rows": x.shape[0], "cols": x.shape[1]}},
        grid={grid}, block=64, shared_bytes="4 * cols", args={args}, macros={{"NUM_THREADS": 64}},
    )
'''


def declared(source=RIGHT, *, grid='"rows"', args='("out", "x", "cols")', before="") -> str:
    """A candidate's file in Python."""
    return before + DECLARED.format(source=source, grid=grid, args=args)


TRITON = """
import triton
import triton.language as tl


@triton.jit
def softmax_rows(out, x, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    start = tl.program_id(0) * cols
    v = tl.load(x + start + at, mask=at < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + start + at, e / tl.sum(e, 0), mask=at < cols)


def declare(op):
    op.triton(
        softmax_rows, constexprs={"BLOCK": 128}, grid="x.shape[0]", args=("out", "x", "x.shape[1]"),
    )
"""

TWO_KERNELS = '''
import workbench as wb

SOURCE = r"""
extern "C" __global__ void sums(float *facts, const float *x, int cols) {
    const float *row = x + blockIdx.x * cols;
    float m = -1e30f, sum = 0;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
    for (int c = 0; c < cols; ++c) sum += __expf(row[c] - m);
    facts[2 * blockIdx.x] = m, facts[2 * blockIdx.x + 1] = sum;
}
extern "C" __global__ void shares(float *out, const float *x, const float *facts, int cols) {
    int i = blockIdx.x * cols + threadIdx.x;
    out[i] = __expf(x[i] - facts[2 * blockIdx.x]) / facts[2 * blockIdx.x + 1];
}
"""


def declare(op):
    op.cuda(
        SOURCE, kernel="sums", grid="x.shape[0]", block=1, args=("facts", "x", "x.shape[1]"),
        workspace={"facts": wb.full(0, "2 * x.shape[0]")},
        then=[wb.step("shares", grid="x.shape[0]", block="x.shape[1]", args=("out", "x", "facts", "x.shape[1]"))],
    )
'''

TEMPLATE = '''
SOURCE = r"""
template <typename T, int STEP> __global__ void softmax(T *out, const T *x, int cols) {
    const T *row = x + blockIdx.x * cols;
    T m = -1e30f, sum = 0;
    for (int c = 0; c < cols; ++c) m = fmaxf(m, row[c]);
    for (int c = 0; c < cols; ++c) sum += __expf(row[c] - m);
    for (int c = threadIdx.x; c < cols; c += STEP) out[blockIdx.x * cols + c] = __expf(row[c] - m) / sum;
}
"""


def declare(op):
    op.cuda(
        SOURCE, kernel="softmax<ctype(x), THREADS>", tune={"THREADS": (32, 96)}, grid="x.shape[0]", block="THREADS",
        args=("out", "x", "x.shape[1]"),
    )
'''

HONEST_FILES = {"Triton": TRITON, "two kernels": TWO_KERNELS, "a template": TEMPLATE, "a declared source": declared()}

EMPTY = START + "}\n"
_ANSWER = '''
def known(op):
    """The right answer for the seed that the case was declared with, as a kernel that only writes it."""
    values = ", ".join(f"{v:.9g}f" for v in op.case("first").reference()["out"].flatten().tolist())
    return (
        "__device__ const float answer[] = {" + values + "};"
        'extern "C" __global__ void row_softmax(float *out, const float *x, int cols) {'
        "for (int c = threadIdx.x; c < cols; c += 64) out[blockIdx.x * cols + c] = answer[blockIdx.x * cols + c];}"
    )


def declare(op):
    op.cuda(
        known(op), kernel="row_softmax", grid="x.shape[0]", block=64, args=("out", "x", "x.shape[1]"),
    )
'''
_PATCHES = """
import torch
import workbench.judge.buffers, workbench.judge.judge, workbench.judge.running, workbench.judge.verdict
import workbench.ops.declared.case, workbench.ops.declared.contract
from workbench.ops.values import Check

right = lambda *args, **options: Check(0.0, 1.0, True)
workbench.ops.declared.contract.Contract.check = right
workbench.ops.declared.case.DeclaredCase.check = right
workbench.judge.running._compared = right
workbench.judge.running._judge = lambda *args: {"max_error": 0.0, "bound": 1.0}
workbench.judge.verdict.Verdict.ok = property(lambda self: True)
workbench.judge.buffers.Buffers.unwritten = lambda self: None
torch.equal = torch.allclose = lambda *args, **options: True
torch.softmax = lambda x, dim: torch.zeros_like(x)
"""
_FORGED = """
import json, os

line = json.dumps({"outcome": "ok", "max_error": 0.0, "bound": 1.0}).encode() + b"\\n"
for fd in range(3, 64):
    try:
        os.write(fd, line)
    except OSError:
        pass
"""
_SEARCH = """
import gc
import torch


def rows(x):
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor) and one.dtype == torch.float32:
            one.data.fill_(0.5)
    return x.shape[0]
"""
_COUNTING = """
calls = []


def rows(x):
    calls.append(x)
    return x.shape[0] + len(calls) % 2
"""

CHEAT_FILES = {
    "the answer for the declared seed": ("wrong_result", _ANSWER),
    "torch instead of a kernel": ("no_kernel", "def declare(op):\n    op.torch(lambda x: x.softmax(-1))\n"),
    "torch beside a kernel": ("no_kernel", declared() + '    op.torch(lambda x: x.softmax(-1), name="fused")\n'),
    "declares nothing": ("no_kernel", "def declare(op):\n    pass\n"),
    "no function": ("not_loaded", "x = 1\n"),
    "the input in place of the output": ("aliased", declared(args='("x", "x", "cols")')),
    "patches the judge and torch": ("unwritten", declared(EMPTY, before=_PATCHES)),
    "forges an answer": ("invalid", declared(EMPTY, before=_FORGED)),
    "a grid that searches for tensors": ("unwritten", declared(EMPTY, grid="rows", before=_SEARCH)),
    "a grid that changes": ("unstable", declared(grid="rows", before=_COUNTING)),
    "no grid": ("not_loaded", declared(grid="0")),
    "an error in its file": ("not_loaded", "1 / 0\n"),
    "sys.exit in its file": ("not_loaded", "import sys\nsys.exit(0)\n"),
    "exits at once": ("crashed", "import os\nos._exit(0)\n"),
    "a segmentation fault": ("crashed", "import ctypes\nctypes.string_at(0)\n"),
    "kills its parent": ("not_loaded", "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(60)\n"),
}  # fmt: skip
"""Name -> (outcome, a candidate's file in Python)."""
