"""A torch module over the kernels, with a backward pass."""

import torch

from kernels import triton_kernels


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = triton_kernels.softmax(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True))


class Mixer(torch.nn.Module):
    """A linear layer and a softmax over its outputs."""

    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)

    def forward(self, x):
        return _Softmax.apply(self.linear(x))
