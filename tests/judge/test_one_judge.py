"""The judge asks nothing about how an op was made: the same kernel gets the same verdict in either form."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from sampling import long_if

import workbench as wb
from workbench.attention.ops.named_case import NamedCase
from workbench.ops import registry
from workbench.ops.declared.case import DeclaredCase
from workbench.ops.declared.cuda import DeclaredCuda
from workbench.ops.declared.elsewhere import Elsewhere
from workbench.ops.declared.op import DeclaredOp, DeclaredTorch
from workbench.ops.declared.problem import DeclaredProblem
from workbench.ops.declared.triton import DeclaredTriton
from workbench.ops.declared.views import ViewedCase
from workbench.ops.described_op import DescribedOp
from workbench.ops.steps import CudaStep
from workbench.ops.tensors import RunTensors
from workbench.ops.values import Check
from workbench.ops.variant import CudaVariant, TorchVariant
from workbench.toolchain.source import read_source

ROWS, COLS = 5, 70
KERNEL = r"""
extern "C" __global__ void scaled(float *out, float *x, int cols) {
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        int place = blockIdx.x * cols + c;
        out[place] = 2 * x[place];
    }
}
"""


@dataclass(frozen=True)
class Sizes:
    cols: int = COLS
    layout: str = "any"
    dtype: str = "any"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"


@dataclass
class Rows(RunTensors):
    x: torch.Tensor
    out: torch.Tensor


@dataclass(frozen=True)
class RowsCase(NamedCase):
    """A case with parameters, as those of an installed package's ops."""

    seed: int = 0
    _problem = Sizes

    def inputs(self, problem: Sizes, device: str = "cpu") -> Rows:
        return Rows(self.values().to(device), torch.full((ROWS, COLS), torch.nan, device=device))

    def values(self) -> torch.Tensor:
        return torch.randn(ROWS, COLS, generator=torch.Generator().manual_seed(self.seed))

    def reference(self) -> torch.Tensor:
        return 2 * self.values().double()

    def check(self, out: torch.Tensor) -> Check:
        error = float((out.double() - self.reference()).abs().nan_to_num(torch.inf).max())
        return Check(error, 1e-5, error <= 1e-5)

    def minimum_bytes(self, problem: Sizes) -> int:
        return 8 * ROWS * COLS


def doubled(problem: Sizes, tensors: Rows) -> None:
    tensors.out.copy_(2 * tensors.x)


UNIT = read_source(KERNEL)
TORCH = TorchVariant(op="scaled_rows", name="torch", idea="", layouts=("any",), dtypes=("any",), compute=doubled)
CUDA = CudaVariant(
    op="scaled_rows",
    name="cuda",
    idea="",
    source=Path(UNIT.name),
    text=UNIT,
    steps=(CudaStep(kernel="scaled", grid=lambda config, problem: (ROWS,), block=lambda config, problem: (64,)),),
    layouts=("any",),
    dtypes=("any",),
)


@pytest.fixture
def declared() -> Iterator[DeclaredOp]:
    before = dict(registry.OWN)

    @wb.op(name="scaled")
    def scaled(x):
        return 2 * x

    scaled.case("small", x=wb.randn(ROWS, COLS))
    scaled.cuda(KERNEL, name="cuda", grid=ROWS, block=64, args={"cols": "x.shape[1]"}, contiguous=True)
    yield scaled
    registry.OWN.clear()
    registry.OWN.update(before)


@pytest.fixture
def described(declared: DeclaredOp) -> DescribedOp:
    @wb.op(tensors=Rows, in_place=("out",))
    def scaled_rows(t: Rows) -> Sizes:
        return Sizes(t.x.shape[1])

    scaled_rows.add(TORCH, CUDA, RowsCase("small"))
    return scaled_rows


STORE = "        out[place] = 2 * x[place];\n"
MUTANTS = {
    "right": (STORE, "ok"),
    "a wrong number": (STORE.replace("2", "3"), "wrong_result"),
    "half of it": (f"        if (c % 2)\n{STORE}", "unwritten"),
    "its input": (f"        x[place] += 1;\n{STORE}", "changed_input"),
    "its output first": (STORE.replace("= 2", "= 0 * out[place] + 2"), "uninitialised"),
    "a race": (STORE.replace("out[place]", "out[place % cols]"), "race"),
    "beyond its output": (f"        out[place + {ROWS * COLS}] = 0;\n{STORE}", "out_of_bounds"),
    "no C++": ("2 x", "not_compiled"),
}
DEFAULT = ("right", "its input")


@pytest.mark.parametrize("name", [long_if(name not in DEFAULT, name) for name in MUTANTS])
def test_either_form_gets_the_same_verdict(declared: DeclaredOp, described: DescribedOp, name: str):
    text, outcome = MUTANTS[name]
    source = KERNEL.replace(STORE, text)
    verdicts = [wb.check(op, source, variants="cuda", seeds=[3]).verdicts[0] for op in (described, declared)]
    assert [one.outcome for one in verdicts] == [outcome, outcome], verdicts
    lines = {(one.line, tuple(found.kind for found in one.findings)) for one in verdicts}
    assert len(lines) == 1


def test_the_reference_is_not_judged_and_other_torch_variants_are(declared: DeclaredOp, described: DescribedOp):
    declared.torch(lambda x: x + x, name="sum")
    declared.torch(lambda x: 3 * x, name="wrong")
    outcomes = {one.variant: one.outcome for one in wb.check(declared, seeds=1)}
    assert outcomes == {"cuda": "ok", "sum": "ok", "wrong": "wrong_result"}
    assert [one.outcome for one in wb.check(described, seeds=1)] == ["ok", "ok"]


KINDS = {
    DeclaredOp,
    DeclaredTorch,
    DeclaredCuda,
    DeclaredTriton,
    DeclaredCase,
    ViewedCase,
    Elsewhere,
    DeclaredProblem,
    NamedCase,
}


def asks_for(text: str) -> list[str]:
    """The kinds of ops, variants and cases that a module's text tells apart."""
    names = {one.__name__ for one in KINDS} - {"DeclaredCase", "DeclaredProblem"}
    found = []
    for node in ast.walk(ast.parse(text)):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called in ("isinstance", "issubclass"):
            found += [part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name) and part.id in names]
        elif called in ("hasattr", "getattr") and isinstance(node.args[1], ast.Constant):
            found += [node.args[1].value] * (node.args[1].value in ("contract", "declared", "from_dict", "renew"))
        elif isinstance(node, ast.MatchClass):
            found += [part.id for part in ast.walk(node.cls) if isinstance(part, ast.Name) and part.id in names]
    return found


def test_only_ops_tell_kinds_of_ops_apart():
    root = Path(wb.__file__).parent
    texts = {path.relative_to(root): path.read_text() for path in root.rglob("*.py")}
    outside = {str(path): asks_for(text) for path, text in texts.items() if path.parts[0] != "ops"}
    assert {path: found for path, found in outside.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("isinstance(op, DeclaredOp)", ["DeclaredOp"]),
        ("isinstance(op, (int, Op | DeclaredOp))", ["DeclaredOp"]),
        ("hasattr(case, 'contract')", ["contract"]),
        ("match op:\n    case DeclaredOp(): pass", ["DeclaredOp"]),
        ("isinstance(op, Op)", []),
    ],
)
def test_what_tells_kinds_apart_is_found(text: str, found: list[str]):
    assert asks_for(text) == found
