"""An op that a user declares by a description: errors of its own, rules of features, inputs that a search chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.attention.ops.named_case import NamedCase
from workbench.attention.ops.rules import rules
from workbench.base import by_value
from workbench.errors import ArgumentError, ConfigurationError
from workbench.ops import registry
from workbench.ops.described_op import DescribedOp
from workbench.ops.steps import CudaStep
from workbench.ops.tensors import RunTensors, made
from workbench.ops.values import Check, Config
from workbench.ops.variant import CudaVariant, TorchVariant
from workbench.toolchain.source import read_source

KERNELS = read_source(r"""
extern "C" __global__ void first(float *sums, const float *pages, int page) {
    float sum = 0;
    for (int i = threadIdx.x; i < page; i += 32) sum += pages[blockIdx.x * page + i];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    if (!threadIdx.x) sums[blockIdx.x] = sum;
}

extern "C" __global__ void second(float *out, const float *sums, const float *bias, int num_pages) {
    float sum = bias ? *bias : 0;
    for (int i = 0; i < num_pages; i++) sum += sums[i];
    *out = sum;
}
""")


@dataclass(frozen=True)
class Problem:
    """Elements to be summed, in pages; of a size that a configuration may choose where that is None."""

    elements: int
    page: int | None
    layout: str = "pages"
    dtype: str = "float32"
    features: tuple[str, ...] = ()
    arch: str = "sm_80"

    @property
    def num_pages(self) -> int:
        return self.elements // (self.page or 32)

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)


@dataclass
class Tensors(RunTensors):
    pages: torch.Tensor
    bias: torch.Tensor | None = None
    out: torch.Tensor = made()
    workspace: Any = made()


def describe(t: Tensors, *, layout: str = "pages") -> Problem:
    if t.pages.dim() != 2:
        raise ArgumentError("pages", f"shape {tuple(t.pages.shape)}", "[num_pages, page]", "Reshape it.")
    features = () if t.bias is None else ("bias",)
    return Problem(t.pages.numel(), t.pages.shape[1], layout=layout, features=features)


def make(t: Tensors) -> None:
    t.out = t.pages.new_empty(1)


@dataclass(frozen=True)
class Case(NamedCase):
    """So many elements, in pages that a configuration may choose."""

    elements: int
    bias: float | None = None
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.name} {self.elements}"

    def problem(self, config: Config | None = None, arch: str = "sm_80") -> Problem:
        page = (config or {}).get("PAGE")
        return Problem(self.elements, page, features=() if self.bias is None else ("bias",), arch=arch)

    def values(self) -> torch.Tensor:
        return torch.randn(self.elements, generator=torch.Generator().manual_seed(self.seed))

    def inputs(self, problem: Problem, device: str = "cpu") -> Tensors:
        bias = None if self.bias is None else torch.full((1,), self.bias).to(device)
        pages = self.values().view(problem.num_pages, -1).to(device)
        return Tensors(pages, bias, torch.full((1,), torch.nan, device=device))

    def reference(self) -> torch.Tensor:
        return self.values().double().sum(0, keepdim=True) + (self.bias or 0.0)

    def check(self, out: torch.Tensor) -> Check:
        error = float((out.double().cpu() - self.reference()).abs().nan_to_num(torch.inf).max())
        return Check(error, 1e-4, error <= 1e-4)

    def minimum_bytes(self, problem: Problem) -> int:
        return 4 * self.elements


@dataclass
class Sums:
    sums: torch.Tensor


def room(config: Config, problem: Problem, tensors: Tensors) -> Sums:
    return Sums(torch.empty(problem.num_pages, device=tensors.pages.device))


def summed(problem: Problem, tensors: Tensors) -> None:
    tensors.out.copy_(tensors.pages.sum() + (0.0 if tensors.bias is None else tensors.bias))


def one(config: Config, problem: Problem) -> tuple[int]:
    return (1,)


TORCH = TorchVariant(
    op="summed",
    name="torch",
    idea="",
    layouts=("pages", "rows"),
    dtypes=("float32",),
    features=("bias",),
    compute=summed,
)
CUDA = CudaVariant(
    op="summed",
    name="cuda_pages",
    idea="a warp per page, then one thread",
    source=Path(KERNELS.name),
    text=KERNELS,
    steps=(
        CudaStep(kernel="first", grid=lambda config, problem: (problem.num_pages,), block=lambda c, p: (32,)),
        CudaStep(kernel="second", grid=one, block=one),
    ),
    space={"PAGE": (32, 64, 128)},
    restrictions=rules(("the page of the tensor", "page is None or PAGE == page")),
    layouts=("pages",),
    dtypes=("float32",),
    features=("bias",),
    defaults=lambda problem: {"PAGE": problem.page or 32},
    workspace=room,
)


@pytest.fixture
def op() -> Iterator[DescribedOp]:
    before = dict(registry.OWN)
    found = wb.op(name="summed", tensors=Tensors, make=make, outputs=("out",))(describe)
    found.add(TORCH, CUDA, Case("small", 256), Case("biased", 512, bias=2.5))
    yield found
    registry.OWN.clear()
    registry.OWN.update(before)


PAGES = torch.arange(128.0).view(4, 32)


def test_it_is_called_in_torch_and_in_the_simulator(op: DescribedOp):
    bias = torch.tensor([0.5])
    for variant in ("auto", "torch", "cuda_pages"):
        assert float(op(PAGES, variant=variant)) == 8128
        assert float(op(PAGES, bias=bias, variant=variant)) == 8128.5
    compiled = torch.compile(lambda x: op(x) + 1, backend="eager", fullgraph=True)
    assert float(compiled(PAGES)) == 8129
    torch.library.opcheck(op.library_op(), (PAGES, None, "pages", "cuda_pages", None))


def test_its_own_errors_and_rules_are_told(op: DescribedOp):
    with pytest.raises(ArgumentError, match=r"pages: got shape \(3,\); allowed: \[num_pages, page\]"):
        op(torch.ones(3))
    with pytest.raises(ArgumentError, match=r"'cuda_pages', which lacks layout: layout 'rows' is one of pages"):
        op(PAGES, layout="rows", variant="cuda_pages")
    with pytest.raises(ConfigurationError, match="page is None or PAGE == page"):
        op(PAGES, variant="cuda_pages", config={"PAGE": 64})
    with pytest.raises(ArgumentError, match="bias: got device meta"):
        op(PAGES, torch.ones(1, device="meta"))


def test_it_is_judged_compared_and_tuned_over_a_page_size(op: DescribedOp, tmp_path: Path):
    judgement = wb.check(op, cases=["small", "biased"], config="all", seeds=1)
    assert judgement.ok, judgement
    assert [one.config.get("PAGE") for one in judgement if one.variant == "cuda_pages"] == [32, 64, 128] * 2
    table = wb.compare(op, "biased")
    assert table.all_correct
    run = wb.tune(op, "small", variants="cuda_pages", store=tmp_path / "store.sqlite")
    assert [trial.outcome for trial in run.trials] == ["ok"] * 3
    assert wb.trace(op, "small", variant="cuda_pages").report.instructions > 0


def test_it_goes_to_another_process_and_is_declared_again(op: DescribedOp):
    other = by_value.loads(by_value.dumps(op))
    assert [one.name for one in other.variants] == ["torch", "cuda_pages"]
    assert float(other(PAGES, variant="cuda_pages")) == 8128
    assert other.restore_case(op.case("biased").to_dict()) == op.case("biased")
    again = wb.op(name="summed", tensors=Tensors, make=make, outputs=("out",))(describe)
    assert registry.get("summed") is again
    assert again.library_op()._qualname != op.library_op()._qualname


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"in_place": ("nothing",)}, "in_place: got 'nothing'; allowed: pages, bias, out, workspace"),
        ({"outputs": ("nothing",)}, "outputs: got 'nothing'"),
        ({"labels": {"nothing": "x"}}, "labels: got 'nothing'"),
        ({"tensors": dict}, "a dataclass of workbench.ops.tensors.RunTensors"),
        ({"tolerance": 0.1}, "The cases of a described op say what is right"),
        ({"name": "paged_attention"}, "a name that no installed package's op has"),
    ],
)
def test_what_cannot_be_described_is_refused(given: dict, message: str):
    with pytest.raises(ArgumentError, match=message):
        wb.op(**({"name": "summed", "tensors": Tensors} | given))(describe)
