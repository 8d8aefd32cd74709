"""A product of float32 in Triton: rounded to TF32, exact, and wrong for another reason."""

import triton
import triton.language as tl

import workbench as wb


@triton.jit
def product_kernel(c, a, b, EXACT: tl.constexpr, SCALE: tl.constexpr):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(c + at, SCALE * tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee" if EXACT else "tf32"))


product = wb.op(lambda a, b: a @ b, name="product")
product.case("square", a=wb.randn(32, 32), b=wb.randn(32, 32))
for name, exact, scale in (("rounded", 0, 1), ("exact", 1, 1), ("doubled", 0, 2)):
    constexprs = {"EXACT": exact, "SCALE": scale}
    product.triton(product_kernel, constexprs=constexprs, grid=1, args=("out", "a", "b"), name=name)
