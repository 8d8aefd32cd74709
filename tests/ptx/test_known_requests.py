"""Requests whose lanes lie as they did before take a shorter way: it changes no value, finding or count."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from ptx_support import module
from suite_sample import Run, Sample, program, run
from test_suite import SAMPLES
from test_suite_faults import FAULTS, SOURCE, Fault, launch

from workbench import ptx
from workbench.errors import KernelFault
from workbench.ptx.machine import core
from workbench.toolchain import compile_cuda_module

LANES, ROUNDS, BYTES = 32, 120, 4096
FILES = {sample.file: sample for sample in reversed(SAMPLES)}
Launch = Callable[[], object]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Launch], tuple[object, object]]:
    """Runs something as always, and with a machine that takes the long way for every request."""

    def run_both(start: Launch) -> tuple[object, object]:
        usual = start()
        make = core.BoundLaunch

        def bound() -> object:
            made = make()
            made.takes_shortcuts = False
            return made

        with monkeypatch.context() as patch:
            patch.setattr(core, "BoundLaunch", bound)
            return usual, start()

    return run_both


def seen(done: Run) -> list[object]:
    """All that a launch tells but its time, and its arrays."""
    facts = [getattr(done.report, each.name) for each in dataclasses.fields(done.report) if each.name != "seconds"]
    return [*map(repr, facts), *(arg.tobytes() if isinstance(arg, np.ndarray) else arg for arg in done.args)]


@pytest.mark.parametrize("options", [{}, {"checks": True, "statistics": True}], ids=["bare", "observed"])
@pytest.mark.parametrize(
    "sample",
    [pytest.param(s, id=s.kernel, marks=() if FILES[s.file] is s else pytest.mark.long) for s in SAMPLES],
)
def test_kernels(sample: Sample, options: dict[str, bool], both: Callable[[Launch], tuple[object, object]]) -> None:
    def launched() -> list[object]:
        return seen(run(program(sample.file), sample.kernel, sample.case(sample.sizes[-1]), threads=1, **options))

    usual, slow = both(launched)
    assert usual == slow


class Access(NamedTuple):
    """A load or store of ``elements`` of a type in a space; the address lies in a register of 32 or 64 bits."""

    name: str
    elements: int
    space: str
    wide: bool = True

    @property
    def type(self) -> np.dtype:
        return np.dtype(f"{'i' if self.name[0] == 's' else 'u'}{int(self.name[1:]) // 8}")

    @property
    def register(self) -> str:
        return {1: "h", 2: "h", 4: "r", 8: "d"}[self.type.itemsize]

    @property
    def vector(self) -> str:
        names = [f"%{self.register}{50 + i}" for i in range(self.elements)]
        return names[0] if self.elements == 1 else "{" + ", ".join(names) + "}"

    @property
    def instruction(self) -> str:
        space = "" if self.space == "generic" else f".{self.space}"
        return f"{space}{f'.v{self.elements}' if self.elements > 1 else ''}.{self.name}"

    def kernel(self, is_store: bool) -> ptx.Program:
        """Each round every lane accesses ``data`` where ``offsets`` say so; ``lines`` hold the values, side by side."""
        size = self.type.itemsize * self.elements
        to = "%d1" if self.space == "global" else "%d7"
        address = [f"add.u64 %d5, {to}, %d4;", "[%d5+64]"] if self.wide else ["add.u32 %r5, %r7, %r4;", "[%r5+64]"]
        each = [f"%{self.register}{50 + i}" for i in range(self.elements)]
        of_line = [f"[%d6+{i * self.type.itemsize}]" for i in range(self.elements)]
        move = (
            [f"ld.global.{self.name} {r}, {at};" for r, at in zip(each, of_line, strict=True)]
            + [f"st{self.instruction} {address[1]}, {self.vector};"]
            if is_store
            else [f"ld{self.instruction} {self.vector}, {address[1]};"]
            + [f"st.global.{self.name} {at}, {r};" for r, at in zip(each, of_line, strict=True)]
        )
        copy = (
            "mov.u32 %r10, %r1; {name}: shl.b32 %r11, %r10, 2; add.u32 %r12, %r7, %r11; cvt.u64.u32 %d11, %r11;"
            " add.u64 %d12, %d1, %d11; {moves} add.u32 %r10, %r10, 32; setp.lt.u32 %p2, %r10, {words};"
            " @%p2 bra {name}; bar.warp.sync -1;"
        )
        into = copy.format(
            name="INTO", words=BYTES // 4, moves="ld.global.u32 %r13, [%d12]; st.shared.u32 [%r12], %r13;"
        )
        back = copy.format(
            name="BACK", words=BYTES // 4, moves="ld.shared.u32 %r13, [%r12]; st.global.u32 [%d12], %r13;"
        )
        body = [
            f".shared .align 16 .b8 memory[{BYTES}];",
            *(f"ld.param.u64 %d{i + 1}, [{name}];" for i, name in enumerate(("data", "offsets", "lines"))),
            "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r7, memory; cvt.u64.u32 %d7, %r7;",
            "cvta.shared.u64 %d7, %d7;" if self.space == "generic" else "",
            into,
            "LOOP: mad.lo.u32 %r3, %r2, 32, %r1; mul.wide.u32 %d4, %r3, 4; add.u64 %d4, %d2, %d4;",
            f"ld.global.s32 %r4, [%d4]; cvt.s64.s32 %d4, %r4; mul.wide.u32 %d6, %r3, {size}; add.u64 %d6, %d3, %d6;",
            address[0],
            *move,
            f"add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {ROUNDS}; @%p1 bra LOOP; bar.warp.sync -1;",
            back if self.space != "global" else "",
        ]
        text = module("access", ".param .u64 data, .param .u64 offsets, .param .u64 lines", "\n".join(body))
        return ptx.Program.from_text(text)


def offsets_of(size: int, rng: np.random.Generator) -> np.ndarray:
    """The places of all lanes by round, in ways that come back, with others and new ones in between."""
    lane = np.arange(LANES)
    ways = [lane, 0 * lane, lane[::-1], lane ^ 5, lane // 8, lane * 3, lane % 4 * 8 + lane // 4, lane & ~1]
    most = (BYTES - 128) // size
    rounds = []
    while len(rounds) < ROUNDS:
        way = ways[rng.integers(len(ways))]
        for _ in range(rng.integers(1, 9)):
            places = way.copy()
            if rng.integers(6) == 0:  # one lane elsewhere
                places[rng.integers(LANES)] = rng.integers(most // 2)
            rounds.append(places + rng.integers(most - places.max()))
        if rng.integers(4) == 0:
            rounds.append(rng.integers(most, size=LANES))
    return np.array(rounds[:ROUNDS], np.int32) * size


ACCESSES = [
    Access("u32", 1, "global"), Access("u32", 4, "global"), Access("u16", 2, "global"), Access("s8", 1, "global"),
    Access("u64", 2, "global"), Access("u32", 1, "shared", False), Access("u32", 2, "shared"),
    Access("u8", 4, "shared", False), Access("u32", 4, "generic"), Access("u64", 1, "generic"),
]  # fmt: skip


@pytest.mark.parametrize("is_store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("options", [{}, {"checks": True, "statistics": True}], ids=["bare", "observed"])
@pytest.mark.parametrize("access", ACCESSES, ids=lambda a: f"{a.space}-{a.name}-{a.elements}-{a.wide}")
def test_ways_that_change(
    access: Access, options: dict[str, bool], is_store: bool, both: Callable[[Launch], tuple[object, object]]
) -> None:
    rng, size, code = np.random.default_rng(5), access.type.itemsize * access.elements, access.kernel(is_store)
    data, offsets = rng.integers(256, size=BYTES, dtype=np.uint8), offsets_of(size, rng)
    lines = rng.integers(256, size=(ROUNDS, LANES, size), dtype=np.uint8)

    def launched() -> list[object]:
        args = [data.copy(), offsets, lines.copy()]
        return seen(Run(code["access"].launch(1, LANES, args, threads=1, **options), args, None))

    memory, expected = data.copy(), lines.copy()
    for places, values in zip(offsets + 64, expected, strict=True):
        for lane, place in enumerate(places):
            if is_store:
                memory[place : place + size] = values[lane]
            else:
                values[lane] = memory[place : place + size]
    usual, slow = both(launched)
    assert usual[-3:] == [memory.tobytes(), offsets.tobytes(), expected.tobytes()]
    assert usual == slow


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize(
    ("place", "kind"),
    [(-68, "out-of-bounds"), (BYTES - 64, "out-of-bounds"), (2, "misaligned")],
)
@pytest.mark.parametrize("lanes", [slice(None), slice(7, 8), slice(31, 32)], ids=["all", "7", "31"])
@pytest.mark.parametrize(
    "access", [Access("u32", 1, "global"), Access("u32", 1, "shared", False)], ids=lambda a: a.space
)
def test_faults_of_a_way_that_is_known(
    access: Access, lanes: slice, place: int, kind: str, checks: bool, both: Callable[[Launch], tuple[object, object]]
) -> None:
    offsets = np.tile(np.arange(LANES, dtype=np.int32) * 4, (ROUNDS, 1))
    offsets[-2, lanes] += place - offsets[-2, lanes].min()
    code = access.kernel(False)["access"]

    def launched() -> object:
        args = [np.zeros(BYTES, np.uint8), offsets, np.zeros((ROUNDS, LANES), np.uint32)]
        try:
            return seen(Run(code.launch(1, LANES, args, checks=checks, follow_addresses=False), args, None))
        except KernelFault as fault:
            return str(fault)

    usual, slow = both(launched)
    assert kind in str(usual)
    assert usual == slow


@pytest.fixture(scope="module")
def faulty() -> ptx.Program:
    module = compile_cuda_module(SOURCE, arch="sm_80", macros={"FAULT": 1})
    return ptx.Program.from_text(next(iter(module.kernels.values())).ptx)


@pytest.mark.long
@pytest.mark.parametrize("fault", [each for each in FAULTS if not each.stops], ids=lambda f: f.kernel)
def test_findings(faulty: ptx.Program, fault: Fault, both: Callable[[Launch], tuple[object, object]]) -> None:
    def launched() -> list[object]:
        return seen(Run(launch(faulty, fault.kernel, checks=True, instruction_limit=100_000), [], None))

    usual, slow = both(launched)
    assert usual == slow
