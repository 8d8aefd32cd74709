"""Attention of sequences of several lengths, and sparse gradients, on torch's simulated device against float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:.*prototype stage|.*beta state")]

LENGTHS_Q, LENGTHS_K = (5, 1, 9), (7, 3, 9)
HEADS, HEAD_SIZE = 4, 16


def offsets(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device="cuda")


def inputs(lengths_k: tuple[int, ...], kv_heads: int) -> list[Tensor]:
    """Return query, key and value of all sequences, [tokens, heads, head size]."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(sum(LENGTHS_Q), HEADS), (sum(lengths_k), kv_heads), (sum(lengths_k), kv_heads)]
    return [torch.randn(*shape, HEAD_SIZE, generator=generator).half() for shape in shapes]


def mask(rows: int, columns: int, right: int | None, left: int | None, bottom: bool) -> Tensor:
    """Return which scores of one sequence count."""
    row, column = torch.arange(rows)[:, None] + (columns - rows if bottom else 0), torch.arange(columns)
    allowed = torch.ones(rows, columns, dtype=torch.bool)
    if right is not None:
        allowed &= column <= row + right
    if left is not None:
        allowed &= column >= row - left
    return allowed


def expected(tensors: list[Tensor], lengths_k: tuple[int, ...], **of_mask: object) -> tuple[Tensor, ...]:
    """Return the output and the gradients by torch's attention in float64, one sequence after the other."""
    leaves = [one.double().requires_grad_() for one in tensors]
    pieces = []
    split = zip(leaves[0].split(LENGTHS_Q), leaves[1].split(lengths_k), leaves[2].split(lengths_k), strict=True)
    for q, k, v in split:
        chosen = mask(len(q), len(k), **of_mask)
        q, k, v = (one.transpose(0, 1).unsqueeze(0) for one in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, attn_mask=chosen, enable_gqa=True)
        pieces.append(out[0].transpose(0, 1))
    out = torch.cat(pieces)
    return out, *torch.autograd.grad(out.sum(), leaves)


def flash(q: Tensor, k: Tensor, v: Tensor, cu: tuple[Tensor, Tensor], longest: tuple[int, int]) -> Tensor:
    return torch.ops.aten._flash_attention_forward(q, k, v, *cu, *longest, 0.0, True, False)[0]


def flash_window(q: Tensor, k: Tensor, v: Tensor, cu: tuple[Tensor, Tensor], longest: tuple[int, int]) -> Tensor:
    options = {"window_size_left": 2, "window_size_right": 1}
    return torch.ops.aten._flash_attention_forward(q, k, v, *cu, *longest, 0.0, False, False, **options)[0]


def efficient(mask_type: int) -> Callable[..., Tensor]:
    def call(q: Tensor, k: Tensor, v: Tensor, cu: tuple[Tensor, Tensor], longest: tuple[int, int]) -> Tensor:
        q, k, v = (one.unsqueeze(0) for one in (q, k, v))
        return torch.ops.aten._efficient_attention_forward(q, k, v, None, *cu, *longest, 0.0, mask_type, True)[0][0]

    return call


CASES: dict[str, tuple[Callable[..., Tensor], int, dict[str, object]]] = {
    "flash, causal": (flash, HEADS, {"right": 0, "left": None, "bottom": True}),
    "flash, groups": (flash, 2, {"right": 0, "left": None, "bottom": True}),
    "flash, window": (flash_window, HEADS, {"right": 1, "left": 2, "bottom": True}),
    "efficient": (efficient(0), HEADS, {"right": None, "left": None, "bottom": False}),
    "efficient, top left": (efficient(1), HEADS, {"right": 0, "left": None, "bottom": False}),
    "efficient, bottom right": (efficient(2), HEADS, {"right": 0, "left": None, "bottom": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_sequences_of_several_lengths(case: str):
    """Compare results and all gradients."""
    function, kv_heads, of_mask = CASES[case]
    tensors = inputs(LENGTHS_K, kv_heads)
    leaves = [one.cuda().requires_grad_() for one in tensors]
    longest = max(LENGTHS_Q), max(LENGTHS_K)
    out = function(*leaves, (offsets(LENGTHS_Q), offsets(LENGTHS_K)), longest)
    found = out, *torch.autograd.grad(out.float().sum(), leaves)
    for one, other in zip(found, expected(tensors, LENGTHS_K, **of_mask), strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "backend", [None, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION], ids=str
)
def test_nested_tensors(backend: SDPBackend | None):
    """Compare attention of a jagged tensor by each kernel, with its gradients."""
    tensors = inputs(LENGTHS_Q, HEADS)
    leaves = [one.cuda().requires_grad_() for one in tensors]
    nested = [torch.nested.nested_tensor_from_jagged(one, offsets(LENGTHS_Q).long()).transpose(1, 2) for one in leaves]
    with sdpa_kernel(backend or [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        out = scaled_dot_product_attention(*nested).transpose(1, 2).values()
    found = out, *torch.autograd.grad(out.float().sum(), leaves)
    exact = expected(tensors, LENGTHS_Q, right=None, left=None, bottom=False)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-2, atol=1e-2)


@pytest.mark.simulated_only("a GPU has pages of keys")
def test_keys_in_pages_are_refused_by_name():
    q, k, v = (one.cuda() for one in inputs(LENGTHS_Q, HEADS))
    cu = offsets(LENGTHS_Q)
    with pytest.raises(NotImplementedError, match="_flash_attention_forward with a block_table"):
        torch.ops.aten._flash_attention_forward(
            q, k, v, cu, cu, 9, 9, 0.0, True, False, block_table=torch.zeros(3, 1, dtype=torch.int32, device="cuda")
        )


@pytest.mark.parametrize("bag", [False, True], ids=["embedding", "embedding bag"])
def test_sparse_gradients_of_embeddings(bag: bool):
    """Compare a sparse gradient with the CPU's, and the weights after a step of SparseAdam."""
    indices = torch.tensor([1, 2, 1, 7])
    kinds = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        kind = torch.nn.EmbeddingBag if bag else torch.nn.Embedding
        module = kind(10, 4, sparse=True, dtype=torch.float64).to(device)
        given = (indices.to(device), torch.tensor([0, 2], device=device)) if bag else (indices.to(device),)
        module(*given).square().sum().backward()
        gradient = module.weight.grad
        assert gradient.is_sparse
        torch.optim.SparseAdam(module.parameters(), lr=0.1).step()
        made = gradient.coalesce()
        kinds.append([one.detach().cpu() for one in (made.indices(), made.values(), module.weight)])
    for one, other in zip(*kinds, strict=True):
        torch.testing.assert_close(one, other)


SPARSE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": lambda a, b: torch.sparse.mm(a, b),
    "addmm": lambda a, b: torch.sparse.addmm(b, a, b, beta=0.5, alpha=2),
    "add": lambda a, b: (a + a * 2).to_dense(),
    "add_": lambda a, b: (a * 1).add_(a).to_dense(),
    "sparse product": lambda a, b: (a @ a).to_dense(),
    "softmax": lambda a, b: torch.sparse.softmax(a, 1).to_dense(),
    "sum": lambda a, b: torch.sparse.sum(a, 1).to_dense(),
    "mask": lambda a, b: b.sparse_mask(a).to_dense(),
    "rows": lambda a, b: a.to_sparse_csr() @ b,
}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors(name: str):
    """Compare an operator on a sparse tensor, and the dense one's gradient, with the CPU's."""
    results = []
    for device in ("cpu", "cuda"):
        generator = torch.Generator().manual_seed(0)
        a = torch.randn(5, 5, generator=generator, dtype=torch.float64).relu().to(device).to_sparse()
        b = torch.randn(5, 5, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        out = SPARSE[name](a, b)
        assert out.device.type == device
        gradient = torch.autograd.grad(out.sum(), b)[0] if out.requires_grad else torch.zeros(1, device=device)
        results.append((out.detach().cpu(), gradient.cpu()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
