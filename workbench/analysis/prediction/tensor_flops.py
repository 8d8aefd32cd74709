"""Operations of matrix products, by the bits of their factors, and the time that tensor cores take for them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.analysis.device_models import DeviceModel
    from workbench.base.trials.values import Counts
    from workbench.ptx.report import LineFacts

_SHAPE = re.compile(r"\b(wg)?mma(?:_async)?\.\S*?\.m(\d+)n(\d+)k(\d+)")
# Kinds with block scales that take 8, 6 and 4 bits run at the rate of 8.
_OF_4 = re.compile(r"::mxf4")
_SPARSE = re.compile(r"\bmma(?:_async)?\.sp\b")
_OF_8 = re.compile(r"::(?:mx)?f8f6f4|::i8|\.e[45]m[32]\b|\.[su]8\b")


def flop_counts(lines: Iterable[LineFacts], scale: float) -> Counts:
    """Return ``tensor_flops``, two for a multiply-add, and of these the ones with factors of 8 and of 4 bits, if any.

    The PTX has the size of mma and wgmma; the machine counts the multiply-adds of tcgen05.mma. Each stands for
    ``scale`` of the launch. A product with a sparse A counts for half its size, the multiply-adds with what is stored
    of A: NVIDIA's data sheets, from the A100's on, give twice the dense rate "with sparsity". So its time is that of
    the dense product with half its K, and it keeps the tensor cores as busy.
    """
    total = of_8 = of_4 = 0.0
    for line in lines:
        shape = _SHAPE.search(line.text)
        if not shape and not line.products:
            continue
        flops = 2.0 * line.products
        if shape:
            warps_of_one = 4 if shape[1] else 1
            flops = 2 * math.prod(map(int, shape.groups()[1:])) * line.executions / warps_of_one
            flops /= 2 if _SPARSE.search(line.text) else 1
        total += flops
        if _OF_4.search(line.text):
            of_4 += flops
        elif _OF_8.search(line.text):
            of_8 += flops
    counts: Counts = {"tensor_flops": round(scale * total)}
    if of_8:
        counts["tensor_flops_8_bits"] = round(scale * of_8)
    if of_4:
        counts["tensor_flops_4_bits"] = round(scale * of_4)
    return counts


def tensor_clocks(counts: Counts, model: DeviceModel) -> float:
    """Return the clocks for which one multiprocessor's tensor cores would compute all products of a launch."""
    of_8, of_4 = counts.get("tensor_flops_8_bits", 0), counts.get("tensor_flops_4_bits", 0)
    rate = model.tensor_flops_per_clock
    rate_8 = model.tensor_flops_per_clock_8_bits or rate
    rate_4 = model.tensor_flops_per_clock_4_bits or rate_8
    return (counts["tensor_flops"] - of_8 - of_4) / rate + of_8 / rate_8 + of_4 / rate_4
