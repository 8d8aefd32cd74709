"""A recorded block as a pipeline: times worked out by hand, and the same ones in whichever order the machine ran it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from recorded_pipelines import EMPTY, FULL, TILE, TWICE, recorded

from workbench.errors import ArgumentError
from workbench.ptx import Program
from workbench.ptx.recorder import mbarrier_names
from workbench.ptx.recording import Recording
from workbench.ptx.tensor_map import TensorMap
from workbench.toolchain import compile_cuda_module

SOURCE = Path(__file__).with_name("cuda_hopper.cu")
STEPS = 5


def test_a_wait_is_over_when_the_last_arrival_and_the_last_byte_have_come() -> None:
    pipeline = TWICE.pipeline(100)
    spans = [(span.warp, span.kind, span.start, span.end, span.name, span.phase) for span in pipeline.spans]
    assert spans == [
        (0, "run", 0, 8, "", -1), (0, "wait", 8, 113, "empty", 0), (0, "run", 113, 117, "", -1),
        (1, "run", 0, 3, "", -1), (1, "wait", 3, 106, "full", 0), (1, "run", 106, 115, "", -1),
        (1, "wait", 115, 215, "full", 1), (1, "run", 215, 219, "", -1),
    ]  # fmt: skip
    assert [(copy.issued, copy.landed, copy.bytes) for copy in pipeline.copies] == [(6, 106, 64), (115, 215, 64)]
    assert (pipeline.end, pipeline.roles) == (219, ("producer", "consumer"))
    assert pipeline.waited("producer") == 105 / 219
    assert pipeline.waited("consumer") == 203 / 219
    assert pipeline.waited("both") == 0


def test_what_a_stage_holds() -> None:
    (stage,) = TWICE.pipeline(100).stages
    assert (stage.mbarrier, stage.name) == (FULL, "full")
    assert [(state.state, state.start, state.end, state.fill) for state in stage.states] == [
        ("empty", 0, 6, -1), ("filling", 6, 106, 0), ("read", 106, 113, 0), ("empty", 113, 115, -1),
        ("filling", 115, 215, 1), ("read", 215, 218, 1), ("empty", 218, 219, -1),
    ]  # fmt: skip


def test_the_order_alone() -> None:
    """Copies without a latency: who comes first waits for nobody."""
    pipeline = TWICE.pipeline(0)
    assert [(span.warp, span.start, span.end) for span in pipeline.spans if span.kind == "wait"] == [
        (0, 8, 13), (1, 3, 6),
    ]  # fmt: skip
    assert pipeline.end == 19


def test_products_of_a_warp_group_begin_with_its_last_warp_and_follow_each_other() -> None:
    late = [(warp, 2 + 3 * (warp == 2)) for warp in range(4)]
    rows = [(warp, "product", 0, n, n + at, {"count": 64, "to": TILE}) for warp, at in late for n in range(2)]
    waits = [(warp, "wait_products", 0, 2, 2 + at) for warp, at in late]
    pipeline = recorded(*rows, *waits, *[(warp, "end", 0, 0, 4 + at) for warp, at in late], warps=4).pipeline()
    assert [(one.issued, one.start, one.end) for one in pipeline.products] == [(5, 5, 37), (6, 37, 69)]
    found = {(span.warp, span.start, span.end) for span in pipeline.spans if span.on == "products"}
    assert found == {(0, 4, 69), (1, 4, 69), (2, 7, 69), (3, 4, 69)}
    assert (pipeline.end, pipeline.tensor_cycles) == (71, 64)


def test_a_stage_without_an_mbarrier_for_empty_is_free_when_its_last_product_ends() -> None:
    """Warps that copy for themselves, as Triton's do: warp 0 asks for the next copy once its products are over."""
    tile = {"bytes": 64, "to": TILE}
    rows = [(0, "copy", 0, 0, 2, tile), (0, "copy", 8, 0, 4, {"bytes": 64, "to": TILE + 64})]
    for warp in range(4):
        rows += [(warp, "pass", 0, 0, 6), (warp, "product", 0, 0, 8, {"count": 64, "to": TILE + 32})]
        rows += [(warp, "wait_products", 0, 1, 9)]
    rows.append((0, "copy", 0, 1, 12, tile))
    rows += [(warp, "pass", 8, 0, 14) for warp in range(4)] + [(warp, "end", 0, 0, 20) for warp in range(4)]
    pipeline = recorded(*rows, warps=4).pipeline(100)
    assert pipeline.roles == ("both", "consumer", "consumer", "consumer")
    first, second = ([(one.state, one.start, one.end) for one in stage.states] for stage in pipeline.stages)
    # Landed at 102, multiplied from 104 to 136, asked for again at 139.
    assert first == [
        ("empty", 0, 2), ("filling", 2, 102), ("read", 102, 136), ("empty", 136, 139), ("filling", 139, 239),
    ]  # fmt: skip
    assert [one[0] for one in second] == ["empty", "filling", "full", "empty"]


def test_a_barrier_of_the_block_lets_go_with_its_last_warp() -> None:
    meet = recorded(
        (0, "meet", 1, 0, 4), (1, "come", 1, 0, 9), (0, "end", 0, 0, 6), (1, "arrive", EMPTY, 0, 10),
        (1, "end", 0, 0, 20),
    )  # fmt: skip
    waits = [(span.warp, span.start, span.end, span.name) for span in meet.pipeline().spans if span.kind == "wait"]
    assert waits == [(0, 4, 9, "barrier 1")]


def test_what_was_not_recorded_is_not_waited_for() -> None:
    cut = recorded((1, "pass", FULL, 3, 5), (1, "wait_products", 0, 9, 7), (1, "end", 0, 0, 9))
    assert cut.pipeline().end == 9


def test_names_of_mbarriers() -> None:
    variables = {0: "full", 64: "empty", 1024: "done", 2000: "store"}
    names = mbarrier_names([0, 8, 64, 72, 1024, 2008], variables)
    assert list(names.values()) == ["full[0]", "full[1]", "empty[0]", "empty[1]", "done", "store+8"]
    assert mbarrier_names([2048], {}) == {2048: "+2,048"}


def test_what_is_no_pipeline() -> None:
    with pytest.raises(ArgumentError, match="a block without mbarriers"):
        recorded((0, "meet", 0, 0, 4), (0, "end", 0, 0, 6)).pipeline()
    with pytest.raises(ArgumentError, match="copy_cycles"):
        TWICE.pipeline(-1)


@functools.cache
def program() -> Program:
    kernels = compile_cuda_module(SOURCE, arch="sm_90a").kernels
    return Program.from_text(next(iter(kernels.values())).ptx)


def recording_of(**options: bool) -> Recording:
    torch.manual_seed(0)
    a, b = (torch.randn(rows, 64 * STEPS, dtype=torch.float16) for rows in (64, 8))
    maps = TensorMap.of(a, (64, 64), swizzle=128), TensorMap.of(b, (8, 64), swizzle=128)
    kernel = program()["pipeline"]
    return kernel.launch(1, 160, [*maps, torch.zeros(64, 8), STEPS], record_block=0, **options).recording


def test_times_do_not_depend_on_the_order_in_which_the_machine_ran_the_warps() -> None:
    pipeline = recording_of().pipeline()
    assert recording_of(last_warp_first=True).pipeline() == pipeline
    assert recording_of(copies_early=True).pipeline() == pipeline
    assert pipeline.roles == (*["consumer"] * 4, "producer")
    fills = (64 * 128 + 8 * 128) * STEPS
    full = [phase for phase in pipeline.phases if phase.name.startswith("full")]
    assert sum(phase.bytes for phase in full) == sum(phase.expected_bytes for phase in full) == fills
    assert {(phase.arrivals, phase.name[:-3]) for phase in pipeline.phases} == {(1, "full"), (1, "empty")}
    assert all(phase.completed is not None for phase in pipeline.phases)
    assert [stage.name for stage in pipeline.stages] == ["full[0]", "full[1]"]
    assert [one.columns for one in pipeline.products] == [8] * 4 * STEPS
    # No stage is filled before it was read, and what is read has landed.
    for stage in pipeline.stages:
        assert [state.state for state in stage.states if state.state in ("filling", "read")] == [
            "filling", "read",
        ] * ((STEPS + 1 - pipeline.stages.index(stage)) // 2)  # fmt: skip
    assert sum(span.end - span.start for span in pipeline.spans if span.warp == 0) == max(
        span.end for span in pipeline.spans if span.warp == 0
    )


def test_a_recording_keeps_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.ptx.recorder.MAX_REQUESTS", 40)
    recording = recording_of()
    assert recording.truncated
    assert len(recording.events) == 40
    assert recording.pipeline().truncated
