"""The ops around the caches on a GPU: every variant on every case, the op's own choice, CUDA graphs."""

import pytest
import torch

from workbench import ops
from workbench.attention import causal_attention, contiguous_attention, copy_blocks, reshape_and_cache
from workbench.attention.ops import constants
from workbench.errors import ArgumentError

pytestmark = pytest.mark.gpu
NAMES = (
    "causal_attention", "causal_attention_backward", "contiguous_attention", "copy_blocks", "gather_cache",
    "reshape_and_cache", "swap_blocks",
)  # fmt: skip
ALL = [
    pytest.param(variant, name)
    for op in NAMES
    for variant in ops.variants(op)
    for name, case in ops.get(op).cases.items()
    if variant.able(variant.machine_problem(case))
]


@pytest.fixture(scope="module")
def cuda():
    from workbench.launch import devices

    return devices.get("cuda")


@pytest.mark.parametrize(("variant", "name"), ALL, ids=str)
@pytest.mark.sampled(12)
def test_every_case(variant, name, cuda):
    one = ops.get(variant.op).case(name)
    config = variant.default_config(one.problem(arch=cuda.arch))
    problem = one.problem(config, arch=cuda.arch)
    if not variant.runs_on(problem):
        pytest.skip(f"{variant} does not run on {cuda.arch}")
    tensors = one.inputs(problem, "cuda")
    variant.run(config, problem, tensors, cuda)
    check = one.check(tensors.out)
    assert check.ok, check


def test_causal_attention_by_itself_with_gradients():
    """Beside the formula in float64, and no further from it than twice the formula in float16."""
    given = [torch.randn(2, heads, 200, 64, device="cuda") for heads in (8, 2, 2)]

    def results(dtype, **options):
        sides = [side.to(dtype).requires_grad_() for side in given]
        out = causal_attention(*sides, **options)
        return out, *torch.autograd.grad(out.sum(), sides)

    exact, same = (results(dtype, variant="torch_naive") for dtype in (torch.float64, torch.float16))
    for got, expected, naive in zip(results(torch.float16), exact, same, strict=True):
        assert (got.double() - expected).abs().max() <= 2 * (naive.double() - expected).abs().max() + 1e-5


def test_auto_and_a_graph():
    """A decode step's write and a copy-on-write, captured and replayed."""
    one = ops.get("reshape_and_cache").case("small")
    t = one.inputs(one.problem(), "cuda")
    given = (t.key, t.value, t.key_cache, t.value_cache, t.slot_mapping)
    free = sorted(set(range(len(t.key_cache))) - set((t.slot_mapping // 16).tolist()))
    used = int(t.slot_mapping.max() // 16)
    pairs = torch.tensor([[used, free[0]]], device="cuda")

    def step():
        reshape_and_cache(*given)
        copy_blocks([t.key_cache], [t.value_cache], pairs)

    step()
    torch.cuda.synchronize()
    t.out.fill_(0xFF)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    bits = t.key_cache.view(torch.int16)  # unused slots hold NaN, which equals nothing
    assert torch.equal(bits[free[0]], bits[used])
    t.key_cache[free[0]], t.value_cache[free[0]] = torch.nan, torch.nan
    out, expected = (side.cpu().view(torch.float16).nan_to_num(7.0) for side in (t.out, one.reference()))
    assert torch.equal(out, expected)


@pytest.mark.parametrize("warm", [True, False])
def test_a_graph_outlives_the_tables_that_it_reads(warm):
    """Those that were there before the capture, and those that it made."""
    caches = [torch.randn(6, 4, 16, device="cuda") for _ in range(4)]
    pairs = torch.tensor([[0, 1], [4, 3]], device="cuda")
    copy_blocks(caches[:2], caches[2:], pairs)  # loads the kernel
    if not warm:
        constants._remembered.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy_blocks(caches[:2], caches[2:], pairs)
    for number in range(constants.MOST_REMEMBERED + 1):
        constants.constant((number, -1, -1, -1), torch.int64, pairs.device)
    for cache in caches:
        cache.normal_()
    before = [cache.clone() for cache in caches]
    graph.replay()
    for cache, old in zip(caches, before, strict=True):
        old[[1, 3]] = old[[0, 4]]
        assert torch.equal(cache, old)


def test_separate_allocations_in_one_launch():
    keys = [torch.randn(6, 4, 16, device="cuda") for _ in range(3)]
    values = [torch.randn(6, 4, 16, device="cuda") for _ in range(3)]
    for variant in ("auto", "cuda_vectors", "triton_vectors"):
        before = [cache.clone() for cache in keys + values]
        copy_blocks(keys, values, torch.tensor([[0, 1], [4, 3]], device="cuda"), variant=variant)
        for cache, old in zip(keys + values, before, strict=True):
            old[[1, 3]] = old[[0, 4]]
            assert torch.equal(cache, old)


def test_indices_are_looked_at_on_request(monkeypatch):
    monkeypatch.setenv("WORKBENCH_CHECK_INDICES", "1")
    caches = torch.randn(2, 6, 4, 16, device="cuda")
    with pytest.raises(ArgumentError, match="0 to 5"):
        copy_blocks(caches[:1], caches[1:], torch.tensor([[0, 6]], device="cuda"))
    one = ops.get("contiguous_attention").case("small")
    t = one.inputs(one.problem(), "cuda")
    with pytest.raises(ArgumentError, match="cache_rows"):
        contiguous_attention(t.query, t.kv_cache, t.seq_lens, cache_rows=t.cache_rows + 100)
