"""Progress bars: in a terminal alone, with what is worked on, and silent on demand."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import pytest
from click.testing import CliRunner
from every_command import every_command
from waiting import wait_until

import workbench as wb
from workbench import cli
from workbench.base import command_group, progress
from workbench.comparison.bench import own_op
from workbench.toolchain import assembly, cuda, triton_aot


class Screen(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, terminal: bool):
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def heard():
    yield
    progress.be_quiet(False)


@pytest.mark.parametrize(
    ("terminal", "quiet", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_bar_counts_in_a_terminal_unless_it_is_to_be_quiet(monkeypatch, terminal, quiet, shown):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    progress.be_quiet(quiet)
    items = progress.tracked(iter("abc"), " parts", 3, name=lambda item: f"part \x1b{item}")
    assert list(items) == list("abc")
    said = screen.getvalue()
    assert bool(said) == shown
    if shown:
        assert "3/3" not in said.rstrip()[-20:], "nothing stays behind"
        assert "/3" in said
        assert "part \\x1bb" in said, "names cannot write to the terminal"


@pytest.mark.parametrize(
    ("terminal", "quiet", "own_thread", "shown"),
    [(True, False, False, True), (False, False, False, False), (True, True, False, False), (True, False, True, False)],
)
def test_work_without_parts_shows_its_seconds_while_it_runs(monkeypatch, terminal, quiet, own_thread, shown):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    progress.be_quiet(quiet)

    def work() -> None:
        before = threading.active_count()
        with progress.waiting("compiling \x1bx"):
            if shown:
                wait_until(lambda: "compiling \\x1bx: 0 s" in screen.getvalue())
            assert (threading.active_count() > before) == shown

    if own_thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    assert bool(screen.getvalue()) == shown
    assert "compiling" not in screen.getvalue().rpartition("\r")[2], "nothing stays behind"


def test_work_that_is_done_at_once_shows_nothing(monkeypatch):
    screen = Screen(True)
    monkeypatch.setattr(sys, "stderr", screen)
    with progress.waiting("compiling"):
        pass
    assert screen.getvalue() == ""


def test_a_compilation_shows_what_it_compiles(monkeypatch, fresh_cache):
    seen = []

    def waiting(what: str) -> contextlib.nullcontext:
        seen.append(what)
        return contextlib.nullcontext()

    for module in (cuda, triton_aot, assembly):
        monkeypatch.setattr(module, "waiting", waiting)
    for name in ("cuda_vectors", "triton_vectors"):
        assert wb.compile("copy_blocks", variant=name).registers
    compiled = [what for what in seen if what.startswith("compiling ")]
    assert compiled == ["compiling copy_blocks_vectors.cu for sm_80", "compiling copy_pages for sm_80"]


@pytest.mark.parametrize(
    ("work", "total"),
    [
        (lambda op: op.sweep(n=[32, 64], device="sim"), 6),
        (lambda op: own_op.run(op, device="sim"), 3),
        (lambda op: wb.compare(op, ["one", op.case("one").override(name="one more")], device="sim"), 6),
    ],
    ids=["sweep", "bench", "compare"],
)
def test_what_tries_variants_counts_them_in_a_terminal(monkeypatch, fresh_home, work, total):
    screen = Screen(True)
    op = wb.op(lambda x: x + 1, name="counted")
    op.case("one", x=wb.randn("n"), n=4)
    source = 'extern "C" __global__ void f(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] + 1; }'
    for name in ("first", "second"):
        op.cuda(source, grid=1, block="x.shape[0]", args=("out", "x"), name=name)
    monkeypatch.setattr(sys, "stderr", screen)
    work(op)
    assert f"/{total} [" in screen.getvalue()
    assert "second on one" in screen.getvalue()


def test_every_command_has_the_option_and_heeds_it(monkeypatch):
    seen = []
    monkeypatch.setattr(command_group, "be_quiet", lambda: seen.append(True))
    counts = {name: [option.name for option in one.params].count("quiet") for name, one in every_command(cli.main)}
    assert {"setup gpu", "bench predict", "check"} <= counts.keys()
    assert [name for name, count in counts.items() if count != 1] == []
    for words, status in ((["schema", "-q", "doctor"], 0), (["check", "-q", "no.py:op"], 2)):
        assert CliRunner().invoke(cli.main, words).exit_code == status
    assert seen == [True, True]
