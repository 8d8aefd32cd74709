"""Gluon: a copy by an explicit layout; with "fault" its mask is left out."""

import sys

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def doubled(source, target, n, BLOCK: gl.constexpr, MASK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = (at < n) if MASK else (at >= 0)
    gl.store(target + at, 2 * gl.load(source + at, mask=mask), mask=mask)


x = torch.randn(1000, device="cuda")
y = torch.zeros(1000, device="cuda")
doubled[(triton.cdiv(1000, 512),)](x, y, 1000, 512, "fault" not in sys.argv)
torch.cuda.synchronize()
torch.testing.assert_close(y, 2 * x)
print("right")
