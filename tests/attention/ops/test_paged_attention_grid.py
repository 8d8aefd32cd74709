"""One suite over all kernels in both languages: the grids of the peers, drawn so that values meet in pairs.

A point is a head size, a page size, heads, dtypes and scales of query and cache, features, a layout, a kind of input
and a configuration, with seven sequences of uneven length; pages are shuffled, and every slot that no token owns holds
NaN. Every run takes, for each kernel, the seven points that hold most values between them; ``-m long`` takes points in
which each value occurs and each pair of values of all but the longest lists, and ``-m full`` the whole product of head
size, page size, dtype and cache dtype, the rest drawn by chance.
"""

import itertools
import random

import pytest

from workbench import ops
from workbench.attention.ops.paged_attention import VARIANTS, PagedAttentionCase
from workbench.launch.sim import Simulator

FACTORS = {
    "head_size": (32, 64, 80, 96, 112, 120, 128, 192, 256),
    "block_size": (8, 16, 32, 64, 128),
    "heads": ((40, 40), (6, 3), (3, 1), (32, 8), (8, 2), (5, 1), (12, 2), (7, 1), (64, 8), (16, 1)),
    "dtype": ("float32", "float16", "bfloat16"),
    "kv_cache_dtype": ("auto", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4"),
    "scales": ("tensor", "head", "token"),
    "layout": ("x", "nhd", "hnd"),
    "alibi": (False, True),
    "sliding_window": (None, 64, 100, 256),
    "soft_cap": (None, 50.0),
    "sinks": (False, True),
    "family": ("needles", "zero_query", "one_hot_value", "large_scores"),
}
PRODUCT = ("head_size", "block_size", "dtype", "kv_cache_dtype")
FEW_POINTS = 1
MOST_PAIRS = 27  # of two lists: a longer product costs more points than all the others together
ARCHS = ("sm_80", "sm_89")  # the second for fp8_e4m3, an instruction from there on; before, Triton has none


class Point:
    """One value of each factor and tunable."""

    def __init__(self, variant, values, seed):
        block_size, (num_heads, num_kv_heads) = values["block_size"], values["heads"]
        rng = random.Random(seed)
        lengths = [1, block_size - 1, block_size, block_size + 1, *(rng.randrange(2, 400) for _ in range(2)), 0]
        rng.shuffle(lengths)
        self.values = values
        self.config = {name: values["block_size" if name == "BLOCK_SIZE" else name] for name in variant.space}
        fields = {name: values[name] for name in FACTORS if name not in ("block_size", "heads")}
        self.arch = None
        if variant.needs and values["head_size"] % 16:
            return
        self.case = PagedAttentionCase(
            "grid", num_heads, num_kv_heads, seq_lens=tuple(lengths), seed=seed % 5, **fields
        )
        arch = max(ARCHS[values["kv_cache_dtype"] == "fp8_e4m3"], variant.machine_arch(self.case.problem()))
        self.arch = arch if self._legal(variant, arch) else None

    def _legal(self, variant, arch):
        if self.case.layout == "x" and self.case.head_size % self.case.problem().x:
            return False
        return not variant.broken(self.config, self.case.problem(self.config, arch=arch))

    @property
    def pairs(self):
        return set(itertools.combinations(sorted(self.values.items(), key=str), 2))

    def __str__(self):
        return f"{self.case} BLOCK_SIZE={self.values['block_size']} {self.config} {self.arch}"


def draw(variant, lists, rng, fixed=(), tries=60):
    """A legal point with the fixed values, or None if there seems to be none."""
    for _ in range(tries):
        values = {name: rng.choice(choices) for name, choices in lists.items()} | dict(fixed)
        point = Point(variant, values, rng.randrange(1000))
        if point.arch:
            return point
    return None


def lists_of(variant):
    """The factors and tunables with the values that the variant has at all."""
    lists = dict(FACTORS)
    lists["dtype"] = [dtype for dtype in FACTORS["dtype"] if dtype in variant.dtypes]
    lists["layout"] = variant.layouts
    kinds = variant.needs or ("auto", *variant.features)
    lists["kv_cache_dtype"] = [name for name in FACTORS["kv_cache_dtype"] if name in kinds]
    if "token_scales" not in variant.features:
        lists["scales"] = ("tensor", "head")
    for name in ("alibi", "sliding_window", "soft_cap", "sinks"):
        lists[name] = FACTORS[name] if name in variant.features else FACTORS[name][:1]
    return lists | {name: values for name, values in variant.space.items() if name != "BLOCK_SIZE"}


def sample(variant, most_pairs, seed=1):
    """Points with every value, and every pair of values of lists short enough, that is legal."""
    rng, lists, points = random.Random(seed), lists_of(variant), []
    missing = {((name, value),) for name, values in lists.items() for value in values}
    for one, other in itertools.combinations(sorted(lists), 2):
        if len(lists[one]) * len(lists[other]) <= most_pairs:
            missing |= {((one, a), (other, b)) for a in lists[one] for b in lists[other]}
    order = sorted(missing, key=lambda wanted: (-len(wanted), str(wanted)))
    for wanted in order:
        if wanted not in missing:
            continue
        drawn = [draw(variant, lists, rng, wanted)]
        if drawn[0] is not None:
            drawn += [draw(variant, lists, rng, wanted) or drawn[0] for _ in range(15)]
            best = max(drawn, key=lambda point: len(covered(point, missing)))
            points.append(best)
            missing -= covered(best, missing)
        missing.discard(wanted)
    return points


def covered(point, missing):
    items = sorted(point.values.items())
    return (set(itertools.combinations(items, 2)) | {(item,) for item in items}) & missing


def check(variant, points):
    """Judge every point; the machine looks for races in CUDA too, where barriers are written by hand."""
    wrong = []
    for point in points:
        problem = point.case.problem(point.config, arch=point.arch)
        tensors = point.case.inputs(problem)
        device = Simulator(arch=point.arch)
        report = variant.run(point.config, problem, tensors, device, checks=variant.language == "cuda")
        verdict = point.case.check(tensors.out)
        if not verdict.ok or report.findings:
            wrong.append(f"{point}: {verdict} {[str(finding) for finding in report.findings]}")
    assert not wrong, "\n".join(wrong)


class Suite:
    """A class for each kernel, so that pytest-xdist shares them out."""

    name = ""

    def test_few(self):
        variant = ops.variant("paged_attention", self.name)
        check(variant, sample(variant, most_pairs=0)[:FEW_POINTS])

    @pytest.mark.long
    def test_pairs(self):
        variant = ops.variant("paged_attention", self.name)
        check(variant, sample(variant, MOST_PAIRS))

    @pytest.mark.full
    @pytest.mark.parametrize("head_size", FACTORS["head_size"])
    @pytest.mark.parametrize("dtype", FACTORS["dtype"])
    @pytest.mark.parametrize("kv_cache_dtype", FACTORS["kv_cache_dtype"])
    def test_full(self, head_size, dtype, kv_cache_dtype):
        variant = ops.variant("paged_attention", self.name)
        lists = lists_of(variant)
        if dtype not in lists["dtype"] or kv_cache_dtype not in lists["kv_cache_dtype"]:
            pytest.skip(f"{self.name} reads neither")
        rng = random.Random(f"{head_size} {dtype} {kv_cache_dtype}")
        fixed = {"head_size": head_size, "dtype": dtype, "kv_cache_dtype": kv_cache_dtype}
        drawn = [draw(variant, lists, rng, {**fixed, "block_size": size}, 500) for size in FACTORS["block_size"]]
        check(variant, [point for point in drawn if point])


class TestCudaThreadGroup(Suite):
    name = "cuda_thread_group"


class TestTritonOnlineSoftmax(Suite):
    name = "triton_online_softmax"


class TestCudaPartitioned(Suite):
    name = "cuda_partitioned"


class TestTritonPartitioned(Suite):
    name = "triton_partitioned"


class TestCudaGroupedMma(Suite):
    name = "cuda_grouped_mma"


class TestTritonGrouped(Suite):
    name = "triton_grouped"


class TestTritonDescriptors(Suite):
    name = "triton_descriptors"


class TestCudaScaledGroups(Suite):
    name = "cuda_scaled_groups"


class TestTritonScaledGroups(Suite):
    name = "triton_scaled_groups"


def test_every_kernel_has_its_suite():
    assert [suite.name for suite in Suite.__subclasses__()] == [one.name for one in VARIANTS if one.language != "torch"]
