"""``torch.compile`` of CPU tensors through Triton: what Inductor writes runs on the PTX machine."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, PredictedTimeWarning


class Block(torch.nn.Module):
    """x [tokens, 64] to probabilities [tokens, 96]."""

    def __init__(self):
        super().__init__()
        self.up, self.norm = torch.nn.Linear(64, 128), torch.nn.LayerNorm(128)
        self.down = torch.nn.Linear(128, 96)

    def forward(self, x):
        return torch.softmax(self.down(torch.nn.functional.gelu(self.norm(self.up(x)))), dim=-1)


class Scores(torch.nn.Module):
    """x [tokens, 64] to probabilities [tokens, 128]."""

    def __init__(self):
        super().__init__()
        self.project, self.norm = torch.nn.Linear(64, 128), torch.nn.LayerNorm(128)

    def forward(self, x):
        return torch.softmax(self.norm(self.project(x)), dim=-1)


@pytest.fixture
def inductor(fresh_home, monkeypatch):
    """The options of a session, with caches of the test's own."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(fresh_home / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(fresh_home / "triton"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PredictedTimeWarning)
        yield {"inductor": True, "force": True}


def test_a_compiled_model_runs_is_checked_and_traced(inductor):
    from torch._dynamo.device_interface import CpuInterface, get_interface_for_device
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code
    from torch.utils._triton import has_triton

    torch.manual_seed(0)
    model, x = Scores(), torch.randn(16, 64)
    compiled = torch.compile(model)
    with torch.no_grad(), config.patch(pattern_matcher=False):  # whose patterns take long to make
        wanted = model(x)
        with wb.simulated_triton("sm_80", checks=True, trace=True, **inductor) as device:
            got, (code,) = run_and_get_code(compiled, x)
            torch.testing.assert_close(got, wanted)
            assert "multi_processor_count=108, cc=80" in code
            launches = len(device.launches)
            compiled(x)
            ran = device.launches[launches:]
    assert device.findings == ()
    (kernel,) = [launch.kernel.label for launch in ran]
    assert re.fullmatch(r"triton_per_fused__softmax_native_layer_norm_\d+", kernel)
    assert config.cpu_backend == "cpp"
    assert get_interface_for_device("cpu") is CpuInterface
    assert not has_triton()
    trace = device.launches[0].trace
    loads = [line for line in trace.lines if "tl.load" in line.text]
    assert len(loads) == 3, "x, weight and bias"
    assert all(f"def {kernel}" in Path(line.path).read_text() for line in loads)


def test_one_session_at_a_time_compiles(inductor):
    with (
        wb.simulated_triton(**inductor),
        pytest.raises(ArgumentError, match="inductor: got True; allowed: one session"),
    ):
        wb.simulated_triton("sm_89", **inductor)


@pytest.mark.long
def test_after_a_session_a_model_is_compiled_as_before(inductor):
    x = torch.randn(64)
    compiled = torch.compile(lambda x: torch.sin(x) + 1)
    with wb.simulated_triton(checks=True, **inductor) as device:
        inside = compiled(x)
    launches = len(device.launches)
    assert launches
    torch.testing.assert_close(compiled(x), inside)
    assert len(device.launches) == launches


@pytest.mark.long
@pytest.mark.parametrize(("arch", "mode"), [("sm_80", None), ("sm_89", "max-autotune")])
def test_training_and_templates_of_matrix_products(inductor, arch, mode):
    torch.manual_seed(0)
    model, x = Block(), torch.randn(16, 64)
    wanted = model(x)
    wanted.square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    with wb.simulated_triton(arch, checks=True, **inductor) as device:
        got = torch.compile(model, mode=mode)(x)
        got.square().sum().backward()
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-2, atol=1e-4)
    kernels = {launch.kernel.label for launch in device.launches}
    assert any("backward" in kernel for kernel in kernels)
    assert any("triton_mm" in kernel for kernel in kernels) == (mode is not None)
    assert device.findings == ()
