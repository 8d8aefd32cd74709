"""Tensors without elements, and options that no launch has: refused by name, through every way to launch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import workbench as wb
from workbench import ptx
from workbench.errors import ArgumentError, UnknownNameError
from workbench.ptx.tensor_map import TensorMap


def freed() -> torch.Tensor:
    made = torch.zeros(4)
    view = torch.empty(0).set_(made.untyped_storage(), 0, (4,), (1,))
    made.untyped_storage().resize_(0)
    return view


def too_short() -> torch.Tensor:
    made = torch.zeros(8)
    view = torch.empty(0).set_(made.untyped_storage(), 4, (4,), (1,))
    made.untyped_storage().resize_(20)
    return view


def sparse(layout: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(torch.eye(4), f"to_{layout}")()


TENSORS = {
    "a FakeTensor": lambda: FakeTensorMode().from_tensor(torch.zeros(4)),
    r"whose storage was freed or is too small": freed,
    r"of shape \(4,\) whose storage was freed or is too small": too_short,
    r"a tensor of layout sparse_csr.*\.crow_indices": lambda: sparse("sparse_csr"),
    r"a tensor of layout sparse_coo.*\.indices": lambda: sparse("sparse"),
    r"a tensor of layout mkldnn.*to_dense": lambda: sparse("mkldnn"),
    "a tensor on meta": lambda: torch.zeros(4, device="meta"),
}


@pytest.fixture(scope="module")
def ways():
    module = wb.load_cuda('extern "C" __global__ void fill(float *y) { y[threadIdx.x] = 1; }', device="sim")
    text = module.fill.compiled.ptx
    return {
        "launch": lambda x: module.fill(1, 4, x),
        "ptx": lambda x: wb.load_ptx(text, device="sim").fill(1, 4, x),
        "check": lambda x: wb.check_kernel(module.fill, grid=1, block=4, args=[x]),
        "trace": lambda x: wb.trace_kernel(module.fill, grid=1, block=4, args=[x]),
        "machine": lambda x: ptx.Program(text)["fill"].launch(1, 4, [x]),
    }


@pytest.mark.parametrize("way", ["launch", "ptx", "check", "trace", "machine"])
@pytest.mark.parametrize("got", TENSORS)
def test_a_tensor_without_elements_is_refused_by_name(ways, way, got):
    with pytest.raises(ArgumentError, match=rf"fill\(\): argument 0 '\w+': got .*{got}"):
        ways[way](TENSORS[got]())


@pytest.mark.parametrize("got", TENSORS)
def test_triton_refuses_it_too(got):
    triton = pytest.importorskip("triton")
    from launch_functions import ones

    assert triton
    with pytest.raises(ArgumentError, match=rf"ones\(\): .*got .*{got}"):
        wb.check_kernel(ones, grid=(1,), args=[TENSORS[got]()])
    with wb.simulated_triton(), pytest.raises(ArgumentError, match=rf"ones\(\): .*got .*{got}"):
        ones[(1,)](TENSORS[got]())


def test_triton_names_a_complex_tensor():
    pytest.importorskip("triton")
    from launch_functions import ones

    with pytest.raises(ArgumentError, match=r"ones\(\): 'y': got a tensor of complex64.*view_as_real"):
        wb.check_kernel(ones, grid=(1,), args=[torch.zeros(4, dtype=torch.complex64)])


@pytest.mark.parametrize(
    "got", [one for one in TENSORS if one != "a tensor on meta" and ("small" not in one or "shape" not in one)]
)
def test_a_tensor_map_refuses_it(got):
    with pytest.raises(ArgumentError, match=rf"tensor: got .*{got}"):
        TensorMap.of(TENSORS[got](), [4])


def test_a_complex_tensor_is_not_one_of_floats(ways):
    x = torch.zeros(4, dtype=torch.complex64)
    with pytest.raises(ArgumentError, match=r"'y': got an array of complex64; allowed: float32"):
        ways["launch"](x)
    ways["launch"](torch.view_as_real(x))
    pairs = wb.load_cuda('extern "C" __global__ void fill(float2 *y) { y[threadIdx.x].x = 1; }', device="sim")
    pairs.fill(1, 4, y := torch.zeros(4, dtype=torch.complex64))
    assert y.tolist() == [1] * 4


@pytest.mark.parametrize(
    ("option", "value"),
    [("threads", -1), ("threads", 0), ("threads", True), ("threads", 1.5), ("instruction_limit", -1),
     ("instruction_limit", 2.5), ("seconds_limit", -1), ("seconds_limit", float("nan")), ("idle_limit", "1")],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(option, value):
    fill = wb.load_cuda('extern "C" __global__ void fill(float *y) { y[threadIdx.x] = 1; }', device="sim").fill
    with pytest.raises(ArgumentError, match=f"{option}: got {value!r}; allowed: a "):
        fill(1, 4, np.zeros(4, np.float32), **{option: value})


def test_an_unknown_option_is_refused_by_name():
    fill = wb.load_cuda('extern "C" __global__ void fill(float *y) { y[threadIdx.x] = 1; }', device="sim").fill
    with pytest.raises(UnknownNameError, match=r"got 'thread'; allowed: .*threads.*Did you mean threads\?"):
        fill(1, 4, np.zeros(4, np.float32), thread=2)
    with pytest.raises(UnknownNameError, match=r"got 'foo'; allowed: cluster, cooperative"):
        fill(1, 4, np.zeros(4, np.float32), foo=2)
