"""Moving pages between caches: every variant bit for bit, and what it asks of memory."""

import pytest
import torch

import workbench
from workbench import ops
from workbench.attention import swap_blocks
from workbench.attention.ops.swap_blocks import VARIANTS, case
from workbench.attention.ops.swap_blocks.api import OP

TORCH, CUDA, TRITON = VARIANTS
KERNELS = (CUDA, TRITON)
NAME = {"ids": lambda value: getattr(value, "name", str(value))}


@pytest.mark.parametrize("variant", VARIANTS, **NAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn])
def test_there_and_back_between_separate_allocations(variant, dtype):
    """Out, overwritten meanwhile, and in to other pages; sources and bystanders stay as they are."""
    generator = torch.Generator().manual_seed(0)

    def caches(num_blocks):
        shapes = (num_blocks, 2, 4, 8, 16 * dtype.itemsize), (num_blocks, 2, 64, 8 * dtype.itemsize)
        return [torch.randint(256, shape, dtype=torch.uint8, generator=generator).view(dtype) for shape in shapes * 2]

    device, host = caches(7), caches(5)
    before, untouched = [[one.clone().view(torch.uint8) for one in side] for side in (device, host)]
    swap_blocks(device, host, torch.tensor([[6, 0], [2, 3]]), variant=variant.name)
    for found, old, kept in zip(host, before, untouched, strict=True):
        kept[0], kept[3] = old[6], old[2]
        assert torch.equal(found.view(torch.uint8), kept)
    swap_blocks(host, device, torch.tensor([[3, 1], [0, 4]]), variant=variant.name)
    for found, old in zip(device, before, strict=True):
        old[1], old[4] = old[2].clone(), old[6].clone()
        assert torch.equal(found.view(torch.uint8), old)


@pytest.mark.parametrize("variant", KERNELS, **NAME)
def test_memory(variant, sim):
    """Every byte once, 16 bytes per lane, 16 sectors per request."""
    one = case("preempt")
    config = variant.default_config(one.problem())
    report = variant.run(config, one.problem(), one.inputs(one.problem()), sim, statistics=True)
    assert report.unique_bytes_read + report.unique_bytes_written <= 1.01 * one.minimum_bytes(one.problem())
    wide = [line for line in report.lines if line.space == "global" and "v4" in line.text and line.requests]
    assert {line.sectors / line.requests for line in wide} == {16}
    assert sum(line.bytes for line in wide) == 2 * one.num_pairs * 2 * one.num_layers * one.page_bytes


def test_compare_and_restore(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path))
    assert workbench.compare("swap_blocks", device="sim").all_correct
    assert ops.get("swap_blocks").restore_case(case("preempt").to_dict()) == case("preempt")


def swapping():
    one = case("small").inputs(case("small").problem())
    return {"source_caches": one.sources, "target_caches": one.targets, "pairs": one.pairs}, one.out


@pytest.mark.parametrize("variant", ["auto", "tuned", "torch", "cuda_vectors", "triton_vectors"])
def test_every_choice_moves_the_same(variant):
    given, out = swapping()
    assert swap_blocks(**given, variant=variant) is None
    assert case("small").check(out).ok
    swap_blocks(**given | {"pairs": given["pairs"][:0]}, variant=variant)


@pytest.mark.parametrize("variant", ["torch", "cuda_vectors"])
def test_opcheck(variant):
    sources, targets = ([torch.randn(6, 4, 16) for _ in range(2)] for _ in range(2))
    torch.library.opcheck(OP.library_op(), (sources, targets, torch.tensor([[0, 1], [2, 3]])), {"variant": variant})


BAD_SWAPS = {
    "no cache": ("source_caches", lambda a: {"source_caches": []}, "no cache"),
    "another number": ("target_caches", lambda a: {"target_caches": a["target_caches"][1:]}, "4, as many"),
    "devices": ("source_caches[1]", lambda a: {"source_caches": [each.to("meta") if i == 1 else each for i, each in
                enumerate(a["source_caches"])]}, "cpu"),
    "page size": ("target_caches[0]", lambda a: {"target_caches": [each[:, :64] for each in a["target_caches"]]},
                  "one size"),
    "number of pages": ("source_caches[2]", lambda a: {"source_caches": [each[: 7 - (i == 2)] for i, each in
                        enumerate(a["source_caches"])]}, "alike"),
    "its own target": ("target_caches[0]", lambda a: {"target_caches": a["source_caches"]}, "copy_blocks"),
    "a view of a source": ("target_caches[0]", lambda a: {"target_caches": [each[1:] for each in a["source_caches"]]},
                           r"memory that source_caches\[0\] has too"),
    "two targets in one": ("target_caches[3]", lambda a: {"target_caches": [*a["target_caches"][:3],
                           a["target_caches"][2]]}, r"memory that target_caches\[2\] has too"),
    "pairs dtype": ("pairs", lambda a: {"pairs": a["pairs"].int()}, "int64"),
    "pairs shape": ("pairs", lambda a: {"pairs": a["pairs"].flatten()}, r"\[num_pairs, 2\]"),
    "no such source": ("pairs[0, 0]", lambda a: {"pairs": torch.tensor([[7, 0]])}, "0 to 6, the pages of the sources"),
    "no such target": ("pairs[0, 1]", lambda a: {"pairs": torch.tensor([[6, 8]])}, "0 to 7, the pages of the targets"),
    "target twice": ("pairs[1, 1]", lambda a: {"pairs": torch.tensor([[0, 3], [1, 3]])}, "each target once"),
    "unknown variant": ("variant", lambda a: {"variant": "cuda"}, "cuda_vectors"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_SWAPS)
def test_bad_swap(what):
    argument, change, message = BAD_SWAPS[what]
    given, out = swapping()
    before = out.clone()
    given.update(change(given))
    with pytest.raises(workbench.WorkbenchError, match=message) as refused:
        swap_blocks(**given)
    assert refused.value.argument == argument
    assert refused.value.remedy
    assert torch.equal(out, before), "something was written"
