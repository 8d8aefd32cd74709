"""Run torch's own operator database on the simulated GPU, against the CPU's results: a row for each entry that differs.

python tests/driver/torch_device/operator_database.py [--dtype float32] [--part 1/4] [--samples 10] [NAME ...]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Iterator
from typing import Any

RANDOM = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand", "uniform",
    "dropout", "rrelu", "empty", "new_empty", "svd_lowrank", "pca_lowrank",
)  # fmt: skip
"""Parts of the names of entries whose results are random, or nobody's: only their shapes are compared."""


def entries(names: list[str], part: tuple[int, int]) -> Iterator[Any]:
    """Yield the entries of the database that are named (all where none is), those of one part."""
    from torch.testing._internal.common_methods_invocations import op_db

    chosen = [one for one in op_db if not names or one.name in names]
    yield from itertools.islice(chosen, part[0] - 1, None, part[1])


def moved(value: Any, device: str) -> Any:
    """Return a copy of an argument whose tensors are on a device, leaves that require gradients as theirs do."""
    import torch
    from torch.utils._pytree import tree_map

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) or leaf in ("cpu", "cuda") else leaf

    return tree_map(one, value)


def run(entry: Any, sample: Any, device: str) -> tuple[list[Any], list[Any]]:
    """Return an entry's results and its arguments' gradients, all on the CPU."""
    import torch
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    given = moved((sample.input, sample.args, sample.kwargs), device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = entry(given[0], *given[1], **given[2])
    tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
    leaves = [one for one in tree_leaves(given) if isinstance(one, torch.Tensor) and one.requires_grad]
    wanted = [one for one in tensors if one.requires_grad]
    gradients: list[Any] = []
    if leaves and wanted and entry.supports_autograd:
        total = sum((one * one.conj()).real.sum() if one.is_complex() else one.double().sum() for one in wanted)
        gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))
    for one in tensors:
        if one.device.type != device:
            raise AssertionError(f"a result on {one.device}")
    return [one.detach().cpu() for one in tensors], [one if one is None else one.cpu() for one in gradients]


def difference(entry: Any, dtype: Any, samples: int) -> str | None:
    """Return why an entry's results on the device are not those on the CPU; None where they are."""
    import torch

    # CUDA sums up numbers of half precision in float32, and so does the device; the CPU's kernels round more.
    narrow = dtype in (torch.float16, torch.bfloat16)
    tolerance = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps} if narrow else {}
    random = any(part in entry.name for part in RANDOM)
    gradients = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=gradients), samples):
        try:
            expected = run(entry, sample, "cpu")
        except Exception:
            continue  # not one that the CPU has
        try:
            found = run(entry, sample, "cuda")
            for one, other in zip(itertools.chain(*expected), itertools.chain(*found), strict=True):
                if one is None or other is None:
                    if one is not other:
                        return "a gradient is missing"
                elif random:
                    torch.testing.assert_close(torch.zeros_like(other), torch.zeros_like(one))
                else:
                    torch.testing.assert_close(other, one, equal_nan=True, **tolerance)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
    return None


def main() -> int:
    """Run what the command line names; the exit status is 1 where an entry differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--samples", type=int, default=10)
    given = parser.parse_args()
    from workbench import simulated_gpu

    simulated_gpu(force=True)
    import torch

    torch.set_num_threads(1)
    part = tuple(map(int, given.part.split("/")))
    dtype = getattr(torch, given.dtype)
    tried = wrong = 0
    for entry in entries(given.names, part):
        if dtype not in entry.dtypes:
            continue
        tried += 1
        if (why := difference(entry, dtype, given.samples)) is not None:
            wrong += 1
            print(f"{entry.name}.{entry.variant_test_name}: {why}", flush=True)
    print(f"{tried - wrong} of {tried} entries right ({given.dtype}, torch {torch.__version__})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
