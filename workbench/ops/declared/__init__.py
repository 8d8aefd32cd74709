"""Ops that anybody declares: ``@wb.op`` on a reference, with cases and kernels beside it.

`op` has the decorator and what it makes; `launching` the declarations that both languages share, `cuda` and `triton`
the variants; `case` the inputs, and `contract` the verdict on a result. Of the modules of `workbench.ops`, those of
`export` alone import from here.
"""

from workbench.ops.declared.cuda import step
from workbench.ops.declared.op import DeclaredOp, op
from workbench.ops.tensors.inputs import Input, full, rand, randint, randn

__all__ = ["DeclaredOp", "Input", "full", "op", "rand", "randint", "randn", "step"]
