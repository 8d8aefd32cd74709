"""cuTile: a product of matrices by tiles, and a sum by gathers; with "fault" an array that is shorter than its view."""

import sys

import cuda.tile as ct
import torch


@ct.kernel
def product(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0.0, ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(row, column), tile=ct.astype(total, c.dtype))


@ct.kernel
def doubled(x, y, N: ct.Constant[int]):
    at = ct.bid(0) * N + ct.arange(N, dtype=ct.int32)
    ct.scatter(y, at, 2 * ct.gather(x, at))


stream = torch.cuda.current_stream()
a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((70, 48), (48, 50)))
c = torch.zeros(70, 50, device="cuda", dtype=torch.float16)
ct.launch(stream, (3, 2, 1), product, (a, b, c, 32, 32, 16))
torch.testing.assert_close(c, a @ b, atol=2e-2, rtol=1e-2)

x = torch.randn(100, device="cuda")
y = torch.zeros(100, device="cuda")
if "fault" in sys.argv:  # a view past the end of its memory
    x = torch.as_strided(torch.randn(60, device="cuda"), (60,), (1,))
    x.untyped_storage().resize_(4 * 40)
    y = torch.zeros(60, device="cuda")
ct.launch(stream, (4, 1, 1), doubled, (x, y, 32))
torch.cuda.synchronize()
torch.testing.assert_close(y, 2 * x)
print("right")
