"""Triton ahead of time: wide loads where alignment is promised, resources, errors with lines, and the cache."""

from __future__ import annotations

import linecache
import subprocess
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from workbench.errors import ArgumentError, CompileError
from workbench.ptx import Program, TensorMap
from workbench.toolchain import compile_triton, disk_cache, tools
from workbench.toolchain.sass import parse_ptxas_log

TYPES = {"x": "*fp16", "out": "*fp16", "n": "i32"}
SIZES = (".shape[0]", ".shape[1]", ".strides[0]", ".strides[1]")


@triton.jit
def twice(value):
    return value * 2


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(out + offsets, twice(value), mask=offsets < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(out, tl.sum(value))


@triton.jit
def copied(x, out, n):
    row = tl.program_id(0) * 16
    out.store([row, 0], x.load([row, 0]) + n)


@triton.jit
def wrong_shape(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)

    value = offsets + tl.arange(0, 2 * BLOCK)
    tl.store(x + offsets, value)


@triton.jit
def wrong_helper(value):
    return value + no_such_name  # noqa: F821


@triton.jit
def calls_wrong_helper(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, wrong_helper(offsets))


def test_a_promise_of_alignment_makes_loads_and_stores_16_bytes_wide():
    wide = compile_triton(double, TYPES, {"BLOCK": 1024}, attributes={"n": 16})
    assert "ld.global.v4.b32" in wide.ptx
    assert "st.global.v4.b32" in wide.ptx
    unknown_length = compile_triton(double, TYPES, {"BLOCK": 1024})
    assert "global.v4" not in unknown_length.ptx
    unaligned = compile_triton(double, TYPES, {"BLOCK": 1024}, attributes={"n": 16, "x": 1})
    assert "ld.global.v4" not in unaligned.ptx
    assert "st.global.v4" in unaligned.ptx


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90"])
def test_what_a_kernel_says_about_itself(arch: str):
    kernel = compile_triton(total, TYPES, {"BLOCK": 1024}, arch=arch, num_warps=8)
    assert (kernel.name, kernel.label, kernel.language, kernel.arch) == ("total", "total", "triton", arch)
    assert f".target {arch}" in kernel.ptx
    assert kernel.threads_per_block == 256
    assert kernel.dynamic_shared_bytes == kernel.shared_bytes > 0, "the reduction goes through shared memory"
    assert kernel.static_shared_bytes == 0
    assert 8 <= kernel.registers <= 64
    assert (kernel.spill_bytes, kernel.stack_bytes) == (0, 0)
    assert kernel.compiler == f"triton {triton.__version__}"
    assert kernel.occupancy.fraction == 1.0
    assert "EXIT" in kernel.sass
    assert Path(__file__).name in kernel.sass
    named = [(p.name, p.type, p.divisibility) for p in kernel.parameters if not p.scratch]
    assert named == [("x", "u64", 16), ("out", "u64", 16), ("n", "u32", 1)]
    assert all(p.type == "u64" for p in kernel.parameters if p.scratch)


def test_a_descriptor_has_several_parameters_and_a_map_reaches_them():
    kinds = {"x": "tensordesc<fp32[16,16]>", "out": "tensordesc<fp32[16,16]>", "n": "i32"}
    kernel = compile_triton(copied, kinds, {}, arch="sm_90")
    parts = [f"{name}{part}" for name in ("x", "out") for part in ("", *SIZES)]
    assert [one.name for one in kernel.parameters][:11] == [*parts, "n"]
    x, out = torch.arange(512.0).reshape(32, 16), torch.zeros(32, 16)
    maps = [[TensorMap.of(one, (16, 16), swizzle=64), 32, 16, 16, 1] for one in (x, out)]
    Program(kernel.ptx)["copied"].launch(
        2, 128, [*maps[0], *maps[1], 7, 0, 0], shared_bytes=kernel.dynamic_shared_bytes
    )
    torch.testing.assert_close(out, x + 7)
    pointers = compile_triton(copied, kinds, {}, arch="sm_80").parameters
    assert pointers[11].name == "out"
    assert pointers[22].name == "n"


def test_lines_of_the_python_file_are_in_the_ptx():
    ptx = compile_triton(double, TYPES, {"BLOCK": 128}).ptx
    number = next(line.split()[1] for line in ptx.splitlines() if ".file" in line and __file__ in line)
    line = double.starting_line_number + 3
    assert f".loc\t{number} {line} " in ptx


@triton.jit
def spilling(x, out, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    tile = tl.load(x + rows[:, None] * BLOCK + rows[None, :])
    other = tl.load(out + rows[:, None] * BLOCK + rows[None, :])
    tl.store(out + rows[None, :] * BLOCK + rows[:, None], tile * other + tl.trans(tile))
    tl.store(x + rows[None, :] * BLOCK + rows[:, None], tile + tl.trans(other))


@pytest.mark.long
def test_spills_are_those_that_the_assembler_reports(tmp_path: Path):
    kernel = compile_triton(spilling, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 64}, num_warps=1)
    assert kernel.stack_bytes > 0
    (tmp_path / "k.ptx").write_text(kernel.ptx)
    command = [tools.find_program("ptxas"), "-v", "-arch=sm_80", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    reported = parse_ptxas_log(log)["spilling"]
    assert (kernel.registers, kernel.spill_bytes) == (reported.registers, reported.spill_bytes)
    assert kernel.spill_bytes > 1000


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_a_compile_error_names_the_python_line():
    with pytest.raises(CompileError) as error:
        compile_triton(wrong_shape, {"x": "*i32"}, {"BLOCK": 16})
    assert f"{__file__}:{wrong_shape.starting_line_number + 4}:" in str(error.value)
    assert "incompatible dimensions" in error.value.log
    assert "value = offsets + tl.arange(0, 2 * BLOCK)" in error.value.log


def test_a_compile_error_in_a_called_function_names_its_line():
    with pytest.raises(CompileError) as error:
        compile_triton(calls_wrong_helper, {"x": "*i32"}, {"BLOCK": 16})
    assert f"{__file__}:{wrong_helper.starting_line_number + 2}:" in str(error.value)
    assert "no_such_name" in error.value.log


def test_fp8_on_sm_80_is_refused_with_tritons_words():
    @triton.jit
    def convert(x, out, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets).to(tl.float16))

    types = {"x": "*fp8e4nv", "out": "*fp16"}
    with pytest.raises(CompileError, match="fp8e4nv"):
        compile_triton(convert, types, {"BLOCK": 128})
    assert compile_triton(convert, types, {"BLOCK": 128}, arch="sm_89").registers


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"signature": {"x": "*fp16", "out": "*fp16"}}, "signature"),
        ({"signature": {**TYPES, "extra": "i32"}}, "signature"),
        ({"signature": {**TYPES, "x": "*float"}}, "signature['x']"),
        ({"constexprs": {"BLOCKS": 16}}, "constexprs"),
        ({"attributes": {"y": 16}}, "attributes"),
        ({"attributes": {"BLOCK": 16}}, "attributes"),
        ({"num_warps": 3}, "num_warps"),
        ({"arch": "90"}, "arch"),
        ({"function": len}, "function"),
    ],
)
def test_arguments_that_cannot_be_used(keywords: dict, named: str):
    given = {"function": double, "signature": TYPES, "constexprs": {"BLOCK": 128}} | keywords
    with pytest.raises(ArgumentError) as error:
        compile_triton(given.pop("function"), given.pop("signature"), given.pop("constexprs"), **given)
    assert error.value.argument == named


# ---- cache -----------------------------------------------------------------------------------------------------------


def test_the_second_time_comes_from_the_cache(fresh_home: Path):
    first = compile_triton(double, TYPES, {"BLOCK": 256})
    second = compile_triton(double, TYPES, {"BLOCK": 256})
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first == second
    assert (second.ptx, second.cubin, second.parameters) == (first.ptx, first.cubin, first.parameters)


def test_everything_that_matters_is_in_the_key(fresh_home: Path):
    kernels = [
        compile_triton(double, TYPES, {"BLOCK": 256}),
        compile_triton(double, TYPES, {"BLOCK": 512}),
        compile_triton(double, TYPES, {"BLOCK": 256}, num_warps=8),
        compile_triton(double, TYPES, {"BLOCK": 256}, num_stages=3),
        compile_triton(double, TYPES, {"BLOCK": 256}, arch="sm_90"),
        compile_triton(double, TYPES, {"BLOCK": 256}, attributes={"n": 16}),
        compile_triton(double, TYPES | {"n": "i64"}, {"BLOCK": 256}),
        compile_triton(total, TYPES, {"BLOCK": 256}),
    ]
    assert not any(kernel.from_cache for kernel in kernels)
    assert len(set(kernels)) == len(kernels)


def test_a_damaged_entry_is_rebuilt(fresh_home: Path):
    first = compile_triton(double, TYPES, {"BLOCK": 256})
    entry = next(disk_cache.cache_folder().rglob("*.bin"))
    entry.write_bytes(entry.read_bytes()[:-1])
    again = compile_triton(double, TYPES, {"BLOCK": 256})
    assert not again.from_cache
    assert again.cubin == first.cubin


CELL = """\
import triton
import triton.language as tl

@triton.jit
def helper(value):
    return value + {constant}

@triton.jit
def in_a_cell(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, helper(offsets))
"""


def _run_cell(name: str, text: str) -> object:
    """What IPython does with a cell: compile under a made-up file name and put the text where inspect finds it."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), scope)
    return scope["in_a_cell"]


def test_a_helper_defined_again_without_its_kernel(fresh_home: Path):
    """The notebook's trap: only the helper's cell was run again."""
    kernel = _run_cell("/tmp/ipykernel_1/2.py", CELL.format(constant=7))
    assert ", 7;" in compile_triton(kernel, {"x": "*i32"}, {"BLOCK": 32}).ptx
    changed = _run_cell("/tmp/ipykernel_1/3.py", CELL.format(constant=9))
    kernel.fn.__globals__["helper"] = changed.fn.__globals__["helper"]
    assert ", 9;" in compile_triton(kernel, {"x": "*i32"}, {"BLOCK": 32}).ptx


def test_a_kernel_of_a_notebook_cell_and_a_changed_helper(fresh_home: Path):
    name = "/tmp/ipykernel_1/1.py"
    first = compile_triton(_run_cell(name, CELL.format(constant=7)), {"x": "*i32"}, {"BLOCK": 32})
    assert ", 7;" in first.ptx
    assert name in first.ptx
    second = compile_triton(_run_cell(name, CELL.format(constant=9)), {"x": "*i32"}, {"BLOCK": 32})
    assert ", 9;" in second.ptx
    assert first != second
