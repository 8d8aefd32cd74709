"""The predicted time has the right units, grows with what a GPU must do, and names what bounds it."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pytest
import toy

from workbench.analysis.device_models import model_of_gpu
from workbench.analysis.prediction.chain import dependent_chain
from workbench.analysis.prediction.predict import predict_counts
from workbench.errors import UnknownNameError
from workbench.tuning import device_model, device_models, predict
from workbench.tuning.result.table import SIM_TABLE, name_for

A100 = device_model()
COUNTS = {
    "grid_blocks": 1080,
    "block_threads": 256,
    "registers": 32,
    "shared_bytes": 0,
    "spill_bytes": 0,
    "warp_instructions": 1000,
    "mix": {},
    "global_load_requests": 0,
    "global_load_sectors": 0,
    "global_store_requests": 0,
    "global_store_sectors": 0,
    "unique_bytes_read": 0,
    "unique_bytes_written": 0,
    "shared_requests": 0,
    "shared_wavefronts": 0,
    "shared_ideal_wavefronts": 0,
    "tensor_flops": 0,
    "chain": {"global_loads": 0, "shared_accesses": 0, "arithmetic": 0, "barriers": 0},
}
GIB = 1 << 30


def counts(**changes) -> dict:
    return {**COUNTS, **changes}


def reading(size: int, repeated: int = 1) -> dict:
    return counts(global_load_sectors=repeated * size // 32, unique_bytes_read=size)


def test_dram_bytes_take_their_time_and_twice_as_many_take_twice():
    once, twice = predict_counts(reading(GIB), A100), predict_counts(reading(2 * GIB), A100)
    assert once.bound_by == "dram"
    assert once.parts["dram"] == pytest.approx(GIB / 2.039e12)
    assert twice.seconds / once.seconds == pytest.approx(2, rel=0.01)
    assert once.seconds > once.parts["dram"], "launching is not free"


def test_repeated_sectors_cost_dram_only_beyond_the_l2_cache():
    small = 10 << 20
    assert predict_counts(reading(small, 4), A100).parts["dram"] == predict_counts(reading(small), A100).parts["dram"]
    assert predict_counts(reading(GIB, 4), A100).parts["dram"] > 3 * predict_counts(reading(GIB), A100).parts["dram"]


@pytest.mark.parametrize(
    ("what", "worse"),
    [
        ("uncoalesced", {"global_load_sectors": 8 * 4_000_000}),
        ("conflicts", {"shared_wavefronts": 32 * 4_000_000}),
        ("more instructions", {"warp_instructions": 400_000_000}),
        ("a slow pipe", {"mix": {"special": 40_000_000}}),
        ("tensor", {"tensor_flops": 10**13}),
        ("double precision", {"mix": {"fp64": 100_000_000}}),
    ],
)
def test_more_of_anything_that_bounds_is_slower(what, worse):
    base = counts(
        global_load_sectors=4_000_000,
        unique_bytes_read=1 << 20,
        shared_wavefronts=4_000_000,
        shared_ideal_wavefronts=4_000_000,
    )
    assert predict_counts({**base, **worse}, A100).seconds > 1.5 * predict_counts(base, A100).seconds, what


def test_low_occupancy_is_slower_where_latency_bounds():
    chain = {"global_loads": 100, "shared_accesses": 0, "arithmetic": 0, "barriers": 0}
    many = predict_counts(counts(chain=chain), A100)
    few = predict_counts(counts(chain=chain, shared_bytes=100_000), A100)
    assert many.bound_by == few.bound_by == "latency"
    assert few.occupancy < many.occupancy
    assert few.seconds > 3 * many.seconds
    assert few.parts["latency"] == pytest.approx(few.waves * 100 * A100.dram_latency_clocks / A100.clock_hz)


def test_a_tail_wave_costs_a_whole_one():
    chain = {"global_loads": 100, "shared_accesses": 0, "arithmetic": 0, "barriers": 0}
    full = predict_counts(counts(chain=chain, grid_blocks=108 * 8), A100)
    tail = predict_counts(counts(chain=chain, grid_blocks=108 * 8 + 1), A100)
    assert (full.waves, tail.waves) == (1, 2)
    assert tail.parts["latency"] == pytest.approx(2 * full.parts["latency"])


def test_a_case_smaller_than_the_gpu_still_tells_configurations_apart():
    def small(loads, **more):
        return counts(grid_blocks=4, chain={**COUNTS["chain"], "global_loads": loads}, **more)

    assert predict_counts(small(20), A100).seconds > 1.5 * predict_counts(small(5), A100).seconds
    conflicted = small(5, shared_wavefronts=64_000, shared_ideal_wavefronts=2_000)
    assert predict_counts(conflicted, A100).seconds > predict_counts(small(5), A100).seconds


def test_operands_of_wgmma_take_no_time_of_loads_and_stores():
    bare = counts(shared_wavefronts=64_000, shared_ideal_wavefronts=2_000)
    with_operands = bare | {
        "shared_wavefronts": 10_064_000, "shared_ideal_wavefronts": 10_002_000, "operand_wavefronts": 10**7
    }  # fmt: skip
    assert predict_counts(with_operands, A100) == predict_counts(bare, A100)


@pytest.mark.parametrize("key", ["h100-sxm", "h200"])
def test_starting_blocks_takes_time_where_it_was_measured(key: str):
    model = device_model(key)
    assert model.sources["block_start_seconds"]
    empty = predict_counts(counts(grid_blocks=540_672), model)
    assert empty.bound_by == "block starts"
    # An H200 took 325.5 µs, docs/GPUS.md.
    assert empty.seconds == pytest.approx(325.5e-6, rel=0.02)
    unknown = dataclasses.replace(model, block_start_seconds=None)
    assert "block starts" not in predict_counts(counts(grid_blocks=540_672), unknown).parts
    assert A100.block_start_seconds is None


def test_what_does_not_fit_has_no_time():
    prediction = predict_counts(counts(shared_bytes=200_000), A100)
    assert math.isinf(prediction.seconds)
    assert prediction.bound_by == "occupancy"


def test_it_is_labelled_with_its_device():
    text = str(predict(toy.fake_report(10**7), toy.FakeKernel(), 128, 1, "l4"))
    assert "predicted" in text
    assert "L4" in text
    with pytest.raises(UnknownNameError, match="a100-sxm-80gb"):
        device_model("b300")


def test_the_simulators_table_is_the_default_models():
    assert SIM_TABLE == f"sim-{A100.key}" == name_for(SimpleNamespace(name="sim"), A100)


def test_every_figure_of_every_device_has_a_source():
    figures = [f.name for f in dataclasses.fields(A100) if f.type == "float"]
    for model in device_models().values():
        for name in figures:
            assert getattr(model, name) > 0
            assert model.sources[name], (model.key, name)
        assert model.base_clock_hz is None or model.base_clock_hz < model.clock_hz
        assert (model.base_clock_hz is None) == ("base_clock_hz" not in model.sources)
    published = {"a100-sxm-80gb": 19.5e12, "rtx-4090": 82.6e12, "l4": 30.3e12, "l40s": 91.6e12, "a10": 31.2e12}
    published |= {"rtx-3090": 35.6e12, "rtx-a4000": 19.2e12, "rtx-a6000": 38.7e12, "rtx-3060": 12.7e12, "t4": 8.1e12}
    published |= {"rtx-2080-ti": 13.4e12, "titan-rtx": 16.3e12}
    for key, flops in published.items():
        model = device_models()[key]
        assert 2 * model.fp32_lanes * model.multiprocessors * model.clock_hz == pytest.approx(flops, rel=0.02)
    tensor = {"a100-sxm-80gb": 312e12, "h100-sxm": 989e12, "h100-pcie": 756e12, "l4": 121e12, "rtx-4090": 165e12}
    tensor |= {
        "rtx-3090": 71e12,
        "rtx-a6000": 154.8e12,
        "a10": 125e12,
        "titan-rtx": 130.5e12,
        "t4": 65e12,
        "b200": 2.25e15,
    }
    for key, flops in tensor.items():
        model = device_models()[key]
        rate = model.tensor_flops_per_clock * model.multiprocessors * model.clock_hz
        assert rate == pytest.approx(flops, rel=0.02)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("Tesla T4", "t4"),
        ("NVIDIA A10G", None),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA H200", "h200"),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(name, key):
    found = model_of_gpu(name)
    assert (found and found.key) == key


def test_l1_answers_what_is_near_enough():
    """A block of one warp reads its bytes 16 times: again after 1 KiB, or after 1 GiB of other reads."""
    size, blocks = 1 << 20, COUNTS["grid_blocks"]
    read = {"global_load_sectors": 16 * blocks * size // 32, "unique_bytes_read": blocks * size}
    read |= {"block_bytes_read": blocks * size, "block_threads": 32}
    near = predict_counts(counts(**read, read_again=[0] * 5 + [15 * blocks * size]), A100)
    far = predict_counts(counts(**read, read_again=[0] * 25 + [15 * blocks * size]), A100)
    assert far.parts["l2"] == pytest.approx(16 * near.parts["l2"])
    assert far.parts["l1"] == near.parts["l1"]


def machine(**changes) -> dict:
    found = {"instructions": 1000, "local_bytes": 0, "pipes": {}, "clocks": 0, "waits": {}}
    return {**found, "waits": dict.fromkeys(("global", "shared", "special"), 0), **changes}


def test_machine_code_stands_before_ptx():
    rtx = device_model("rtx-3090")
    of_ptx = counts(mix={"special": 10**9})
    assert predict_counts({**of_ptx, "machine": machine()}, rtx).seconds < predict_counts(of_ptx, rtx).seconds
    plain, heavy = (counts(machine=machine(pipes={"fma": 10**9, "heavy": n})) for n in (0, 10**9))
    assert predict_counts(heavy, rtx).parts["fp32"] == pytest.approx(2 * predict_counts(plain, rtx).parts["fp32"])
    assert predict_counts(heavy, A100).parts["fp32"] == predict_counts(plain, A100).parts["fp32"]


def test_an_access_takes_the_load_store_units_where_they_are_half_a_warp():
    many = counts(machine=machine(pipes={"memory": 10**9}), shared_wavefronts=10**9, shared_ideal_wavefronts=10**9)
    clocks = {}
    for model in (A100, device_model("rtx-3090")):
        share = -(-COUNTS["grid_blocks"] // model.multiprocessors)
        clocks[model.key] = predict_counts(many, model).parts["shared"] * model.clock_hz / share
    assert clocks["rtx-3090"] == pytest.approx(2 * clocks[A100.key])


def test_spills_go_as_far_as_the_stacks_of_all_threads():
    spilled = machine(local_bytes=1 << 34)
    small = predict_counts(counts(machine=spilled, stack_bytes=8), A100)
    large = predict_counts(counts(machine=spilled, stack_bytes=8 << 10), A100)
    assert small.parts["l2"] == 0 < small.parts["l1"]
    assert large.parts["dram"] > 0.5 * (1 << 34) / A100.dram_bytes_per_second


def lines(*texts: str, executions: int = 8) -> list:
    return [SimpleNamespace(ptx_line=at, text=text, executions=executions) for at, text in enumerate(texts)]


def test_independent_loads_overlap_and_dependent_ones_do_not():
    independent = lines("ld.global.u32 %r1, [%rd1];", "ld.global.u32 %r2, [%rd1+4];", "add.s32 %r3, %r1, %r2;")
    dependent = lines("ld.global.u64 %rd2, [%rd1];", "ld.global.u64 %rd3, [%rd2];", "add.s64 %rd4, %rd3, %rd2;")
    assert dependent_chain(independent, 8).global_loads == 1
    assert dependent_chain(dependent, 8).global_loads == 2
    assert dependent_chain(dependent, 8).arithmetic == 1


def test_the_chain_knows_vectors_guards_barriers_and_asynchronous_copies():
    vector = lines("ld.shared.v2.u32 {%r1, %r2}, [%r9];", "@%p1 add.s32 %r3, %r2, 1;", "setp.gt.s32 %p1, %r3, 0;")
    assert dependent_chain(vector, 8).shared_accesses == 1
    assert dependent_chain(vector, 8).arithmetic == 2
    assert dependent_chain(lines("bar.sync 0;", "bar.sync 0;"), 4).barriers == 4
    assert dependent_chain(lines("cp.async.wait_group 1;"), 8).global_loads == 0.5
    assert dependent_chain(lines("cp.async.wait_group 0;"), 8).global_loads == 1
    loop = [
        *lines("mov.u32 %r0, 1;", executions=1),
        *lines("", *["fma.rn.f32 %f1, %f1, %f2, %f3;"] * 3, executions=10)[1:],
    ]
    assert dependent_chain(loop, 1).arithmetic == 30
