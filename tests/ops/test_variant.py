"""What every variant does alike, whatever its op."""

from __future__ import annotations

import dataclasses

import pytest

from workbench import ops, toolchain
from workbench.errors import ConfigurationError
from workbench.launch import devices

OP = ops.get("paged_attention")


@pytest.fixture(scope="module")
def sim():
    return devices.get("sim")


@pytest.mark.parametrize(
    ("name", "compiler"), [("cuda_thread_group", "compile_cuda_module"), ("triton_online_softmax", "compile_triton")]
)
def test_a_decode_step_of_other_lengths_compiles_nothing(name, compiler, sim, monkeypatch):
    variant = dataclasses.replace(OP.variant(name))
    compiled = []
    compile_kernel = getattr(toolchain, compiler)
    monkeypatch.setattr(
        toolchain, compiler, lambda *args, **options: compiled.append(1) or compile_kernel(*args, **options)
    )
    for lengths in ((5, 9), (6, 10), (40, 3)):
        case = OP.case("small", seq_lens=lengths)
        config = variant.default_config(case.problem())
        problem = case.problem(config)
        tensors = case.inputs(problem)
        variant.run(config, problem, tensors, sim)
        assert case.check(tensors.out).ok
    assert len(compiled) == 1
    half = OP.case("small", seq_lens=(5, 9), dtype="bfloat16")
    problem = half.problem(config)
    tensors = half.inputs(problem)
    variant.run(config, problem, tensors, sim)
    assert half.check(tensors.out).ok
    assert len(compiled) == 2


def test_code_that_is_remembered_does_not_make_an_illegal_problem_legal(sim):
    variant = dataclasses.replace(OP.variant("cuda_thread_group"))
    case = OP.case("small", seq_lens=(5,))
    config = variant.default_config(case.problem())
    variant.run(config, case.problem(config), case.inputs(case.problem(config)), sim)
    endless = dataclasses.replace(case.problem(config), max_seq_len=10**6)
    with pytest.raises(ConfigurationError, match="shared memory"):
        variant.run(config, endless, case.inputs(case.problem(config)), sim)
