"""A program with a memory fault for each of its kernels, in memory that torch's allocator keeps in one segment."""

import torch
import triton
import triton.language as tl


@triton.jit
def past_the_end(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, at.to(tl.float32))  # out-of-bounds


@triton.jit
def freed(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))  # freed


@triton.jit
def unwritten(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1)  # uninitialised


@triton.jit
def right(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1)


def main():
    x, out = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    right[(1,)](x, out, BLOCK=64)
    fresh = torch.empty(64, device="cuda")
    unwritten[(1,)](fresh, out, BLOCK=64)
    past_the_end[(1,)](torch.zeros(60, device="cuda"), BLOCK=64)
    assert torch.cuda.memory_reserved() == 2 << 20
    gone = torch.ones(64, device="cuda")
    address = Address(gone.data_ptr())
    del gone
    freed[(1,)](address, out, BLOCK=64)


class Address:
    """A pointer to floats that keeps no tensor alive."""

    dtype = torch.float32

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


main()
