"""Tensors that a kernel fills in part: lines that end in a comment read what nothing has written, the others do not."""

import io
import sys

import torch
import triton
import triton.language as tl

backward = torch.ops.aten.convolution_backward
OF_WEIGHT = (None, [1], [0], [1], False, [0], 1, [False, True, False])  # the weight's gradient alone


@triton.jit
def fill(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, at, mask=at < n)


def partly(n: int = 100, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return 128 elements of which the first ``n`` are written."""
    out = torch.empty(128, dtype=dtype, device="cuda")  # the allocation
    fill[(1,)](out, n, BLOCK=128)  # the launch
    return out


def faults() -> None:
    """Read elements that nothing has written."""
    partly().sum()  # torch's sum, 28
    partly(n=127).cpu()  # a copy to the host, 1
    partly(dtype=torch.float16)[64:].mul(2)  # torch's mul, 28
    print(partly(), file=io.StringIO())  # torch's print
    partly()[127].item()  # a copy to the host, 1
    partly().tolist()  # a copy to the host, 28
    partly().add_(1)  # torch's add, 28
    partly().view(8, 16).t().contiguous().sum()  # torch's sum, 28
    torch.cat([partly(), partly()]).amax()  # torch's amax, 56
    torch.where(partly(128) > 120, partly(), 0.0).sum()  # torch's sum, 7
    gathered = partly()[torch.arange(90, 110, device="cuda")]
    gathered.sum()  # torch's sum, 10
    filled = torch.empty(2, 64, device="cuda")
    filled.copy_(partly().view(2, 64))
    torch.softmax(filled, 0)  # torch's _softmax, 28
    weights = torch.nn.Parameter(torch.ones(128, device="cuda"))
    (weights * partly(128)).sum().backward()
    weights.grad.copy_(partly())
    torch.optim.SGD([weights], lr=0.1, foreach=False).step()  # torch's add, 28
    half = torch.zeros(128, device="cuda")
    half[64:] = partly()[64:]
    half[:100].sum()
    half[:101].sum()  # torch's sum, 1
    made, weight = torch.ones(1, 1, 126, device="cuda"), torch.ones(1, 1, 3, device="cuda")
    backward(made, partly().view(1, 1, 128), weight, *OF_WEIGHT)  # torch's convolution_backward, 28


def right() -> None:
    """Read what is written, move or overwrite the rest."""
    partly()[:100].sum()
    partly(128).sum()
    partly().clone()[:100].cpu()
    partly().to(torch.float64)[:100].sum()
    partly().zero_().sum()
    partly().fill_(1).cpu()
    partly().normal_().sum()
    partly().masked_fill(torch.arange(128, device="cuda") >= 100, 0).sum()
    partly().masked_fill_(torch.arange(128, device="cuda") >= 100, 0).sum()
    torch.where(torch.arange(128, device="cuda") < 100, partly(), 0.0).sum()
    torch.cat([partly()[:100], partly()])[:200].sum()
    partly().view(2, 64)[0].sum()
    partly().view(16, 8)[:12].contiguous().sum()
    partly().index_select(0, torch.arange(100, device="cuda")).sum()
    partly()[partly(128) < 100].sum()
    late = partly()
    late[100:] = 0
    late.sum()
    scattered = partly()
    scattered[torch.arange(100, 128, device="cuda")] = torch.ones(28, device="cuda")
    scattered.sum()
    torch.add(partly(128), 1, out=partly()).sum()
    torch.empty_like(partly()).fill_(2).sum()
    torch.baddbmm(torch.empty(2, 3, 3, device="cuda"), *torch.ones(2, 2, 3, 3, device="cuda"), beta=0).sum()
    strided = torch.empty(16, 8, device="cuda")[:, :4]
    strided.copy_(torch.ones(16, 4))
    strided.sum()
    strided.cpu()
    made, given = torch.ones(1, 1, 126, device="cuda"), torch.ones(1, 1, 128, device="cuda")
    backward(made, given, partly()[125:].view(1, 1, 3), *OF_WEIGHT)
    torch.empty(100, device="cuda").cpu()  # no kernel had it


if __name__ == "__main__":
    {"faults": faults, "right": right}[sys.argv[1]]()
