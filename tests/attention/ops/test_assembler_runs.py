"""Who runs an assembler and how often: nobody for a launch in the simulator, everybody else once for each kernel."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import example_ops
import pytest
import torch

import workbench as wb
from workbench import ops
from workbench.attention import copy_blocks
from workbench.ops.compiled_code import CompiledCode
from workbench.toolchain import nvrtc_client
from workbench.tuning import tune

SAXPY = """extern "C" __global__ void saxpy(float *y, const float *x, float a, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }"""
VARIANTS = ("cuda_vectors", "triton_vectors")


@pytest.fixture
def runs(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Programs that were compiled with NVRTC ("front") and assembled ("assembler"); nothing is remembered."""
    counts = Counter()
    compile_program, run = nvrtc_client.compile_program, subprocess.run

    def counted_compile(library: str, request: dict, label: str) -> dict:
        counts["front"] += 1
        counts["assembler"] += "--gpu-architecture=sm_80" in request["flags"]
        return compile_program(library, request, label)

    def counted_run(command, *arguments, **options):
        counts["assembler"] += Path(command[0]).name.startswith("ptxas") and "--version" not in command
        return run(command, *arguments, **options)

    monkeypatch.setattr(nvrtc_client, "compile_program", counted_compile)
    monkeypatch.setattr(subprocess, "run", counted_run)
    for variant in ops.variants("copy_blocks"):
        object.__setattr__(variant, "_code", CompiledCode())
    return counts


def test_a_kernel_of_the_users_own_that_is_launched_and_checked(runs: Counter):
    kernels = wb.load_cuda(SAXPY, device="sim")
    x, y = torch.ones(100), torch.zeros(100)
    kernels.saxpy(1, 128, y, x, 2.0, 100)
    assert (y == 2).all()
    assert wb.check_kernel(kernels.saxpy, grid=1, block=128, args=[y, x, 2.0, 100]).ok
    assert runs == {"front": 1, "assembler": 0}
    assert kernels.saxpy.compiled.registers > 0
    assert runs == {"front": 2, "assembler": 1}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_op_called_with_tensors_of_the_cpu(runs: Counter, name: str):
    caches = torch.rand(2, 4, 16, 2, 64).half()
    before = caches.clone()
    copy_blocks(caches[:1], caches[1:], torch.tensor([[0, 3]]), variant=name)
    assert torch.equal(caches[:, 3], before[:, 0])
    assert runs["assembler"] == 0
    assert runs["front"] == (name == "cuda_vectors")


@pytest.mark.parametrize("name", VARIANTS)
def test_what_tests_judge(runs: Counter, judge, name: str):
    variant, case = ops.variant("copy_blocks", name), ops.get("copy_blocks").case(None)
    assert judge(variant, variant.default_config(case.problem()), case, checks=True).ok
    assert runs["assembler"] == 0


def test_a_comparison_assembles_each_kernel_once(runs: Counter):
    found = wb.compare("copy_blocks", variants=VARIANTS, device="sim")
    assert found.all_correct
    assert "registers per thread" in str(found)
    assert runs == {"front": 1, "assembler": 2}


@pytest.mark.parametrize("name", VARIANTS)
def test_tuning_assembles_each_configuration_once(runs: Counter, name: str):
    run = tune("copy_blocks", device="sim", variants=name, budget=2, isolation="none", record=False)
    assert run.outcomes == {"ok": 2}
    assert runs["assembler"] == 2
    assert runs["front"] == (2 if name == "cuda_vectors" else 0)


def test_wb_compile_and_a_trace_assemble_once(runs: Counter):
    assert wb.compile("copy_blocks", variant="cuda_vectors").registers > 0
    assert runs == {"front": 1, "assembler": 1}
    traced = wb.trace("copy_blocks", variant="cuda_vectors")
    assert "occupancy" in str(traced)
    assert runs == {"front": 1, "assembler": 1}


KERNELS = [variant for op in example_ops.OPS.values() for variant in op.variants if variant.language != "torch"]


@pytest.mark.parametrize("variant", KERNELS, ids=str)
@pytest.mark.sampled(6)
def test_static_shared_memory_is_what_the_assembler_says(variant):
    case = ops.get(variant.op).case(None)
    if case.problem().layout not in variant.layouts:
        case = case.override(layout=variant.layouts[0])
    problem = case.problem(arch=variant.machine_arch(case.problem()))
    for kernel in variant.kernels(variant.default_config(problem), problem, problem.arch):
        assert kernel.assembly.result().resources[kernel.name].shared_bytes == kernel.static_shared_bytes
