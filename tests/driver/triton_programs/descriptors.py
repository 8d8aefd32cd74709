"""A transposed copy through tensor descriptors, made on the host and in the kernel."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DEVICE = triton.runtime.driver.active.get_active_torch_device()


def allocate(size, alignment, stream):
    return torch.empty(size, device=DEVICE, dtype=torch.int8)


@triton.jit
def host_kernel(source, target, BLOCK: tl.constexpr):
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([col, row], source.load([row, col]).T * 2)


@triton.jit
def device_kernel(source, target, rows, cols, BLOCK: tl.constexpr):
    reads = tl.make_tensor_descriptor(source, [rows, cols], [cols, 1], [BLOCK, BLOCK])
    writes = tl.make_tensor_descriptor(target, [cols, rows], [rows, 1], [BLOCK, BLOCK])
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    writes.store([col, row], reads.load([row, col]).T * 2)


if __name__ == "__main__":
    triton.set_allocator(allocate)
    torch.manual_seed(0)
    x = torch.randn(40, 56, device=DEVICE)
    y = torch.zeros(56, 40, device=DEVICE)
    grid = (triton.cdiv(40, 32), triton.cdiv(56, 32))
    host_kernel[grid](TensorDescriptor.from_tensor(x, [32, 32]), TensorDescriptor.from_tensor(y, [32, 32]), 32)
    torch.testing.assert_close(y, 2 * x.T)
    y.zero_()
    device_kernel[grid](x, y, *x.shape, 32)
    torch.testing.assert_close(y, 2 * x.T)
    print("descriptors ok")
