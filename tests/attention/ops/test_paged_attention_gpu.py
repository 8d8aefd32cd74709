"""The same checks on a GPU: every variant, the op's own choice, CUDA graphs, indices checked on request."""

import dataclasses
import os

import pytest
import torch
from fitting import fitted

from workbench.attention import paged_attention
from workbench.attention.ops.paged_attention import CASES, VARIANTS, case
from workbench.errors import ArgumentError

pytestmark = pytest.mark.gpu
SIMULATED = bool(os.environ.get("WORKBENCH_SIMULATED_GPU"))
KERNELS = [variant for variant in VARIANTS if variant.language != "torch"]


@pytest.fixture(scope="module")
def cuda():
    from workbench.launch import devices

    return devices.get("cuda")


def arguments(one, block_size=16):
    t = one.inputs(one.problem({"BLOCK_SIZE": block_size}), "cuda")
    return {name: getattr(t, name) for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens")}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(6)
def test_every_case(variant, name, cuda):
    one = fitted(variant, case(name))
    config = variant.default_config(one.problem(arch=cuda.arch))
    problem = one.problem(config, arch=cuda.arch)
    tensors = one.inputs(problem, "cuda")
    variant.run(config, problem, tensors, cuda)
    check = one.check(tensors.out)
    assert check.ok, check


@pytest.mark.parametrize("layout", ["x", "nhd", "hnd"])
def test_auto(layout):
    one = case("llama-3-8b", context=300 if SIMULATED else 2000, num_seqs=4, layout=layout, dtype="bfloat16")
    check = one.check(paged_attention(**arguments(one), layout=layout))
    assert check.ok, check


def test_auto_falls_to_torch_for_features_without_a_kernel():
    one = case("small", kv_cache_dtype="fp8_e4m3", sinks=True)
    t = one.inputs(one.problem({"BLOCK_SIZE": 16}), "cuda")
    out = paged_attention(
        t.query,
        t.key_cache,
        t.value_cache,
        t.block_tables,
        t.seq_lens,
        sinks=t.sinks,
        kv_cache_dtype="fp8_e4m3",
        k_scale=t.k_scale,
        v_scale=t.v_scale,
    )
    assert one.check(out).ok


@pytest.mark.parametrize("variant", KERNELS, ids=lambda variant: variant.name)
def test_captured_in_a_cuda_graph(variant):
    one = fitted(variant, case("small" if SIMULATED else "llama-3-8b"))
    given = arguments(one) | {"layout": one.layout, "kv_cache_dtype": one.kv_cache_dtype}
    given |= {name: getattr(one.inputs(one.problem(), "cuda"), name) for name in ("k_scale", "v_scale")}
    out = torch.full_like(given["query"], torch.nan)
    paged_attention(**given, variant=variant.name, out=out)
    torch.cuda.synchronize()
    out.fill_(torch.nan)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        paged_attention(**given, variant=variant.name, out=out)
    assert out.isnan().all()
    graph.replay()
    torch.cuda.synchronize()
    assert one.check(out).ok


@pytest.mark.parametrize("name", ["cuda_partitioned", "cuda_grouped_mma", "triton_partitioned", "triton_grouped"])
@pytest.mark.sampled(2)
def test_launches_share_counters(name):
    """One after the other, more and fewer sequences, on two streams at once, and in a graph beside them."""
    variant = next(one for one in KERNELS if one.name == name)
    context, most, rounds = (600, 6, 2) if SIMULATED else (3000, 40, 20)
    many, few = (fitted(variant, case("llama-3-8b", context=context, num_seqs=num)) for num in (most, 2))
    given = {one: arguments(one) | {"layout": one.layout, "variant": name} for one in (few, many)}
    for one in (few, many, few, many):
        assert one.check(paged_attention(**given[one])).ok
    graph, in_graph = torch.cuda.CUDAGraph(), torch.empty_like(given[few]["query"])
    with torch.cuda.graph(graph):
        paged_attention(**given[few], out=in_graph)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(rounds):
        for stream, one in zip(streams, (few, many), strict=True):
            with torch.cuda.stream(stream):
                outs.append((one, paged_attention(**given[one])))
        graph.replay()
    torch.cuda.synchronize()
    for one, out in (*outs[-2:], (few, in_graph)):
        assert one.check(out).ok
    for one, out in outs:
        assert torch.equal(out, outs[-2 if one is few else -1][1])


@pytest.mark.real_gpu("8 GiB of device memory; addresses that far are computed in test_paged_attention_addresses.py")
def test_pages_past_2_to_the_31_elements(cuda):
    for variant in KERNELS:
        one = fitted(variant, case("small", head_size=128, context=60_000, num_seqs=1, num_heads=1, num_kv_heads=1))
        config = variant.default_config(one.problem(arch=cuda.arch))
        problem = one.problem(config, arch=cuda.arch)
        if variant.broken(config, problem):
            continue
        tensors = one.inputs(problem, "cuda")
        blocks = 2**31 // tensors.key_cache[0].numel() + len(tensors.key_cache)
        shift = blocks - len(tensors.key_cache)
        for name in ("key_cache", "value_cache"):
            cache = getattr(tensors, name)
            large = torch.full((blocks, *cache.shape[1:]), torch.nan, dtype=cache.dtype, device="cuda")
            large[shift:] = cache
            setattr(tensors, name, large)
        tensors.block_tables = tensors.block_tables + shift
        variant.run(config, problem, dataclasses.replace(tensors), cuda)
        check = one.check(tensors.out)
        assert check.ok, f"{variant}: {check}"


def test_indices_are_checked_on_request(monkeypatch):
    given = arguments(case("small"))
    given["block_tables"][0, 0] = 10_000
    monkeypatch.setenv("WORKBENCH_CHECK_INDICES", "1")
    with pytest.raises(ArgumentError, match="block_tables"):
        paged_attention(**given)
