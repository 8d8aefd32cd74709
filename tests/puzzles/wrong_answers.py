"""Wrong answers to the puzzles: the solutions of the notebooks, each with a typical mistake, and the mistake's name."""

from __future__ import annotations

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks" / "puzzles"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
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
    ("latent_read", "CUDA", "scale of the longer key", [("rsqrtf(32)", "rsqrtf(64)")]),
    ("latent_read", "CUDA", "scale left out", [("        score *= rsqrtf(32);\n", "")]),
    (
        "latent_read",
        "CUDA",
        "values from the end of the row",
        [
            ("weight * row[lane]", "weight * row[lane + 16]"),
            ("weight * row[lane + 32]", "weight * row[lane % 16 + 48]"),
        ],
    ),
    ("latent_read", "CUDA", "rotated part left out of the key", [("q1 * row", "(lane < 16 ? q1 : 0) * row")]),
    ("latent_read", "CUDA", "query of the first head for all", [("query[head * 64 + ", "query[")]),
    ("latent_read", "CUDA", "old sums not rescaled", [("out0 * shrink", "out0"), ("out1 * shrink", "out1")]),
    ("latent_read", "CUDA", "not divided by the sum", [("out0 / sum", "out0"), ("out1 / sum", "out1")]),
    (
        "latent_read",
        "CUDA",
        "missing barrier",
        [("t * 64 + threadIdx.x];\n        __syncthreads();", "t * 64 + threadIdx.x];")],
    ),
    (
        "latent_read",
        "CUDA",
        "latent read more than once",
        [
            ("    __shared__ float row[64];\n", ""),
            (
                "        __syncthreads();\n        if (threadIdx.x < 64) row[threadIdx.x] =",
                "        const float *row =",
            ),
            ("latents[t * 64 + threadIdx.x];\n        __syncthreads();", "latents + t * 64;"),
        ],
    ),
    (
        "latent_read",
        "Triton",
        "masked tokens counted",
        [('tl.where(t[None, :] < tokens, scores, -float("inf"))', "scores")],
    ),
    ("ragged_prompt", "CUDA", "context forgotten", [("seq_lens[s] - cu_seqlens[s + 1] + r", "r - cu_seqlens[s]")]),
    ("ragged_prompt", "CUDA", "row taken for its position", [("seq_lens[s] - cu_seqlens[s + 1] + r", "r")]),
    ("ragged_prompt", "CUDA", "later tokens seen", [("- cu_seqlens[s + 1] + r", "- 1")]),
    ("ragged_prompt", "CUDA", "own token left out", [("t <= position", "t < position")]),
    ("ragged_prompt", "CUDA", "first row given to the sequence before", [("(r >= cu", "(r > cu")]),
    ("ragged_prompt", "CUDA", "table of the first sequence for all", [("s * max_blocks + t", "t")]),
    ("ragged_prompt", "CUDA", "table not used", [("block_tables[s * max_blocks + t / block_size]", "t / block_size")]),
    ("ragged_prompt", "CUDA", "tokens beyond the sequence read", [("- cu_seqlens[s + 1] + r", "+ 8")]),
    (
        "ragged_prompt",
        "CUDA",
        "rows of the cache read more than once",
        [
            (
                "weight * x",
                "weight * *(volatile const float *)&cache[(page * block_size + t % block_size) * 32 + lane]",
            )
        ],
    ),
    (
        "ragged_prompt",
        "Triton",
        "own token left out",
        [("position + 1, TILE", "position, TILE"), ("t <= position", "t < position")],
    ),
]


def changed(name: str, language: str, change: list[tuple[str, str]] | str) -> str:
    if isinstance(change, str):
        return change
    text = SOLUTIONS[name, language]
    for old, new in change:
        assert old in text, f"the solution has no {old!r}"
        text = text.replace(old, new)
    return text
