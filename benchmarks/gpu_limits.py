"""Limits of a GPU that a prediction does not know: starting blocks, copies by width, and atomics to few addresses.

    python benchmarks/gpu_limits.py > limits.jsonl

Needs a GPU and CuPy. Each line has the median `us` of a launch among many in a graph, where no host and no other launch
is in its way. docs/GPUS.md has what an H200 did.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import cupy

SOURCE = r"""
extern "C" {
__global__ void empty() {}

__global__ void copy16(const float4* x, float4* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

__global__ void copy4(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

// The lanes of a warp hit addresses spread over the bins, or all of them the same one.
__device__ int place(int i, int mask, int together) {
  return (together ? i >> 5 : i * 2654435761u >> 7) & mask;
}

__global__ void atomic_int(int* y, int n, int mask, int together) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(y + place(i, mask, together), 1);
}

__global__ void atomic_float(float* y, int n, int mask, int together) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(y + place(i, mask, together), 1.0f);
}
}
"""
THREADS = 256
FLOATS = 1 << 26
"""Elements of the largest copy; smaller ones walk through as many, so that they find nothing in L2."""


def timed(name: str, launches: Sequence[Callable[[], None]], count: int, **facts: object) -> None:
    """Print the time of a launch: ``count`` of them in turn, captured as a graph that is replayed nine times."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        launches[0]()  # loads the kernel
        stream.synchronize()
        stream.begin_capture()
        for number in range(count):
            launches[number % len(launches)]()
        graph = stream.end_capture()
        graph.launch(stream)
        times = []
        for _ in range(9):
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end) * 1e3 / count)
    print(json.dumps({"name": name, "us": round(statistics.median(times), 3), **facts}), flush=True)


def main() -> None:
    """Print the name of the GPU, then every time."""
    kernels = cupy.RawModule(code=SOURCE, options=("--std=c++17",))

    def launch(kernel: str, grid: int, block: int, *arguments: Any) -> Callable[[], None]:
        function = kernels.get_function(kernel)
        return lambda: function((grid,), (block,), arguments)

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(json.dumps({"device": properties["name"].decode(), "sms": properties["multiProcessorCount"]}))
    for grid in (1, 132, 1056, 8448, 67584, 540672):
        for block in (32, 256):
            timed("empty", [launch("empty", grid, block)], 20, grid=grid, block=block)
    x, y = (cupy.zeros(FLOATS, cupy.float32) for _ in range(2))
    for n in (1 << 20, 1 << 22, 1 << 24, FLOATS):
        pieces = [(x[at : at + n], y[at : at + n]) for at in range(0, FLOATS, n)]
        for name, width in (("copy16", 4), ("copy4", 1)):
            blocks, items = n // width // THREADS, cupy.int32(n // width)
            calls = [launch(name, blocks, THREADS, source, out, items) for source, out in pieces]
            timed(name, calls, max(20, len(calls)), floats=n)
    lanes = 1 << 20
    for bins in (1, 2, 4, 16, 64, 256, 1024, 4096, 65536, 1 << 20):
        for together in (0, 1):
            for name, dtype in (("atomic_int", cupy.int32), ("atomic_float", cupy.float32)):
                out = cupy.zeros(1 << 20, dtype)
                numbers = map(cupy.int32, (lanes, bins - 1, together))
                call = launch(name, lanes // THREADS, THREADS, out, *numbers)
                timed(name, [call], 5, lanes=lanes, bins=bins, together=together)


if __name__ == "__main__":
    main()
