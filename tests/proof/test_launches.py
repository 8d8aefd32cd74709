"""Proofs of launches that were seen: what becomes a size, what stays a number, and what counts as refuted."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.analysis.device_models import device_model
from workbench.analysis.launches import Launches
from workbench.analysis.seen_launches import PassedArray, SeenLaunch
from workbench.analysis.watching import Watch, watch, watched

pytest.importorskip("z3", reason='no Z3: python -m pip install -e ".[proof]"')

from workbench.proof.launches import counted, prove_launches

SOURCE = r"""
#define I (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" __global__ void add(float *out, const float *x, int n) { int i = I; if (i < n) out[i] = x[i] + 1; }
extern "C" __global__ void one_more(float *out, const float *x, int n) { int i = I; if (i <= n) out[i] = x[i] + 1; }
extern "C" __global__ void unguarded(float *out, const float *x, int n) { int i = I; out[i] = x[i] + 1; }
extern "C" __global__ void picked(float *out, const float *x, const int *index, int n) {
    int i = I;
    if (i < n) out[i] = x[index[i]];
}
extern "C" __global__ void scaled(float *out, const float *x, int cols, float scale) {
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        out[blockIdx.x * cols + i] = scale * x[blockIdx.x * cols + i];
}
extern "C" __global__ void turned(float *out, const float *x, int rows, int cols) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (c < cols && r < rows) out[c * rows + r] = x[r * cols + c];
}
extern "C" __global__ void staged(float *x, int n) {
    extern __shared__ float part[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) part[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = part[n - 1 - i];
}
extern "C" __global__ void repeated(float *x, const float *w, int n, int cols) {
    int i = I;
    if (i < n) x[i] *= w[i % cols];
}
extern "C" __global__ void fours(float4 *out, const float4 *x, int n) { int i = I; if (i < n) out[i] = x[i]; }
extern "C" __global__ void mirrored(float *out, const float *x, int n) { int i = I; if (i < n) out[i] = x[n - 1 - i]; }
extern "C" __global__ void filled(float *out, int n) {
    extern __shared__ float whole[];
    whole[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < n) out[threadIdx.x] = whole[threadIdx.x];
}
template <bool FENCE> __device__ void summed(float *part, const float *x, unsigned *count, float *out) {
    part[blockIdx.x] = x[blockIdx.x];
    if (FENCE) __threadfence();
    if (atomicAdd(count, 1) != gridDim.x - 1) return;
    __threadfence();
    for (int i = 0; i < gridDim.x; ++i) *out += part[i];
}
extern "C" __global__ void fenced(float *part, const float *x, unsigned *count, float *out) {
    summed<true>(part, x, count, out);
}
extern "C" __global__ void unfenced(float *part, const float *x, unsigned *count, float *out) {
    summed<false>(part, x, count, out);
}
extern "C" __global__ void stepped(float *x, int n, int step) { int i = I; if (i < n) x[i] += step; }
"""


@pytest.fixture(scope="module")
def module():
    return wb.load_cuda(SOURCE)


@pytest.fixture
def proved():
    """Prove what a function launches; the only kernel's verdict."""

    def prove(launch, of=1):
        launches = Launches()
        before = watched()
        watch(Watch(launches, device_model("h200"), seen=launches.seen))
        try:
            launch()
        finally:
            watch(before)
        found = prove_launches(launches.seen.take())
        assert len(found) == of
        return found[0] if of == 1 else found

    return prove


def vector(n, more=0):
    return torch.zeros(n + more)


def test_a_number_of_which_arrays_and_grid_are_formulas_is_a_size(module, proved):
    found = proved(lambda: module.add(4, 256, vector(1000), vector(1000), 1000))
    assert (found.status, found.scope) == ("proved", "all sizes"), found
    assert found.proof.grid == "grid (cdiv(n, 256), 1, 1), block (256, 1, 1)"
    assert "sizes: n (launched with 1,000); out float32[n], x float32[n]" in found.reading


def test_what_every_launch_divides_is_a_precondition_and_not_a_refutation(module, proved):
    found = proved(lambda: module.unguarded(4, 256, vector(1024), vector(1024), 1024))
    assert (found.status, found.scope) == ("proved", "sizes like those launched"), found
    assert "n % 256 == 0" in found.proof.preconditions
    assert found.remark.startswith("refuted: line 5 reads x out of bounds (n = 1")


@pytest.mark.parametrize(("skipped", "status"), [(16, "proved"), (4, "unknown")])
def test_an_array_that_begins_between_two_vectors_is_not_proved(module, skipped, status):
    out, x = (PassedArray((at << 20) + skipped, 1024, "float32", (256,)) for at in (1, 2))
    (found,) = prove_launches([SeenLaunch(module.fours.compiled, (1, 1, 1), (64, 1, 1), 0, (out, x, 64))])
    assert found.status == status, found


def test_launches_with_less_dynamic_memory_count(module):
    def launch(n, shared):
        array = PassedArray(1 << 20, 4 * n, "float32", (n,))
        return SeenLaunch(module.filled.compiled, (1, 1, 1), (64, 1, 1), shared, (array, n))

    (found,) = prove_launches([launch(40, 256), launch(60, 250)])
    assert found.status == "refuted", found
    (found,) = prove_launches([launch(40, 256), launch(60, 300)])
    assert found.status == "proved", found


def test_launches_with_narrower_elements_are_not_taken_for_others(module):
    def launch(n, size, dtype):
        arrays = (PassedArray(at << 20, size * n, dtype, (n,)) for at in (1, 2))
        return SeenLaunch(module.add.compiled, (1, 1, 1), (64, 1, 1), 0, (*arrays, n))

    wide, narrow = prove_launches([launch(60, 4, "float32"), launch(40, 2, "float16")])
    assert (wide.status, narrow.status) == ("proved", "refuted"), narrow


def test_a_launch_with_a_null_pointer_is_not_taken_for_one_with_an_array(module):
    def launch(n, x):
        array = PassedArray(1 << 20, 4 * n, "float32", (n,))
        return SeenLaunch(module.add.compiled, (1, 1, 1), (64, 1, 1), 0, (array, x, n))

    there, null = prove_launches([launch(60, PassedArray(1 << 21, 240, "float32", (60,))), launch(40, None)])
    assert there.status == "proved", there
    assert null.status == "unknown", null


def test_a_launch_in_place_is_not_taken_for_one_with_two_arrays(module, proved):
    x = vector(64)

    def launch():
        module.mirrored(1, 64, vector(64), x, 64)
        module.mirrored(1, 64, x, x, 64)

    apart, in_place = proved(launch, of=2)
    assert apart.status == "proved", apart
    assert in_place.status != "proved", in_place


def test_arrays_that_follow_no_formula_leave_each_launch_alone(module, proved):
    def launch():
        for n, more in ((64, 8), (96, 30)):
            module.add(2, 64, vector(n, more), vector(n), n)

    found = proved(launch)
    assert (found.status, found.scope) == ("proved", "the launch"), found


def test_arrays_are_a_size_and_more_where_two_launches_show_it(module, proved):
    def launch():
        for n in (64, 95):
            module.one_more(-(-n // 32), 32, vector(n, 1), vector(n, 1), n)

    found = proved(launch)
    assert (found.status, found.scope) == ("proved", "all sizes"), found
    assert "out float32[n + 1]" in found.reading


def test_a_formula_that_several_launches_show_refutes(module, proved):
    def launch():
        module.unguarded(2, 32, vector(64), vector(64), 64)
        with pytest.raises(wb.WorkbenchError, match="out-of-bounds"):
            module.unguarded(4, 32, vector(99), vector(99), 99)

    found = proved(launch)
    assert found.status == "refuted"
    assert "line 5 reads x out of bounds (n = " in str(found.counterexample)
    assert 64 <= found.counterexample.sizes["n"] <= 99
    assert counted([found]) == "0 proved, 1 refuted, 0 unknown"


def test_arrays_that_may_be_larger_by_chance_are_fixed_before_a_kernel_counts_as_refuted(module, proved):
    found = proved(lambda: module.one_more(2, 256, vector(301), vector(301), 300))
    assert (found.status, found.scope) == ("proved", "sizes up to those launched"), found
    assert "n <= 300" in found.proof.preconditions
    assert "out = 1,204 bytes" in found.reading


def test_a_launch_that_is_itself_wrong_is_refuted(module, proved):
    def launch():
        with pytest.raises(wb.WorkbenchError, match="out-of-bounds"):
            module.add(1, 128, vector(64), vector(128), 100)

    found = proved(launch)
    assert (found.status, found.scope) == ("refuted", "the launch"), found


def test_elements_of_which_nothing_is_known_refute_nothing(module, proved):
    index = torch.zeros(100, dtype=torch.int32)
    found = proved(lambda: module.picked(1, 128, vector(100), vector(50), index, 100))
    assert found.status == "unknown"
    assert "nothing is stated about the elements of index" in str(found)
    index[7] = 50

    def launch():
        with pytest.raises(wb.WorkbenchError, match="out-of-bounds"):
            module.picked(1, 128, vector(100), vector(50), index, 100)

    found = proved(launch)
    assert (found.status, found.scope) == ("refuted", "the launch"), found


def test_a_value_that_is_not_followed_refutes_with_what_the_arrays_held(module, proved):
    """The last block to come: which one it is, and whether it is alone, depends on what the counter begins with."""

    def launch(kernel):
        return proved(lambda: kernel(4, 1, vector(4), vector(4), torch.zeros(1, dtype=torch.uint32), vector(1)))

    right, wrong = launch(module.fenced), launch(module.unfenced)
    assert right.status == "unknown", right
    assert (wrong.status, wrong.scope) == ("refuted", "the launch"), wrong
    assert "confirmed by a run: global race" in str(wrong)


def test_arguments_that_overlap_are_unknown_and_the_same_memory_is_not(module, proved):
    x = vector(1000)
    same = proved(lambda: module.add(4, 256, x, x, 1000))
    assert same.status == "proved", same
    assert "x = out" in same.reading
    found = proved(lambda: module.add(4, 256, x[:900], x[50:950], 900))
    assert found.status == "unknown"
    assert "two of its arguments are parts of one allocation" in str(found)


def test_blocks_are_a_size_where_arrays_follow_them(module, proved):
    found = proved(lambda: module.scaled(6, 64, torch.zeros(6, 200), torch.zeros(6, 200), 200, 2.0))
    assert (found.status, found.scope) == ("proved", "all sizes"), found
    assert "blocks_x (launched with 6); out float32[blocks_x, cols]" in found.reading


def test_equal_sizes_are_tried_apart_first(module, proved):
    found = proved(lambda: module.turned((4, 4), (16, 16), torch.zeros(64, 64), torch.zeros(64, 64), 64, 64))
    assert found.proof.grid.startswith("grid (cdiv(cols, 16), cdiv(rows, 16), 1)"), found
    assert found.proof.ok


def test_a_number_that_is_no_size_keeps_its_range(module, proved):
    def launch():
        for step in (-3, 0, 4):
            module.stepped(1, 64, vector(50), 50, step)

    found = proved(launch)
    assert found.proof.ok, found
    assert {"step >= -3", "step <= 4"} <= {*found.proof.preconditions}


def test_the_watch_goes_on_after_a_proof(module, proved):
    launches = Launches()
    one = Watch(launches, device_model("h200"), counts=True, seen=launches.seen)
    watch(one)
    try:
        module.add(1, 64, vector(50), vector(50), 50)
        prove_launches(launches.seen.take())
        assert watched() is one
        assert len(launches) == 1  # runs that confirm a counterexample are not the program's
    finally:
        watch(None)


def test_dynamic_shared_memory_is_a_formula_too(module, proved):
    def launch():
        for n in (100, 133):
            module.staged(1, 64, vector(n), n, shared_bytes=4 * n)

    found = proved(launch)
    assert (found.status, found.scope) == ("proved", "all sizes"), found
    assert "4 * n bytes of dynamic shared memory" in found.reading
    fixed = proved(lambda: module.staged(1, 64, vector(100), 100, shared_bytes=1024))
    assert fixed.scope == "sizes up to those launched", fixed


def test_a_number_that_is_a_product_of_sizes_follows_them(module, proved):
    found = proved(lambda: module.repeated(4, 128, torch.zeros(20, 25), vector(25), 500, 25))
    assert found.proof.ok, found
    assert "x float32[20, cols]" in found.reading or "x float32[n]" in found.reading

    def launch():
        for rows, cols in ((20, 25), (7, 11)):
            module.repeated(8, 128, torch.zeros(rows, cols), vector(cols), rows * cols, cols)

    assert proved(launch).status == "proved"
