"""Ranks of a process group "nccl", a process and a device each; what they compute together equals one device's result.

Call it with the number of ranks and a file for their rendezvous: rank 0 is this process, which starts the others.
"""

import copy
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing import get_context
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def numbers(*size: int) -> Tensor:
    """Return the same random numbers on every rank."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size))).cuda()


def collectives(rank: int, ranks: int) -> None:
    """Call each collective on small tensors."""
    own = torch.arange(ranks, device="cuda") + 10 * rank
    every = torch.stack([torch.arange(ranks) + 10 * one for one in range(ranks)]).cuda()
    results = {
        dist.ReduceOp.SUM: every.sum(0), dist.ReduceOp.MAX: every.amax(0), dist.ReduceOp.MIN: every.amin(0),
        dist.ReduceOp.PRODUCT: every.prod(0),
    }  # fmt: skip
    for operation, expected in results.items():
        for dtype in (torch.int64, torch.float32):
            x = own.to(dtype, copy=True)
            dist.all_reduce(x, operation)
            assert torch.equal(x, expected.to(dtype)), (operation, x)
    x = (own.bfloat16() / 3).clone()
    work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert torch.equal(x, (every.bfloat16() / 3).float().mean(0).bfloat16())
    gathered = torch.empty(ranks * ranks, dtype=torch.int64, device="cuda")
    dist.all_gather_single(gathered, own)
    assert torch.equal(gathered, every.flatten())
    part = torch.empty(1, dtype=torch.int64, device="cuda")
    dist.reduce_scatter_single(part, own)
    assert part.item() == every.sum(0)[rank]
    exchanged = torch.empty_like(own)
    dist.all_to_all_single(exchanged, own)
    assert torch.equal(exchanged, every[:, rank])
    last = ranks - 1
    x = own.clone()
    dist.broadcast(x, last)
    assert torch.equal(x, every[last])
    dist.reduce(x, last)
    assert rank != last or torch.equal(x, ranks * every[last])
    parts = list(every.unbind()) if rank == last else None
    dist.scatter(x, parts, src=last)
    assert torch.equal(x, own)
    if rank == 0:
        dist.send(own, 1)
    elif rank == 1:
        dist.recv(x, 0)
        assert torch.equal(x, every[0])
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x.fill_(rank), group=pair)
        assert x.tolist() == [1] * ranks
    dist.barrier()


def data_parallel(rank: int, ranks: int) -> None:
    """Train on a part of each batch."""
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    together = DistributedDataParallel(copy.deepcopy(alone), device_ids=[rank])
    batch = numbers(2 * ranks, 8)
    for model, part in ((alone, batch), (together, batch[rank::ranks])):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(part).square().mean().backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def tensor_parallel(rank: int, ranks: int) -> None:
    """Divide the hidden units of a multilayer perceptron: a sum over ranks, forward and backward."""
    x, up, down = numbers(4, 8).requires_grad_(), numbers(8 * ranks, 8), numbers(8, 8 * ranks)
    alone = F.gelu(x @ up.T) @ down.T
    (expected,) = torch.autograd.grad(alone.sum(), x)
    own_up, own_down = up.chunk(ranks)[rank], down.chunk(ranks, 1)[rank]
    together = F.gelu(x @ own_up.T) @ own_down.T
    (gradient,) = torch.autograd.grad(together.sum(), x)
    total = together.detach().clone()
    for one in (total, gradient):
        dist.all_reduce(one)
    torch.testing.assert_close(total, alone)
    torch.testing.assert_close(gradient, expected)


def ring_attention(rank: int, ranks: int) -> None:
    """Pass blocks of keys and values around; each rank has a block of queries."""
    query, key, value = (numbers(2, 4 * ranks, 8 + i)[..., :8] for i in range(3))
    own = [one.chunk(ranks, 1)[rank].contiguous() for one in (query, key, value)]
    q, block = own[0], torch.stack(own[1:])
    top = torch.full((2, 4, 1), -torch.inf, device="cuda")
    total, out = torch.zeros_like(top), torch.zeros_like(q)
    for _ in range(ranks):
        received = torch.empty_like(block)
        messages = [
            dist.P2POp(dist.isend, block, (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)
        ]  # fmt: skip
        works = dist.batch_isend_irecv(messages)  # beside the products
        scores = q @ block[0].mT / 8**0.5
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - new)
        total = total * torch.exp(top - new) + weights.sum(-1, keepdim=True)
        out = out * torch.exp(top - new) + weights @ block[1]
        top = new
        for work in works:
            work.wait()
        block = received
    alone = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(out / total, alone.chunk(ranks, 1)[rank])


PARTS = (collectives, data_parallel, tensor_parallel, ring_attention)


def run(rank: int, ranks: int, file: str) -> None:
    """Join the process group as one rank, and run all parts."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=ranks)
    for part in PARTS:
        part(rank, ranks)
        print(rank, part.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count, place = int(sys.argv[1]), sys.argv[2]
    others = [get_context("spawn").Process(target=run, args=(rank, count, place)) for rank in range(1, count)]
    for other in others:
        other.start()
    run(0, count, place)
    for other in others:
        other.join()
    sys.exit(max((abs(other.exitcode or 0) for other in others), default=0))
