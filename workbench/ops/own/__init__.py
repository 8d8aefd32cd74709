"""Operations of one's own: ``@wb.op`` on a reference, cases and kernels declared beside it."""

from workbench.ops.own.cuda import step
from workbench.ops.own.inputs import Input, full, rand, randint, randn
from workbench.ops.own.op import OwnOp, op

__all__ = ["Input", "OwnOp", "full", "op", "rand", "randint", "randn", "step"]
