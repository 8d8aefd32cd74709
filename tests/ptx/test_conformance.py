"""Random programs: kernels on the machine and on the CPU, instructions against exact arithmetic, planted races.

``python tests/ptx/fuzz --seconds 3600`` goes on for longer, and tells the round of a fault, to be run alone.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from dataclasses import replace

import pytest
from fuzz import both, command, instructions, page, programs, races
from fuzz.trees import Kernel, Node

from workbench.errors import CompilerCrash

BUDGET = 6  # seconds of every run, for all kinds together

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: apt-get install g++")


def test_fresh_programs() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    tally = command.fuzz(seed, BUDGET, shrinking=20)
    print(tally)
    assert not tally.faults, "\n".join(tally.faults)
    assert min(tally.kernels, tally.instructions, tally.races) > 0


@pytest.mark.long
def test_ten_minutes_of_programs() -> None:
    seed = random.SystemRandom().getrandbits(32)
    tally = command.fuzz(seed, 600)
    assert not tally.faults, f"seed {seed}\n" + "\n".join(tally.faults)


@pytest.mark.long
def test_the_page_says_what_is_found() -> None:
    assert page.PAGE.read_text() == page.markdown(), "run: python tests/ptx/fuzz --page"


@pytest.mark.long
def test_every_class_is_always_found() -> None:
    found, seen = races.count(races.KINDS, range(1000, 1004))
    assert [kind for kind in races.KINDS if found[kind] < 4] == []
    assert not [one for one in seen if one.false_alarm]


def broken(monkeypatch: pytest.MonkeyPatch, module, old: str, new: str) -> None:
    """From here on the machine executes ``new`` where ``old`` stands."""
    program = module.ptx.Program
    monkeypatch.setattr(module.ptx, "Program", lambda text: program(text.replace(old, new)))


def test_a_wrong_instruction_is_found_and_shown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, instructions, "\nmul.hi.s32", "\nmul.hi.u32")
    texts = (instructions.draw_text(seed, 60) for seed in itertools.count())
    wrong = next(filter(None, (instructions.judge(text) for text in texts if "\nmul.hi.s32" in text.ptx())))
    least = instructions.shrink(wrong)
    assert [instructions.opcode(step.case) for step in least.text.steps] == ["mul.hi.s32"]
    assert "mul.hi.s32" in str(least)


def with_planted(kernel: Kernel) -> Kernel:
    planted = Node("u32_0 = __brev(u32_0) + $0;", "stmt", (Node("(u32_1 * 3u)", "u32"),))
    return replace(kernel, body=replace(kernel.body, parts=(*kernel.body.parts[:2], planted, *kernel.body.parts[2:])))


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = with_planted(programs.kernel(3, "k0"))
    assert both.compare([kernel], ways=both.WAYS[:1]) == []
    broken(monkeypatch, both, "brev.b32", "not.b32")
    (difference,) = both.compare([kernel], ways=both.WAYS[:1])
    assert "on the CPU" in difference.what


@pytest.mark.long
def test_a_wrong_kernel_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = with_planted(programs.kernel(3, "k0"))
    broken(monkeypatch, both, "brev.b32", "not.b32")
    (difference,) = both.compare([kernel])
    least = both.shrink(difference, 120, time.monotonic)
    assert "__brev" in least.kernel.source()
    assert least.kernel.size() < kernel.size() / 8


def test_a_kernel_that_the_compiler_crashes_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = both._compiled

    def crashing(text: str, *options: object) -> object:
        if " k1(" in text:
            raise CompilerCrash("NVRTC crashed")
        return compiled(text, *options)

    monkeypatch.setattr(both, "_compiled", crashing)
    monkeypatch.setattr(command, "KERNELS", 2)
    tally = command.Tally()
    assert list(command.draw_kernels(1, tally, 0)) == []
    assert (tally.kernels, len(tally.crashes)) == (1, 1)
    assert "k1" in tally.crashes[0]
    assert str(tally).endswith("NVRTC crashed at 1 kernels, which were left out")


def test_a_deadlock_on_the_cpu_is_told() -> None:
    kernel = programs.kernel(5, "k0")
    body = Node("if (t == 0) __syncwarp(3u);", "stmt")
    with pytest.raises(RuntimeError, match="wait for each other"):
        both.compare([replace(kernel, body=Node("", "block", (body,)))])
