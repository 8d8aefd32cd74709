"""Helion: a softmax by rows; with "fault" an input that is shorter than its shape says."""

import sys

import helion
import helion.language as hl
import torch


@helion.kernel()
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=1)
    return out


x = torch.randn(64, 100, device="cuda")
if "fault" in sys.argv:
    x.untyped_storage().resize_(4 * 100 * 60)
out = softmax(x)
torch.cuda.synchronize()
torch.testing.assert_close(out, torch.softmax(x, 1))
print("right")
