"""Overhead of the simulated driver, in a process of its own: ``python -m benchmarks.simulated_driver COPIES``.

A launch through PyCUDA is compared with one of the same kernel on the PTX machine, a copy through PyCUDA with NumPy's.
Both sides run in turn, so that other load on the machine affects both. Prints JSON.
"""

from __future__ import annotations

import json
import statistics
import sys

import numpy as np

from workbench import ptx
from workbench.driver import simulated_driver
from workbench.tuning.bench.results import in_turn

COPY_BYTES = 256 << 20
_LAUNCHES = 400
_KERNEL = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry increment(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def measure(copies: int) -> dict[str, float]:
    """Measure the seconds of launches (medians) and copies (the fastest of ``copies``), direct and through PyCUDA."""
    simulated_driver(force=True, memory_bytes=2 * COPY_BYTES)
    import pycuda.autoprimaryctx  # noqa: F401
    import pycuda.driver as cuda

    count = np.zeros(1, np.uint32)
    memory = cuda.to_device(count)
    direct = ptx.Program(_KERNEL)["increment"]
    through = cuda.module_from_buffer(_KERNEL.encode()).get_function("increment").prepare("P")
    launches = {
        "launch": lambda: direct.launch(1, 1, [count]),
        "pycuda_launch": lambda: through.prepared_call((1, 1), (1, 1, 1), memory),
    }
    found = {name: statistics.median(taken) for name, taken in in_turn(launches, _LAUNCHES).items()}
    assert count[0] == cuda.from_device(memory, 1, np.uint32)[0] == _LAUNCHES
    host, copy = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    device = cuda.mem_alloc(COPY_BYTES)
    copied = {"copy": lambda: np.copyto(copy, host), "pycuda_copy": lambda: cuda.memcpy_htod(device, host)}
    return found | {name: min(taken) for name, taken in in_turn(copied, copies).items()}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
