"""An installed wheel runs a CUDA kernel: whether it is right, what it computed, and the core that ran it."""

import hashlib
import pathlib
import sys

import workbench
from workbench.attention import paged_attention
from workbench.attention.ops.paged_attention.cases import CASES
from workbench.driver.library_files import library_path
from workbench.ptx import machine

package = pathlib.Path(workbench.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not the wheel's"
assert list((package / "cuda_src").glob("*.cu")), "no CUDA sources in the wheel"
assert (package / "attention/ui/static/block_view.js").exists(), "no browser code in the wheel"
assert library_path().is_relative_to(package)
assert not list((package / "driver").glob("library/*.cpp")), "sources of the driver in the wheel"
case = next(iter(CASES.values()))
problem = case.problem()
tensors = case.inputs(problem)
out = paged_attention(
    tensors.query,
    tensors.key_cache,
    tensors.value_cache,
    tensors.block_tables,
    tensors.seq_lens,
    variant="cuda_thread_group",
)
print(case.check(out).ok, hashlib.sha256(out.numpy().tobytes()).hexdigest(), machine.TARGET)
