"""Broken PTX in every way: it is read, or refused with one of two errors, and what decodes can be launched; the process
lives. The texts are real ones, with tokens exchanged, lines moved, bytes changed, and their ends cut off."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("hypothesis", reason='no Hypothesis: python -m pip install -e ".[test]"')

from fuzz import readers
from fuzz.damage import STEPS, WORDS, Step, changed_text, one_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench import ptx
from workbench.ptx.parse import parse


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return readers.own_texts()


@st.composite
def changes(draw: st.DrawFn) -> list[Step]:
    where, word = st.integers(0, 1 << 20), st.one_of(st.sampled_from(WORDS), st.text(max_size=4))
    return draw(st.lists(st.tuples(st.sampled_from(STEPS), where, where, word), min_size=1, max_size=4))


def read_and_run(broken: str) -> int:
    """Decode and launch what can be; return how many kernels came so far."""
    with contextlib.suppress(ptx.PtxSyntaxError):
        return readers.read_and_run(broken)
    return 0


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_changed_modules(texts: list[str], data: st.DataObject) -> None:
    source = one_kernel(data.draw(st.sampled_from(texts)), data.draw(st.integers(0, 20)))
    read_and_run(changed_text(source, data.draw(changes())))


def test_the_changes_reach_the_machine(texts: list[str]) -> None:
    """Without changes every kernel decodes and runs: the fuzzer does not stop at the door."""
    for whole in texts:
        entries = parse(whole).entries
        assert read_and_run(whole) == len(entries) > 0


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
