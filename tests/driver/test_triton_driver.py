"""Triton's own JIT on the PTX machine: what `wb.simulated_triton` answers to Triton, and what it refuses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
import triton_kernels as kernels
from triton import knobs
from triton.runtime import driver as triton_runtime

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.base.trials.store import Store
from workbench.driver.imports import when_imported
from workbench.driver.torch_device.library import installed_torch
from workbench.driver.triton import driver as triton_driver
from workbench.driver.triton import sessions as triton_sessions
from workbench.errors import (
    ArgumentError,
    DeviceUnavailableError,
    KernelFault,
    KernelTimeout,
    PredictedTimeWarning,
    UnknownNameError,
    UnsupportedInstructionError,
)


@pytest.fixture
def device() -> Iterator[triton_driver.SimulatedTriton]:
    with wb.simulated_triton(force=True) as made:
        yield made


def test_a_launch_needs_no_assembler_and_registers_are_made_when_asked_for(device, fresh_cache, monkeypatch, capfd):
    run, programs = subprocess.run, []

    def counted(command, *args, **kwargs):
        programs.extend([Path(command[0]).name] if "--version" not in command else [])
        return run(command, *args, **kwargs)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(fresh_cache / "triton"))
    x, y, out = torch.rand(100), torch.rand(100), torch.zeros(100)
    kernel = kernels.add_kernel[(1,)](x, y, out, 100, BLOCK=128, num_warps=2)
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)
    assert "ptxas" not in programs
    assert 4 <= kernel.n_regs <= 64
    assert kernel.n_spills == 0
    assert "ptxas" in programs
    assert kernel.asm["cubin"].startswith(b"\x7fELF")
    assert "EXIT" in kernel.asm["sass"]
    assert capfd.readouterr() == ("", ""), "the tools' own warnings are not the program's"
    assert device.last_report.block == (64, 1, 1)


def test_heuristics_warmup_and_hooks(device):
    x, out = torch.rand(50), torch.zeros(50)
    warmed = kernels.doubled_kernel.warmup(torch.float32, torch.float32, 50, grid=(1,))
    assert warmed.metadata.shared == 0
    seen = []

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(metadata):
        seen.append(("exit", metadata.get()["name"]))

    def before(*args, **kwargs):
        seen.append(("before", kwargs["BLOCK"]))

    jit = kernels.doubled_kernel.fn
    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    jit.add_pre_run_hook(before)
    try:
        kernels.doubled_kernel[(1,)](x, out, 50)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook.remove(leave)
        jit.pre_run_hooks.remove(before)
    assert seen == [("before", 64), ("enter", "doubled_kernel"), ("exit", "doubled_kernel")]
    torch.testing.assert_close(out, 2 * x)


def test_an_autotuner_goes_by_predicted_times_and_says_so(device):
    x = torch.zeros(1000)
    with pytest.warns(PredictedTimeWarning, match="A100"):
        kernels.increment_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, 1000)
    assert torch.equal(x, torch.ones(1000)), "what the trials wrote is put back"
    timings = {config.kwargs["BLOCK"]: time for config, time in kernels.increment_kernel.configs_timings.items()}
    assert all(len(set(time)) == 1 and 1e-3 < time[0] < 1 for time in timings.values()), "milliseconds, always the same"
    assert kernels.increment_kernel.best_config.kwargs["BLOCK"] == min(timings, key=timings.get)


def test_what_an_autotuner_times_is_kept_in_a_store(tmp_path):
    path = tmp_path / "rows.sqlite"
    for model, sizes in (("a100-sxm-80gb", (1000, 500)), ("a100-sxm-80gb", (1000,))):
        with (
            warnings.catch_warnings(),
            wb.simulated_triton(model=model, store=path, force=True),
        ):
            warnings.simplefilter("ignore", PredictedTimeWarning)
            for size in sizes:
                kernels.increment_kernel.cache.clear()
                kernels.increment_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](torch.zeros(1000), size)  # noqa: B023
    timings = {config.kwargs["BLOCK"]: time[0] for config, time in kernels.increment_kernel.configs_timings.items()}
    with Store(path) as store:
        rows = store.trials(op="increment_kernel")
    assert len(rows) == 4, "two configurations, two cases, each once"
    rows = [row for row in rows if "n 1000" in row.case]
    assert {row.config["BLOCK"]: row.config["num_warps"] for row in rows} == {32: 1, 256: 4}
    assert {row.config["BLOCK"]: pytest.approx(1e3 * row.seconds) for row in rows} == timings
    assert {(row.basis, row.predicted_for, row.arch) for row in rows} == {("predicted", "a100-sxm-80gb", "sm_80")}


def test_benchmarks_are_predicted_under_every_name(device):
    from triton.testing import do_bench  # ours: Triton's own, imported before, is `original` below

    original = triton_sessions._kept["do_bench"]
    x, y, out = torch.rand(4096), torch.rand(4096), torch.zeros(4096)
    runs = []

    def work():
        runs.append(1)
        kernels.add_kernel[(4,)](x, y, out, 4096, BLOCK=1024)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PredictedTimeWarning)
        predicted = do_bench(work)
        assert do_bench(work, quantiles=[0.5, 0.2]) == [predicted] * 2
        assert do_bench(work, return_mode="all") == [predicted]
        assert len(runs) == 3
        assert original(work) == pytest.approx(predicted, rel=1e-6)
        assert len(runs) < 15
        nothing = do_bench(lambda: x + y)
    assert nothing != nothing, "torch on the CPU says nothing about a GPU"
    assert 1e-3 < predicted < 0.1


def test_tuples_scalars_and_wrapped_tensors(device):
    a, b, out = torch.rand(16), torch.rand(16), torch.zeros(16)
    kernels.tuple_kernel[(1,)]((a, b, out), (16, 8), (2.0, 3.0), BLOCK=16)
    torch.testing.assert_close(out, 2 * a + 3 * b * (torch.arange(16) < 8))
    values = torch.zeros(6, dtype=torch.float64)
    kernels.scalar_kernel[(1,)](values, -7, True, 0.1, 3.14159, 1e-300, 5 << 40)
    half = torch.tensor(0.1, dtype=torch.half).item()
    brain = torch.tensor(3.14159, dtype=torch.bfloat16).item()
    assert values.tolist() == [-7, 1, half, brain, 1e-300, 5]
    bits = torch.zeros(16, dtype=torch.int32)
    kernels.outside_kernel[(1,)](triton.reinterpret(bits, triton.language.float32), BLOCK=16)
    assert torch.equal(bits.view(torch.float32), torch.ones(16))


def test_gluon_kernels_run_too(device):
    x, out = torch.rand(1000), torch.zeros(1000)
    layout = kernels.gl.BlockedLayout([1], [32], [4], [0])
    kernels.gluon_kernel[(8,)](x, out, 1000, 128, layout)
    assert torch.equal(x, out)


def test_printing_asserting_and_libdevice(device, capsys, monkeypatch):
    x = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    kernels.print_kernel[(1,)](x, BLOCK=4)
    printed = capsys.readouterr().out
    assert "value" in printed
    assert ": 3" in printed
    kernels.assert_kernel[(1,)](x, BLOCK=4)  # without debug Triton leaves it out
    with pytest.raises(KernelFault, match=r"`too large`, \S+triton_kernels\.py:\d+ at"):
        kernels.assert_kernel[(1,)](x, BLOCK=4, debug=True)
    angles = torch.linspace(-1, 1, 32)
    wanted = torch.asin(angles)
    kernels.libdevice_kernel[(1,)](angles, BLOCK=32)
    torch.testing.assert_close(angles, wanted)


def test_scratch_memory_comes_from_the_allocator(device):
    x, out, asked = torch.rand(16, 16), torch.zeros(16, 16), []

    def allocate(size, alignment, stream):
        asked.append(size)
        return torch.empty(size, dtype=torch.int8)

    kernels.scratch_kernel[(1,)](x, out, 16, 16, BLOCK=16)
    assert torch.equal(x, out)
    triton.set_allocator(allocate)  # sm_80 reads memory itself: no descriptor is built, nothing is asked for
    kernels.scratch_kernel[(1,)](x, out.zero_(), 16, 16, BLOCK=16)
    assert torch.equal(x, out)
    assert asked == []
    function = kernels.scratch_kernel.device_caches[device.driver.get_current_device()][0]
    launcher = next(iter(function.values()))._run
    launcher._metadata = launcher._metadata._replace(global_scratch_size=128)
    try:
        kernels.scratch_kernel[(2,)](x, out, 16, 16, BLOCK=16)
    finally:
        launcher._metadata = launcher._metadata._replace(global_scratch_size=0)
    assert asked == [256], "128 bytes for each program"


def test_architectures_live_side_by_side_and_target_info_sees_each():
    found = {}
    with wb.simulated_triton("sm_80", force=True):
        for arch in ("sm_89", "sm_80", "sm_90", "sm_100a", "sm_120"):
            with wb.simulated_triton(arch, force=True):
                out = torch.zeros(2, dtype=torch.int32)
                kernels.target_kernel[(1,)](out)
                found[triton_runtime.active.get_current_target().arch] = out.tolist()
        assert triton_runtime.active.get_current_target().arch == 80
    assert found == {80: [1, 0], 89: [1, 1], 90: [1, 1], 100: [1, 1], 120: [1, 1]}


def test_a_gpu_of_ones_own_may_have_an_architecture_that_no_recorded_one_has():
    model = replace(device_model(), name="one of mine", key="mine", arch="sm_87")
    with wb.simulated_triton(model=model) as device:
        assert device.shipped_model == device_model().key
        assert triton_runtime.active.utils.get_device_properties(0)["warpSize"] == 32


def test_compile_triton_sees_its_target_without_a_driver():
    from workbench.toolchain import compile_triton

    for arch, stores in (("sm_80", 1), ("sm_89", 2)):
        kernel = compile_triton(kernels.target_kernel, {"out": "*i32"}, {}, arch=arch)
        assert kernel.ptx.count("st.global") == stores
        out = torch.zeros(2, dtype=torch.int32)
        from workbench.launch.sim import Simulator

        Simulator(arch=arch).launch(kernel, 1, kernel.threads_per_block, [out])
        assert out.tolist() == [1, stores - 1]


def test_threads_launch_at_once(device):
    wrong = []

    def work(size):
        x, y, out = torch.rand(size), torch.rand(size), torch.zeros(size)
        for _ in range(3):
            kernels.add_kernel[(triton.cdiv(size, 64),)](x, y, out, size, BLOCK=64, num_warps=2)
        if not torch.equal(out, x + y):
            wrong.append(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (63, 64, 65, 128)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_checks_show_findings_and_go_on(capsys):
    x = torch.zeros(1, dtype=torch.int32)
    with wb.simulated_triton(checks=True, trace=True, force=True) as device:
        kernels.racy_kernel[(4,)](x)
        kernels.racy_kernel[(4,)](x)
    assert {finding.kind for finding in device.findings} == {"global race"}
    assert "triton_kernels.py" in capsys.readouterr().err
    first, second = device.launches
    assert second.like == 1
    assert first.seconds == second.seconds > 0
    assert "racy_kernel" in str(first.trace)
    with pytest.raises(ArgumentError, match=r"like launch 1.*launches\[0\]\.trace"):
        second.trace  # noqa: B018
    loaded = next(iter(kernels.racy_kernel.device_caches[device.driver.get_current_device()][0].values()))
    with pytest.raises(DeviceUnavailableError, match="has ended"):
        loaded.run(1, 1, 1, 0, loaded.function, loaded.packed_metadata, None, None, None, x)


def test_a_fault_is_an_error_of_the_launch(device):
    with pytest.raises(KernelFault, match=r"out-of-bounds.*triton_kernels\.py"):
        kernels.outside_kernel[(1,)](torch.zeros(8), BLOCK=16)


def test_a_launch_ends_at_its_limit():
    counter = torch.ones(2, dtype=torch.int32)
    with wb.simulated_triton(seconds_limit=0.2, force=True), pytest.raises(KernelTimeout):
        kernels.counting_kernel[(1,)](counter)


def test_a_lock_that_nobody_gives_back_is_a_deadlock():
    lock = torch.ones(1, dtype=torch.int32)
    with wb.simulated_triton(force=True), pytest.raises(KernelFault, match="deadlock"):
        kernels.waiting_kernel[(1,)](lock)


def test_the_drivers_place_is_given_back():
    before = (knobs.runtime.add_stages_inspection_hook, triton.testing.do_bench, triton_runtime._active)
    device = wb.simulated_triton(force=True)
    inner = wb.simulated_triton("sm_89", force=True)
    assert triton_runtime.active is inner.driver
    device.close()
    assert triton_runtime.active is inner.driver
    inner.close()
    inner.close()
    assert before == (knobs.runtime.add_stages_inspection_hook, triton.testing.do_bench, triton_runtime._active)
    assert "closed" in repr(inner)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"arch": "sm_75"}, ArgumentError, r"arch: got 'sm_75'; allowed: sm_80, sm_89, sm_90, sm_100, sm_120"),
        ({"arch": "sm_100a", "model": "rtx-5090"}, ArgumentError, "sm_120, that of"),
        ({"arch": "sm_90", "model": "l4"}, ArgumentError, "sm_89, that of"),
        ({"model": "h300"}, UnknownNameError, "h200"),
        ({"seconds_limit": 0}, ArgumentError, "more than 0 seconds"),
    ],
)
def test_what_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        wb.simulated_triton(**options, force=True)
    assert triton_runtime._active is None or not hasattr(triton_runtime._active, "session")


def test_a_real_gpu_and_the_interpreter_are_never_replaced_silently(monkeypatch):
    monkeypatch.setattr(triton_driver, "_real_gpu", lambda: "NVIDIA H200")
    with pytest.raises(DeviceUnavailableError, match=r"H200.*force=True"):
        wb.simulated_triton()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ArgumentError, match="TRITON_INTERPRET"):
        wb.simulated_triton(force=True)


def test_tensors_elsewhere_and_kernels_for_other_targets_are_named(device):
    x = torch.zeros(4, device="meta")

    class OnGpu:
        dtype, device = torch.float32, torch.device("cuda:0")

        def data_ptr(self):
            return 256

    with pytest.raises(
        ArgumentError, match=r"outside_kernel\(\): 'x': got a tensor on cuda:0; allowed: tensors on the cpu"
    ):
        kernels.outside_kernel[(1,)](OnGpu(), BLOCK=16)
    with pytest.raises(ArgumentError, match="meta"):
        kernels.outside_kernel[(1,)](x, BLOCK=16)
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(kernels.racy_kernel, {"x": "*i32"})
    for target in (GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)):
        with pytest.raises(ArgumentError, match=f"one compiled for {target.backend} {target.arch}; allowed: cuda 80"):
            triton.compile(source, target=target)[(1, 1, 1)](torch.zeros(1, dtype=torch.int32))


@triton.jit
def squared(a, out):
    at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(a + at)))


@triton.jit
def on_the_stack(a, out):
    at = tl.arange(0, 64)
    found = tl.inline_asm_elementwise("alloca.u32 $0, $1;", "=r,r", [tl.load(a + at)], tl.int32, False, 1)
    tl.store(out + at, found)


def test_what_only_newer_hardware_has_names_the_way_out():
    a, out = torch.ones(64, dtype=torch.int32), torch.empty(64, dtype=torch.int32)
    with (
        wb.simulated_triton("sm_90", force=True),
        pytest.raises(UnsupportedInstructionError, match=r'(?s)for sm_90.*simulated_triton\("sm_80"\).*stack'),
    ):
        on_the_stack[(1,)](a, out)


@pytest.mark.parametrize(
    ("kernel", "args", "message"),
    [
        (squared, [np.ones(4096, np.float16), torch.empty(64, 64)], "torch.from_numpy"),
        (squared[(1,)], [], r"without \[grid\]"),
    ],
)
def test_calls_that_triton_does_not_take(kernel, args, message):
    with pytest.raises(ArgumentError, match=message):
        wb.check_kernel(kernel, grid=(1,), args=args)


def test_who_asks_whether_there_is_a_package_has_not_imported_it(tmp_path, monkeypatch):
    (tmp_path / "asked_for.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    done = []
    when_imported("asked_for", lambda: done.append(True))
    assert importlib.util.find_spec("asked_for") is not None
    assert not done
    importlib.import_module("asked_for")
    assert done == [True]


CPU_BUILD = installed_torch().problem or "AssertionError"
"""The advice where torch is its CPU build."""


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ([], "raise AssertionError('Torch not compiled with CUDA enabled')\n", CPU_BUILD),
        (["--chek"], "", "No such option '?--chek"),
    ],
)
def test_a_program_that_cannot_run_here_is_told_why(options, text, message, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "workbench.cli", "run", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search(message, done.stderr), done.stderr
