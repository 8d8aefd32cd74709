"""It cannot be had: its modules have the CUDA runtime within them, which asks NVIDIA's driver for tables that are not
documented, and its own kernels come as machine code.
"""

import workbench as wb

wb.simulated_driver(force=True, memory_bytes=64 << 20)

import cupy  # noqa: E402
from features import refused, run  # noqa: E402


def no_arrays():
    """arrays, kernels: the first call ends with `cudaErrorNotSupported`"""
    refused(lambda: cupy.arange(4), "cudaErrorNotSupported", "cuGetExportTable")


if __name__ == "__main__":
    run(globals())
