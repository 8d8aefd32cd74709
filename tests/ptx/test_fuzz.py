"""Broken PTX in every way: it is read, or refused with one of two errors, and what decodes can be launched; the process
lives. The texts are real ones, with tokens exchanged, lines moved, bytes changed, and their ends cut off."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason='no Hypothesis: python -m pip install -e ".[test]"')

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ptx_mbarrier_cases import random_steps, text
from ptx_wmma_cases import PRODUCTS

from workbench import ptx
from workbench.errors import ArgumentError, KernelFault, KernelTimeout, UnsupportedInstructionError
from workbench.ptx.parse import parse
from workbench.toolchain import compile_cuda_module

HERE = Path(__file__).parent
SOURCES = (
    "suite/transposes.cu",
    "suite/reductions.cu",
    "cuda_calls.cu",
    "cuda_mbarrier.cu",
    "outside/swizzled_gemm.cu",
)
_TOKEN = re.compile(r"[%.\w$]+|[^\w\s]|\s+")
# Words that change what a statement is.
WORDS = [
    "{", "}", "(", ")", "[", "]", ";", ",", ":", "@", "!", "|", "-", "_", ".v2", ".v4", ".pred", ".f64", ".b8", ".b128",
    ".shared", ".param", ".reg", ".local", ".func", ".entry", ".loc", ".section", ".branchtargets", ".align", "%tid.x",
    "%p1", "%r1", "%rd1", "%f1", "%nope", "0x", "0f", "0fzz", "1e400", "-1", "99999999999999999999", "4294967295",
    "bra", "brx.idx", "call", "ret", "exit", "trap", "bar.sync", "mma", "wmma", "cp.async", "ld", "st", "atom", "cvt",
    "set", "mov.b64", "setp", "shfl.sync", "elect.sync", "mbarrier.arrive", "//", "/*", "*/", '"', "\x00", "é", "\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def texts() -> list[str]:
    compiled = [next(iter(compile_cuda_module(HERE / name, arch="sm_80").kernels.values())).ptx for name in SOURCES]
    return [*compiled, text(*random_steps(1)), PRODUCTS[0].text]


def one_kernel(whole: str, which: int) -> str:
    """The head of a module and one of its kernels, so that a change hits something that is decoded."""
    places = [match.start() for match in re.finditer(r"(?m)^(\.visible )?(\.entry|\.func)", whole)]
    if len(places) < 2:
        return whole
    ends = [*places[1:], len(whole)]
    i = which % len(places)
    return whole[: places[0]] + whole[places[i] : ends[i]]


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, int, int, str]]:
    kinds = st.sampled_from(
        ["operand"] * 6 + ["replace", "replace", "delete", "double", "swap", "insert", "bytes", "cut"]
    )
    where, word = st.integers(0, 1 << 20), st.one_of(st.sampled_from(WORDS), st.text(max_size=4))
    return draw(st.lists(st.tuples(kinds, where, where, word), min_size=1, max_size=4))


def mutate(source: str, steps: list[tuple[str, int, int, str]]) -> str:
    tokens = _TOKEN.findall(source)
    for kind, first, second, word in steps:
        if not tokens:
            break
        i, j = first % len(tokens), second % len(tokens)
        if kind == "operand":  # another register or number of the text: mostly still a program
            like = "%" if tokens[i][:1] == "%" else "0123456789"
            names = [k for k, token in enumerate(tokens) if token and token[0] in like]
            if names:
                tokens[names[first % len(names)]] = tokens[names[second % len(names)]]
        elif kind == "replace":
            tokens[i] = word if second % 2 else tokens[j]
        elif kind == "delete":
            del tokens[i : i + 1 + second % 3]
        elif kind == "double":
            tokens[i:i] = tokens[i : i + 1 + second % 8]
        elif kind == "swap":
            tokens[i], tokens[j] = tokens[j], tokens[i]
        elif kind == "insert":
            tokens.insert(i, word)
        elif kind == "bytes":
            raw = bytearray(tokens[i].encode() or b";")
            raw[second % len(raw)] ^= 1 + first % 255
            tokens[i] = raw.decode("latin-1")
        elif first % 4 == 0:
            del tokens[j:]
    return "".join(tokens)


def read_and_run(broken: str) -> int:
    """Decodes every kernel and launches what can be; returns how many came so far."""
    with contextlib.suppress(ptx.PtxSyntaxError):
        program, ran = ptx.Program(broken), 0
        for name in list(program):
            with contextlib.suppress(ptx.PtxSyntaxError, UnsupportedInstructionError):
                kernel = program[name]
                ran += 1
                args = [np.zeros(512, np.float32) if p.size == 8 else 3 for p in kernel.parameters]
                with contextlib.suppress(KernelFault, KernelTimeout, ArgumentError):
                    kernel.launch(1, 64, args, checks=True, statistics=True, instruction_limit=5_000, threads=1)
        return ran
    return 0


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_changed_modules(texts: list[str], data: st.DataObject) -> None:
    source = one_kernel(data.draw(st.sampled_from(texts)), data.draw(st.integers(0, 20)))
    read_and_run(mutate(source, data.draw(changes())))


def test_the_changes_reach_the_machine(texts: list[str]) -> None:
    """Without changes every kernel decodes and runs: the fuzzer does not stop at the door."""
    for whole in texts:
        entries = parse(whole).entries
        refused = sum(name == "heap" for name in entries)  # of cuda_calls.cu
        assert read_and_run(whole) == len(entries) - refused > 0


def test_every_cut(texts: list[str]) -> None:
    """A text that ends anywhere."""
    for whole in texts:
        source = one_kernel(whole, 0)
        for end in range(0, len(source), max(1, len(source) // 60)):
            read_and_run(source[:end])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode("latin-1"))))
def test_noise(noise: str) -> None:
    read_and_run(noise)
    read_and_run(f".version 8.0\n.target sm_80\n.address_size 64\n.entry f()\n{{\n{noise}\n}}\n")
    read_and_run(
        f".version 8.0\n.target sm_80\n.entry f(.param .u64 a)\n{{\n.reg .b32 %r<4>;\nadd.s32 %r1, {noise};\n}}\n"
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(
        ["add.s32", "ld.global.v4.f32", "st.shared.b32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
         "bar.sync", "cp.async.cg.shared.global", "wmma.load.a.sync.aligned.row.m16n16k16.f16", "setp.lt.s32", "call",
         "mov.b64", "mbarrier.try_wait.parity.shared.b64", "atom.global.cas.b32", "shfl.sync.up.b32", "lop3.b32",
         "brx.idx",
         "cvt.pack.sat.s8.s32.b32", "elect.sync", "ldmatrix.sync.aligned.m8n8.x4.shared.b16", "set.eq.u32.f32",
         "slct.f32.f32", "cp.async.wait_group", "vabsdiff4.u32.u32.u32", "selp.b32", "prmt.b32", "createpolicy.x"]
    ),
    st.lists(
        st.sampled_from(
            ["%r1", "%r2", "%d1", "%p1|%p2", "%p1", "!%p1", "{%r1, %r2}", "{}", "[%d1]", "[%r1+4]", "[x]", "_", "1",
             "-7",             "0f3F800000", "L", "(a)", "", "[", "{", "%tid.x", "1.5", "|", "!", "[]"]
        ),
        max_size=6,
    ),
)  # fmt: skip
def test_any_operands(opcode: str, operands: list[str]) -> None:
    registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;"
    body = f"{registers}\n{opcode} {', '.join(operands)};\nL: ret;"
    read_and_run(f".version 8.0\n.target sm_80\n.entry f(.param .u64 x)\n{{\n{body}\n}}\n")
