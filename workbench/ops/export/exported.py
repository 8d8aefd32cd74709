"""Variant of an op during its export: its configuration, and everything that its file turns out to need."""

from __future__ import annotations

from typing import Any

from workbench.errors import ArgumentError
from workbench.ops.declared.problem import DeclaredProblem
from workbench.ops.export import cuda_parts, parts, tables
from workbench.ops.export.code import Collected
from workbench.ops.export.expressions import Code
from workbench.ops.export.signature import Signature

_LOCAL = {"config", "device", "grid", "kernel", "kernels", "macros", "module", "named", "place", "signature", "stream"}
_LOCAL |= {"value"}
_TESTED = {"case", "right", "inputs", "given", "exact", "results", "pairs", "wrong"}
_OWN = (
    "reference backward launch is_legal empty_outputs chosen cases self_test keep gradients SOURCE HEADERS "
    "OPTIONS PARAMETERS CONFIGURATION CONFIGURATIONS TUNABLES UNTUNED TOLERANCE contexts torch_stream cuda torch math "
    "pycuda_error sys os ctypes functools contextlib importlib threading itertools Path NamedTuple"
)
TAKEN = {
    *_OWN.split(),
    *(name for module in (parts, cuda_parts) for name, one in vars(module).items() if callable(one)),
}
"""Names that an exported file has, or may have."""


class Exported:
    """A variant of an op during its export, with the state that the sections of its file share.

    Attributes:
        collected: the functions, constants and modules that the file needs.
        code: the declaration's expressions as the file's code.
        chosen: True if a call decides on its configuration.
        winners: the rows of tuned tables that the file has.
        launch_takes, legal_takes: the arguments of the file's functions ``launch`` and ``is_legal``.
    """

    def __init__(self, op: Any, variant: Any):
        self.op, self.variant = op, variant
        self.contract, self.declared = op.contract, variant.declared
        self.problem: DeclaredProblem = op.quick_case.problem()
        self.config = variant.default_config(self.problem)
        self.values = self.declared.names(self.config, self.problem)
        self.rules = [one for one in self.declared.rules if not self.declared.takes_config(one)]
        """Rules of ``is_legal``, which depend on more than the configuration."""
        outputs = [name for name, _ in self.problem.outputs]
        sizes = [name for name in self.values if name not in {*variant.space, *self.problem.known}]
        self._check_names([*variant.space, *sizes, *self.contract.parameters, *outputs, *self.declared.workspace])
        given = [f"given_{name}" for name in self.contract.in_place]
        local = {*_LOCAL, *given, *self.contract.parameters, *outputs, *sizes, *variant.space, op.name}
        libraries = {"torch", "triton"} if variant.language == "triton" else {"torch", "numpy"}
        self.collected = Collected(op, TAKEN | local, libraries)
        self.code = Code(self.declared, self.collected, outputs, sizes)
        self.signature = Signature(op, outputs)
        self.winners: list = tables.winners(op, variant) if variant.space else []
        self.chosen = bool(self.winners) or bool(self.rules)
        self.launch_takes: list[str] = []
        self.legal_takes: list[str] = []

    def _check_names(self, names: list[str]) -> None:
        """Raise ArgumentError for a name that stands for two things, or for one that the file has itself."""
        for index, name in enumerate(names):
            if name in names[:index]:
                remedy = "Rename one of them."
                raise ArgumentError(f"export: {name!r}", "two things of that name", "different names", remedy)
            if name in TAKEN or name in _LOCAL:
                what = "a name that the exported file has itself"
                raise ArgumentError(f"export: {name!r}", what, "another name", "Rename the argument, size or tunable.")
        if self.op.name in TAKEN | _TESTED or not self.op.name.isidentifier():
            what = "a name that the exported file has itself"
            raise ArgumentError(f"export: {self.op.name!r}", what, "another name", 'Rename it: @wb.op(name="...").')
