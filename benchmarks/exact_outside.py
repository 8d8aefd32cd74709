"""Exact comparison of kernels of others with references in torch.

    python -m benchmarks.exact_outside FOLDER

FOLDER has clones of llm.c (https://github.com/karpathy/llm.c), Liger-Kernel
(https://github.com/linkedin/Liger-Kernel), KernelBenchLeaderboard
(https://github.com/anneouyang/KernelBenchLeaderboard) and flash-attention
(https://github.com/Dao-AILab/flash-attention), under these names; the last one is compiled by nvcc with the headers of
``pip install --no-deps nvidia-cutlass``. The kernels after Triton's tutorials are
those of ``tests/driver/triton_programs``. Each kernel is launched as it stands, on small inputs, and compared on two
draws or three. CUDA C++ is compiled with --use_fast_math, as llm.c's files say and as exact comparison needs.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from workbench.analysis.exact import ExactAnswer, Side, as_floats, compared, elements, raw, ringed
from workbench.errors import WorkbenchError
from workbench.launch.sim import Simulator, machine_kernel
from workbench.toolchain import compile_cuda_module
from workbench.toolchain.triton_aot import compile_triton

_SOLUTIONS, _FLASH_ATTENTION = "KernelBenchLeaderboard", "flash-attention"
TUTORIALS = Path(__file__).resolve().parents[1] / "tests" / "driver" / "triton_programs"
Tensors = Mapping[str, torch.Tensor]
_TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.int32: "*i32"}


@dataclass(frozen=True)
class Outside:
    """A kernel of others, or several in turn, on inputs of some shapes.

    Attributes:
        origin, file, names: where it is: a project, a file, kernels.
        inputs: shapes of the inputs, normal random numbers.
        outputs: shapes of the tensors that it writes, ``out`` first, which is compared.
        launches: grid, block and arguments of each kernel; an argument is a tensor's name or a number.
        reference: function of the inputs in torch.
        constants: constexprs of a Triton kernel, macros of FlashAttention's.
        shared_bytes: dynamic shared memory of a kernel in CUDA C++.
        dtype: dtype of inputs and outputs.
    """

    origin: str
    file: str
    names: Sequence[str]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]
    launches: Sequence[tuple[Any, Any, Sequence[Any]]]
    reference: Callable[..., Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    shared_bytes: int = 0
    dtype: torch.dtype = torch.float32

    def kernels(self, folder: Path) -> list[Any]:
        """Return the compiled kernels."""
        path = (TUTORIALS if self.origin == "Triton's tutorials" else folder / self.origin) / self.file
        if self.origin == _FLASH_ATTENTION:
            return [_flash_attention(path, self.constants)]
        if path.suffix == ".cu" or self.origin == _SOLUTIONS:
            found = compile_cuda_module(_device_code(path, self.names), arch="sm_80", options=("--use_fast_math",))
            return [found.kernels[name] for name in self.names]
        return [
            self._triton(_functions(path)[name], one[2]) for name, one in zip(self.names, self.launches, strict=True)
        ]

    def _triton(self, function: Any, arguments: Sequence[Any]) -> Any:
        tensors = self._tensors(0)
        names = [name for name in function.arg_names if name not in self.constants]
        types = {
            name: _TYPES[tensors[one].dtype] if isinstance(one, str) else "i32" if isinstance(one, int) else "fp32"
            for name, one in zip(names, arguments, strict=True)
        }
        return compile_triton(function, types, dict(self.constants), num_warps=4)

    def _tensors(self, seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        given = {name: torch.randn(shape, generator=generator).to(self.dtype) for name, shape in self.inputs.items()}
        written = {
            name: torch.zeros(shape, dtype=self.dtype) for name, shape in self.outputs.items() if name not in given
        }
        return given | written

    def answer(self, folder: Path) -> ExactAnswer:
        """Return the answer of exact comparison."""
        try:
            kernels = self.kernels(folder)
        except WorkbenchError as error:
            return ExactAnswer.without(str(error))

        def inputs(number: int) -> Tensors:
            return {name: self._tensors(number)[name] for name in self.inputs}

        def wanted(number: int, given: Tensors, side: Side) -> Tensors:
            known = {**inputs(number), **given}
            return {"out": raw(self.reference(*(ringed(one, side.operators) for one in known.values())))}

        def found(number: int, given: Tensors, side: Side) -> Tensors:
            side.take_kernels([machine_kernel(one) for one in kernels])
            return self._found(kernels, {**self._tensors(number), **given})

        return compared(Side(wanted, inputs, called="the reference"), Side(found, inputs), seconds=30)

    def _found(self, kernels: Sequence[Any], given: Tensors) -> Tensors:
        tensors = {name: as_floats(one).clone() for name, one in given.items()}
        for kernel, (grid, block, arguments) in zip(kernels, self.launches, strict=True):
            passed = [tensors[one] if isinstance(one, str) else one for one in arguments]
            Simulator().launch(kernel, grid, block, passed, shared_bytes=self.shared_bytes, exact=True)
        return {"out": elements(tensors["out"])}


# ---- reading the files


def _device_code(path: Path, names: Sequence[str]) -> str:
    """Return kernels of a file, with the functions that they may call, and without its host code."""
    text = path.read_text()
    part = text if path.suffix == ".py" else text.partition("// GPU kernels")[2].partition("// kernel launcher")[0]
    found = [
        one for one in _cuda_functions(part) if "__global__" not in one or any(f"{name}(" in one for name in names)
    ]
    head = """
        #include <cooperative_groups.h>
        #include <cooperative_groups/reduce.h>
        #include <assert.h>
        #include <float.h>
        namespace cg = cooperative_groups;
        #define WARP_SIZE 32U
        #define CEIL_DIV(m, n) (((m) + (n) - 1) / (n))
        #define GELU_SCALING_FACTOR sqrtf(2.0f / 3.14159265358979323846)
        typedef float floatX;
        static __device__ float warpReduceSum(float x) {  // as in common.h
          for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
          return x;
        }
        __device__ float vec_at(const float4& v, int i) { return reinterpret_cast<const float*>(&v)[i]; }
        __device__ float& vec_at(float4& v, int i) { return reinterpret_cast<float*>(&v)[i]; }
    """
    return head + "\n".join(re.sub(r"__global__", 'extern "C" __global__', one) for one in found if "x128" not in one)


def _cuda_functions(text: str) -> Iterator[str]:
    """Yield the functions and structures of a text that begin with __global__, __device__ or struct."""
    for match in re.finditer(r"^(__global__|__device__|struct)\b", text, re.M):
        body = text.index("{", match.start())
        end = text.index("\n}", body) + 2
        if not re.search("vec_at|warpReduceSum", text[match.start() : body]):
            yield text[match.start() : end] + ";" * (match[1] == "struct")


_FLASH_ATTENTION_2 = """
    #define FLASHATTENTION_DISABLE_DROPOUT
    #include "flash.h"
    #include "flash_fwd_kernel.h"
    using Traits = Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>;
    extern "C" __global__ void forward(void* q, void* k, void* v, void* o, void* lse, int heads, int length,
                                       float scale) {
      flash::Flash_fwd_params p{};
      p.q_ptr = q, p.k_ptr = k, p.v_ptr = v, p.o_ptr = o, p.softmax_lse_ptr = lse;
      p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = heads * 64;
      p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = heads * 64 * length;
      p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = 64;
      p.b = gridDim.y, p.h = p.h_k = heads, p.h_h_k_ratio = 1;
      p.seqlen_q = p.seqlen_k = length, p.d = p.d_rounded = 64;
      p.seqlen_q_rounded = p.seqlen_k_rounded = (length + 127) / 128 * 128;
      p.scale_softmax = scale, p.scale_softmax_log2 = scale * 1.4426950408889634f;
      p.window_size_left = -1, p.window_size_right = CAUSAL ? 0 : -1, p.is_causal = CAUSAL;
      flash::compute_attn<Traits, false, CAUSAL, false, false, false, true, false, false>(p);
    }
"""


def _flash_attention(path: Path, macros: Mapping[str, int]) -> Any:
    """Return FlashAttention-2's forward kernel of head size 64, whose parameters the host code would fill in."""
    cutlass = importlib.util.find_spec("cutlass_library")
    if cutlass is None or not cutlass.submodule_search_locations:
        raise WorkbenchError("there are no headers of CUTLASS: python -m pip install --no-deps nvidia-cutlass.")
    headers = Path(cutlass.submodule_search_locations[0]) / "source" / "include"
    options = ("-std=c++17", "--use_fast_math", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-w")
    found = compile_cuda_module(
        _FLASH_ATTENTION_2, compiler="nvcc", macros=macros, include_dirs=[path, headers], options=options
    )
    return found.kernels["forward"]


@functools.cache
def _functions(path: Path) -> Mapping[str, Any]:
    """Return the Triton functions of a file, without running the rest of it."""
    tree = ast.parse(path.read_text())
    kept = [
        "import triton, triton.language as tl", "from triton.language.extra.libdevice import rsqrt, tanh",
        *(
            ast.unparse(one)
            for one in tree.body
            if isinstance(one, ast.Assign | ast.AnnAssign) and re.search(r"constexpr\(-?\d+\)", ast.unparse(one))
        ),
    ]  # fmt: skip
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and any("triton.jit" in ast.unparse(by) for by in one.decorator_list):
            one.decorator_list = [by for by in one.decorator_list if ast.unparse(by) == "triton.jit"]
            kept.append(ast.unparse(one))
    name = f"outside_{path.parent.name}_{path.stem}".replace("-", "_")
    file = Path(_FOLDER.name) / f"{name}.py"
    file.write_text("\n\n".join(kept) + "\n")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


_FOLDER = tempfile.TemporaryDirectory()


# ---- the kernels

ROWS, COLS = 4, 96
_X = {"x": (ROWS, COLS)}
_NORM = {"x": (ROWS, COLS), "w": (COLS,), "b": (COLS,)}
_STATISTICS = {"out": (ROWS, COLS), "mean": (ROWS,), "rstd": (ROWS,)}
HEADS, LENGTH, HEAD = 2, 64, 32


def _softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, (COLS,), w, b, 1e-5)


def _gelu(x: Any) -> Any:
    return functional.gelu(x, approximate="tanh")


def _causal(q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _fused_qkv(x: Any) -> Any:
    """Return the attention of llm.c: queries, keys and values of [B, T, 3, NH, hs], results of [B, T, C]."""
    q, k, v = x.view(1, LENGTH, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind(0)
    return _causal(q, k, v).transpose(1, 2).reshape(1, LENGTH, HEADS * HEAD)


def _rope(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    half = HEAD // 2
    first, second = q[..., :half], q[..., half:]
    c, s = cos[:, None, :half], sin[:, None, :half]
    return torch.cat([first * c - second * s, second * c + first * s], -1)


def _group_norm(x: Any, w: Any, b: Any) -> Any:
    groups = x.view(ROWS, 2, COLS // 2)
    away = groups - groups.mean(-1, keepdim=True)
    scaled = away * torch.rsqrt((away * away).mean(-1, keepdim=True) + 1e-6)
    return scaled * w.view(1, 2, 1) + b.view(1, 2, 1)


def tutorials() -> Iterator[Outside]:
    """Yield the kernels after Triton's tutorials."""
    origin = "Triton's tutorials"
    yield Outside(
        origin, "softmax.py", ["softmax_kernel"], _X, {"out": (ROWS, COLS)},
        [(2, 128, ("out", "x", COLS, COLS, ROWS, COLS))], _softmax, {"BLOCK": 128, "STAGES": 2},
    )  # fmt: skip
    yield Outside(
        origin, "layer_norm.py", ["forward_kernel"], _NORM, _STATISTICS,
        [(ROWS, 128, ("x", "out", "w", "b", "mean", "rstd", COLS, COLS, 1e-5))], _layer_norm, {"BLOCK": 128},
    )  # fmt: skip
    tiles = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 4}
    for activation, reference in (
        ("", lambda a, b: a @ b),
        ("leaky_relu", lambda a, b: torch.where(a @ b >= 0, a @ b, 0.01 * (a @ b))),
    ):
        yield Outside(
            origin, "matmul.py", ["matmul_kernel"], {"a": (50, 72), "b": (72, 40)}, {"out": (50, 40)},
            [(4, 128, ("a", "b", "out", 50, 40, 72, 72, 1, 40, 1, 40, 1))], reference,
            {**tiles, "ACTIVATION": activation}, dtype=torch.float16,
        )  # fmt: skip
    shape = (HEADS, LENGTH, HEAD)
    yield Outside(
        origin, "attention.py", ["attention_kernel"], dict.fromkeys("qkv", shape), {"out": shape},
        [((2, HEADS), 128, ("q", "k", "v", "out", HEAD**-0.5, LENGTH * HEAD, LENGTH))], _causal,
        {"HEAD": HEAD, "BLOCK_M": 32, "BLOCK_N": 32}, dtype=torch.float16,
    )  # fmt: skip


def llm_c() -> Iterator[Outside]:
    """Yield the kernels of llm.c's dev/cuda that are written for float and need no other library."""

    def cuda(file: str, names: Sequence[str], *rest: Any, **more: Any) -> Outside:
        return Outside("llm.c", f"dev/cuda/{file}_forward.cu", names, *rest, **more)

    flat, row = (1, 32), (ROWS, 32)
    for name, (grid, block) in {
        "softmax_forward_kernel1": flat, "softmax_forward_kernel2": row, "softmax_forward_kernel3": row,
        "softmax_forward_kernel4": (ROWS, 64), "softmax_forward_online_kernel1": flat,
        "softmax_forward_online_kernel2": row, "softmax_forward_kernel7": (ROWS, 64),
        "softmax_forward_online_kernel8": row,
    }.items():  # fmt: skip
        arguments = ("out", "x", ROWS, COLS)
        yield cuda(
            "softmax", [name], _X, {"out": (ROWS, COLS)}, [(grid, block, arguments)], _softmax, shared_bytes=1024
        )
    for name, launch in {
        "layernorm_forward_kernel1": flat, "layernorm_forward_kernel3": (ROWS, 32),
        "layernorm_forward_kernel4": (ROWS, 32), "layernorm_forward_kernel5": (ROWS, 64),
    }.items():  # fmt: skip
        arguments = ("out", "mean", "rstd", "x", "w", "b", ROWS, COLS)
        yield cuda("layernorm", [name], _NORM, _STATISTICS, [(*launch, arguments)], _layer_norm)
    yield cuda(
        "layernorm", ["mean_kernel", "rstd_kernel", "normalization_kernel"], _NORM, _STATISTICS,
        [
            (ROWS, 32, ("mean", "x", ROWS, COLS, 32)), (ROWS, 32, ("rstd", "x", "mean", ROWS, COLS, 32)),
            (ROWS * COLS // 32, 32, ("out", "x", "mean", "rstd", "w", "b", ROWS, 1, COLS)),
        ],
        _layer_norm, shared_bytes=1024,
    )  # fmt: skip
    count = ROWS * COLS
    yield cuda(
        "gelu", ["gelu_forward_kernel1"], _X, {"out": (ROWS, COLS)}, [(count // 32, 32, ("out", "x", count))], _gelu
    )
    both = {"x": (ROWS, COLS), "y": (ROWS, COLS)}
    yield cuda(
        "residual", ["residual_forward_kernel1"], both, {"out": (ROWS, COLS)},
        [(count // 32, 32, ("out", "x", "y", count))], lambda x, y: x + y,
    )  # fmt: skip
    given = {"x": (128, 64), "w": (128, 64), "b": (128,)}
    for name, (grid, block, arguments) in {
        "matmul_forward_kernel1": ((8, 8), (16, 16), ("out", "x", "w", "b", 128, 64, 128)),
        "matmul_forward_kernel4": ((1, 1), (16, 16), ("out", "x", "w", "b", 64, 128)),
    }.items():
        yield cuda("matmul", [name], given, {"out": (128, 128)}, [(grid, block, arguments)], functional.linear)
    width = HEADS * HEAD
    scores = HEADS * LENGTH * LENGTH
    yield cuda(
        "attention", ["attention_query_key_kernel1", "attention_softmax_kernel1", "attention_value_kernel1"],
        {"x": (1, LENGTH, 3 * width)}, {"out": (1, LENGTH, width), "before": (scores,), "weights": (scores,)},
        [
            (scores // 32, 32, ("before", "x", 1, LENGTH, width, HEADS)),
            (HEADS * LENGTH // 32, 32, ("weights", "before", 1, LENGTH, HEADS)),
            (HEADS * LENGTH // 32, 32, ("out", "weights", "x", 1, LENGTH, width, HEADS)),
        ],
        _fused_qkv,
    )  # fmt: skip
    tiles = math.ceil(LENGTH / 32)
    yield cuda(
        "attention", ["attention_forward_kernel2"], dict.fromkeys("qkv", (1, HEADS, LENGTH, HEAD)),
        {"out": (1, HEADS, LENGTH, HEAD), "l": (HEADS, LENGTH), "m": (HEADS, LENGTH)},
        [
            (
                (1, HEADS), 32,
                ("q", "k", "v", LENGTH, HEAD, tiles, tiles, 32, 32, HEAD**-0.5, "l", "m", "out"),
            )
        ],
        _causal, shared_bytes=4 * (3 * 32 * HEAD + 32 * 32),
    )  # fmt: skip


def liger() -> Iterator[Outside]:
    """Yield forward kernels of Liger-Kernel whose references are operators of torch."""

    def triton(file: str, name: str, inputs: Any, outputs: Any, grid: Any, arguments: Any, *rest: Any) -> Outside:
        path = f"src/liger_kernel/ops/{file}.py"
        return Outside("Liger-Kernel", path, [name], inputs, outputs, [(grid, 128, arguments)], *rest)

    out, block = {"out": (ROWS, COLS)}, {"BLOCK_SIZE": 128}
    rms = {"x": (ROWS, COLS), "w": (COLS,)}
    stored = {**out, "rstd": (ROWS,)}
    arguments: tuple[Any, ...] = ("out", COLS, "x", COLS, "w", 1, "rstd", 1, COLS, 1e-6, 0.0)
    for mode in (0, 1):
        yield triton(
            "rms_norm", "_rms_norm_forward_kernel", rms, stored, ROWS, arguments,
            lambda x, w: functional.rms_norm(x, (COLS,), w, 1e-6),
            {**block, "casting_mode": mode, "elementwise_affine": True},
        )  # fmt: skip
    yield triton(
        "rms_norm", "_block_rms_norm_forward_kernel", rms, stored, ROWS // 2, (*arguments[:8], ROWS, *arguments[8:]),
        lambda x, w: functional.rms_norm(x, (COLS,), w, 1e-6),
        {**block, "casting_mode": 0, "elementwise_affine": True, "BLOCK_ROW": 2},
    )  # fmt: skip
    yield triton(
        "fused_add_rms_norm", "_fused_add_rms_norm_forward_kernel", {**rms, "r": (ROWS, COLS)},
        {**stored, "s": (ROWS, COLS)}, ROWS,
        ("out", COLS, "s", COLS, "x", COLS, "r", COLS, "w", 1, "rstd", 1, COLS, 1e-6, 0.0),
        lambda x, w, r: functional.rms_norm(x + r, (COLS,), w, 1e-6), {**block, "casting_mode": 0},
    )  # fmt: skip
    yield triton(
        "layer_norm", "_layer_norm_forward_kernel", _NORM, _STATISTICS, ROWS,
        ("out", COLS, "x", COLS, "w", 1, "b", 1, "mean", 1, "rstd", 1, COLS, 1e-5), _layer_norm, block,
    )  # fmt: skip
    yield triton(
        "group_norm", "_group_norm_forward_kernel", {"x": (ROWS, COLS), "w": (2,), "b": (2,)},
        {"out": (ROWS, COLS), "mean": (ROWS, 2), "rstd": (ROWS, 2)}, (ROWS, 2),
        ("out", COLS, COLS // 2, "x", COLS, COLS // 2, "mean", 2, 1, "rstd", 2, 1, "w", "b", COLS // 2, 1, 1e-6),
        _group_norm, {"BLOCK_SIZE": 32},
    )  # fmt: skip
    yield triton(
        "softmax",
        "_softmax_single_block_forward_kernel",
        _X,
        out,
        ROWS,
        ("out", COLS, "x", COLS, COLS),
        _softmax,
        block,
    )
    two = {"x": (ROWS, COLS), "y": (ROWS, COLS)}
    yield triton(
        "swiglu", "_swiglu_forward_kernel", two, out, ROWS, ("x", "y", "out", COLS, 1.0),
        lambda x, y: functional.silu(x) * y, {**block, "n_cols": COLS},
    )  # fmt: skip
    yield triton(
        "geglu", "_geglu_tanh_forward_kernel", two, out, ROWS, ("x", "y", "out", COLS),
        lambda x, y: _gelu(x) * y, {**block, "n_cols": COLS},
    )  # fmt: skip
    yield triton(
        "dyt", "_dyt_fwd_kernel", {"x": (ROWS, COLS), "a": (1,), "w": (COLS,), "b": (COLS,)}, out, (1, ROWS),
        ("x", "out", "a", "w", "b"), lambda x, a, w, b: torch.tanh(a * x) * w + b,
        {"HAVE_BETA": True, "N": COLS, "BLOCK_N": 128},
    )  # fmt: skip
    shape = (LENGTH, HEADS, HEAD)
    yield triton(
        "rope", "_triton_rope", {"out": shape, "k": shape, "cos": (LENGTH, HEAD), "sin": (LENGTH, HEAD)}, {}, LENGTH,
        ("out", HEADS * HEAD, "k", HEADS * HEAD, "cos", HEAD, "sin", HEAD, LENGTH), _rope,
        {
            "bs": 1, "cos_bs": 1, "n_qh": HEADS, "n_kh": HEADS, "hd": HEAD, "pad_n_qh": HEADS, "pad_n_kh": HEADS,
            "pad_hd": HEAD, "BLOCK_SIZE": 32, "BACKWARD_PASS": False,
        },
    )  # fmt: skip


def flash_attention() -> Iterator[Outside]:
    """Yield the forward kernel of FlashAttention-2, with a causal mask and without."""
    length = 200  # two tiles, of which the second is not full
    shape = (1, length, HEADS, 64)
    for causal in (1, 0):
        yield Outside(
            _FLASH_ATTENTION, "csrc/flash_attn/src", [f"forward, {'causal' if causal else 'all tokens'}"],
            dict.fromkeys("qkv", shape), {"out": shape, "lse": (2, HEADS, length)},  # which is of f32
            [((2, 1, HEADS), 128, ("q", "k", "v", "out", "lse", HEADS, length, 64**-0.5))],
            functools.partial(_attention_by_tokens, causal), {"CAUSAL": causal}, 48 << 10, torch.float16,
        )  # fmt: skip


def _attention_by_tokens(causal: int, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal)).transpose(1, 2)


def solutions() -> Iterator[Outside]:
    """Yield ten solutions of KernelBench by language models: the first of their kinds in order of the files' names.

    Left out are pooling, losses, and kernels that are templates.
    """
    count, flat = ROWS * COLS, {"out": (ROWS, COLS)}

    def elementwise(file: str, name: str, reference: Callable[..., Any]) -> Outside:
        return solution(file, name, _X, flat, [(count // 32, 32, ("x", "out", count))], reference)

    def solution(file: str, name: str, *rest: Any, **more: Any) -> Outside:
        return Outside(_SOLUTIONS, f"docs/assets/solutions/{file}.py", [name], *rest, **more)

    yield elementwise("0088bf5776569da188867f07b014171b", "swish_kernel", lambda x: x * torch.sigmoid(x))
    yield elementwise("00c424d06db7b34413482825293508a7", "sigmoid_kernel", torch.sigmoid)
    shape = (2, 8, 5, 6)
    yield solution(
        "01a18c81f2a6ee19ecd7c13353979ff5", "rms_norm_kernel", {"x": shape}, {"out": shape},
        [(60, 8, ("x", "out", *shape, 1e-5))],
        lambda x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5), shared_bytes=1024,
    )  # fmt: skip
    yield elementwise("020a40d089e40e5a3f04037749f724bf", "tanh_kernel", torch.tanh)
    yield elementwise("0246ec1e8c743f4123a8e804f6e1f7e3", "softplus_kernel", functional.softplus)
    yield solution(
        "0374c496226e3dcff4e679c30db4cb70", "swish_add_bias_kernel", {"x": (ROWS, COLS), "b": (COLS,)}, flat,
        [(count // 32, 32, ("x", "b", "out", count, COLS))], lambda x, b: torch.sigmoid(x) * x + b,
    )  # fmt: skip
    square = {"x": (32, 32), "y": (32, 32)}
    yield solution(
        "0450970a5991dfced0cc32be54707b8a", "matrix_multiply_kernel", {"x": (48, 24), "y": (24, 32)}, {"out": (48, 32)},
        [((3, 2), (16, 16), ("x", "y", "out", 48, 32, 24))], torch.matmul,
    )  # fmt: skip
    yield elementwise("0b439d49e02a9fef6503f6deb134b95c", "gelu_cuda_kernel", functional.gelu)
    yield solution(
        "0c71329febf9679c65c1014915807733", "l2_normalize_kernel", _X, flat, [(ROWS, 32, ("x", "out", ROWS, COLS))],
        lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True), shared_bytes=1024,
    )  # fmt: skip
    yield solution(
        "0cf915832685374a0ee0a5b70e80f8e4", "upper_triangular_matmul_kernel", square, {"out": (32, 32)},
        [((2, 2), (16, 16), ("x", "y", "out", 32))], lambda x, y: torch.triu(torch.triu(x) @ torch.triu(y)),
    )  # fmt: skip


def main() -> None:
    """Print the answer for each kernel, and the counts by project."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="a project: its folder's name, or 'Triton's tutorials'")
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for one in (*tutorials(), *llm_c(), *liger(), *solutions(), *flash_attention()):
        if options.only not in (None, one.origin):
            continue
        found = one.answer(options.folder)
        word = {True: "the same", False: "differs", None: "no answer"}[found.same]
        counts[one.origin, word] += 1
        print("\n    ".join([f"{one.origin}, {', '.join(one.names)}: {found}", *found.difference]), flush=True)
    for (origin, word), count in counts.items():
        print(f"{origin}: {word} {count}")


if __name__ == "__main__":
    main()
