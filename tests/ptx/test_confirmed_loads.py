"""Plain loads beside atomics that an atomic confirms: a note; and those that only look so: a race."""

from __future__ import annotations

import numpy as np
import pytest

from workbench import ptx
from workbench.toolchain.cuda import compile_cuda

NOTE = "plain load that an atomic confirms"
SWAPPED = "__noinline__ __device__ int swapped(int* p, int old) { return atomicCAS(p, old, old + 1); }\n"
BODIES = {
    "a swap compares it": (NOTE, "int old = *p, seen; while ((seen = atomicCAS(p, old, old + 1)) != old) old = seen;"),
    "a swap in a function compares it": (NOTE, "int old = *p, seen; while ((seen = swapped(p, old)) != old) old = seen;"),  # noqa: E501
    "a maximum of the same place": (NOTE, "int v = blockIdx.x + 5; if (*p < v) atomicMax(p, v);"),
    "a maximum of another place": ("global race", "int v = *p; atomicAdd(p, 1); if (v < 3) atomicMax(p + 8, 4);"),
    "a swap with another value": ("global race", "int v = *p; atomicCAS(p, 0, 1); p[8 + blockIdx.x] = v;"),
    "what a swap stores": ("global race", "int v = *p; atomicCAS(p, 7, v + 1);"),
    "a sum of the same place": ("global race", "if (*p < 3) atomicAdd(p, 1);"),
    "used beside the maximum": ("global race", "int v = *p; if (v < 9) atomicMax(p, 9); p[8 + blockIdx.x] = v;"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_load_is_a_note_if_an_atomic_confirms_it(name: str) -> None:
    kind, body = BODIES[name]
    source = f'{SWAPPED}extern "C" __global__ void k(int* p) {{ if (threadIdx.x == 0) {{ {body} }} }}'
    program = ptx.Program(compile_cuda(source, "k").ptx)
    report = program["k"].launch(4, 32, [np.zeros(32, np.int32)], checks=True)
    strict = program["k"].launch(4, 32, [np.zeros(32, np.int32)], checks=True, strict=True)
    told = report.notes if kind == NOTE else report.findings
    assert {one.kind for one in told} == {kind}
    assert {one.kind for one in [*report.notes, *report.findings]} == {kind}
    assert {one.kind for one in strict.findings} == {kind}
