"""Device functions: parameters and results by value, recursion and its limit, printf, assert, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench import ptx
from workbench.errors import KernelFault, UnsupportedInstructionError
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).parent / "cuda_calls.cu"
LINES = SOURCE.read_text().splitlines()


@pytest.fixture(scope="module")
def program() -> ptx.Program:
    return ptx.Program.from_text(next(iter(compile_cuda_module(SOURCE, arch="sm_80").kernels.values())).ptx)


def line_of(mark: str) -> int:
    return 1 + next(i for i, text in enumerate(LINES) if text.endswith(f"// {mark}"))


def collatz(n: int) -> int:
    steps = 0
    while n > 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def hanoi(n: int, a: int, b: int, c: int, moves: list[int]) -> None:
    if n:
        hanoi(n - 1, a, c, b, moves)
        moves[0], moves[1] = moves[0] + 1, moves[1] * 3 + a * 7 + b
        hanoi(n - 1, c, b, a, moves)


@pytest.mark.parametrize("checks", [False, True])
def test_calls(program: ptx.Program, checks: bool) -> None:
    out, numbers = np.zeros(128, np.int32), np.arange(64, dtype=np.float32)
    report = program["calls"].launch(1, 64, [out, numbers], checks=checks)
    t = np.arange(64)
    assert out[:64].tolist() == [collatz(n + 1) + (collatz(2 * n + 1) * 1000 if n % 3 == 0 else 0) for n in range(64)]
    np.testing.assert_array_equal(out[64:], (t ^ 33) * 5)
    np.testing.assert_array_equal(numbers, t * 3 + 4 + t)
    assert report.findings == []


@pytest.mark.parametrize("threads", [1, 33, 64])
def test_recursion_keeps_every_frame(program: ptx.Program, threads: int) -> None:
    out = np.full(256, -1, np.int32)
    program["recursion"].launch(1, threads, [out])
    for t in range(threads):
        moves = [0, t]
        hanoi(t % 5, 1, 2, 3, moves)
        assert out[t::64].tolist() == [fib(t % 12), moves[0], np.array(moves[1]).astype(np.int32), 1 - t % 2]
    assert (out.reshape(4, 64)[:, threads:] == -1).all()


def test_lanes_meet_again_after_a_call(program: ptx.Program) -> None:
    """Statistics: the code after a call that a third of the lanes made runs with all of them."""
    out, numbers = np.zeros(128, np.int32), np.zeros(64, np.float32)
    report = program["calls"].launch(1, 64, [out, numbers], statistics=True)
    stores = [line for line in report.lines if line.is_store and line.space == "global"]
    assert [line.active_lanes / line.executions for line in stores[-2:]] == [32, 32]


def test_endless_recursion(program: ptx.Program) -> None:
    with pytest.raises(KernelFault, match=r"forever: stack overflow: \d+ calls deep") as caught:
        program["forever"].launch(1, 1, [np.zeros(1, np.int32)])
    assert "cuda_calls.cu" in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
def test_printf(program: ptx.Program, capsys: pytest.CaptureFixture, threads: int) -> None:
    out = np.zeros(4, np.int32)
    report = program["prints"].launch(3, 4, [out], threads=threads)
    expected = ""
    for block in range(3):
        for t in (1, 3):
            expected += f"{-t}|{7:5d}|{255:<4x}|{chr(97 + t)}|text|%|{1 << 40}\n"
        for t in range(4):
            expected += f"{0.5 * t + block:.3f} {t:4d} {12345.678:8.2e}\n"
        expected += "1 2\n" * 4
    assert report.printed == expected
    assert capsys.readouterr().out == expected
    assert out.tolist() == [2] * 4


def test_assert(program: ptx.Program) -> None:
    with pytest.raises(KernelFault) as caught:
        program["asserts"].launch(1, 64, [np.arange(64, dtype=np.int32)])
    message = str(caught.value)
    assert message.startswith("asserts: assertion failed: `out[t] < 5` in void asserts(int *), ")
    assert f"cuda_calls.cu:{line_of('assertion')}" in message
    assert "block (0, 0, 0), thread (5, 0, 0)" in message
    out = np.arange(64, dtype=np.int32)
    report = program["asserts"].launch(1, 64, [out], checks=True)
    assert [(f.kind, f.line, f.count) for f in report.findings] == [("assertion failed", line_of("assertion"), 59)]
    assert out.tolist() == [1] * 5 + list(range(5, 64))  # threads that failed went no further


@pytest.mark.parametrize("checks", [False, True])
def test_function_pointers(program: ptx.Program, checks: bool) -> None:
    t = np.arange(64)
    out = t.astype(np.int32) * 3
    report = program["indirect"].launch(1, 64, [out], checks=checks)
    assert out.tolist() == np.where(t % 5, t + 1 + t * 3 % 2, t * 3).tolist()
    assert report.findings == []


def test_virtual_functions(program: ptx.Program) -> None:
    t, out, numbers = np.arange(64), np.zeros(1, np.int32), np.zeros(64, np.float32)
    report = program["virtuals"].launch(1, 64, [out, numbers], statistics=True)
    assert numbers.tolist() == np.where(t % 3, 3 * t, t * t).tolist()
    assert out.tolist() == [100 * 22 + 42]
    calls = [line for line in report.lines if line.text.startswith("call")]
    assert [(line.executions, line.active_lanes) for line in calls] == [(2, 64)] * 2, "once, whatever they lead to"


@pytest.mark.parametrize("threads", [1, 33])
def test_recursion_through_a_pointer(program: ptx.Program, threads: int) -> None:
    out = np.zeros(64, np.int32)
    program["through_itself"].launch(1, threads, [out])
    assert out[:threads].tolist() == [sum(range(t % 7 + 1)) for t in range(threads)]


def test_a_pointer_to_no_function(program: ptx.Program) -> None:
    with pytest.raises(KernelFault, match=r"wild: trap at .*cuda_calls.cu:\d+ \(PTX line \d+, `call ") as caught:
        program["wild"].launch(1, 32, [np.arange(32)])
    assert f"cuda_calls.cu:{line_of('to nowhere')}" in str(caught.value)


UNFIT = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 result) one (.param .b64 x) { st.param.b32 [result], 1; ret; }
.global .u64 table[1] = {one};
.visible .entry k() {
    .reg .b64 %rd<2>;
    ld.global.u64 %rd1, [table];
    { .param .b32 param0; .param .b32 result; st.param.b32 [param0], 3;
      shape : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (result), %rd1, (param0), shape; }
    ret;
}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (UNFIT, "take the address of a function of that prototype; cannot execute `call"),
        (UNFIT.replace(", shape;", ";"), "an indirect call without a .callprototype"),
        (UNFIT.replace(".b64 x", ".b32 x").replace("(param0), shape", "(), shape"), "with 0 arguments instead of 1"),
        (UNFIT.replace("%rd1, (param0), shape", "one, (param0, param0)"), "calls one with 2 arguments instead of 1"),
    ],
)
def test_calls_that_fit_no_function(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=reason):
        ptx.Program.from_text(text)["k"]


def test_malloc_of_cuda_gives_blocks_that_stand_apart(program: ptx.Program) -> None:
    out = np.zeros(32, np.uint64)
    program["heap"].launch(1, 32, [out])
    assert out.all()
    assert np.diff(np.sort(out)).min() >= 16
    assert "heap: 32 blocks of malloc, 512 bytes together" in program.heap.leaks()[0]
    assert "cuda_calls.cu:65" in program.heap.leaks()[0]
