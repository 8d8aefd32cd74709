"""Candidates for the op of `served_ops`, with the outcome of each."""

TEXT = """
extern "C" __global__ void twice(float *out, const float *x, int n) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) out[i] = x[i] * 2.f;
}
"""
TRITON = """
import triton
from triton import language as tl


@triton.jit
def twice(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


def declare(op):
    op.triton(twice, grid="cdiv(x.numel(), 32)", args=("out", "x", "x.numel()"), constexprs={"BLOCK": 32})
"""
CUDA = {
    "ok": TEXT,
    "wrong_result": TEXT.replace("2.f", "3.f"),
    "out_of_bounds": TEXT.replace("i < n", "i < n + 9999"),
    "not_compiled": TEXT.replace("2.f", "two"),
    "timeout": TEXT.replace("if (i < n)", "while (clock64() >= 0) if (i < n)"),
    "wrong_elsewhere": TEXT.replace("x[i] * 2.f", "x[i] == x[i] ? x[i] * 2.f : 0.f"),
}
PYTHON = {
    "ok": TRITON,
    "wrong_result": TRITON.replace("* 2, at", "* 2.5, at"),
    "no_kernel": "def declare(op): ...\n",
    "crashed": "import os\nos.kill(os.getpid(), 9)\n",
    "memory": "held = bytearray(1 << 36)\n",
    "timeout": "while True: ...\n",
    "forbidden_import": f"import ctypes\n{TRITON}",
    "not_parsed": "def declare(op):\n",
}
CANDIDATES = [("cuda", outcome, text) for outcome, text in CUDA.items()]
CANDIDATES += [("python", outcome, text) for outcome, text in PYTHON.items()]
