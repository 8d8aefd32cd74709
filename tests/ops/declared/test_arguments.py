"""Arguments that kernels of a declared op may have: constexprs of every kind, None, complex numbers, whole sizes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import workbench as wb
from workbench.errors import ArgumentError
from workbench.ops import registry


@pytest.fixture(autouse=True)
def _ops_of_a_test() -> Iterator[None]:
    before = dict(registry.OWN)
    yield
    registry.OWN.clear()
    registry.OWN.update(before)


def exported(op: Any, folder: Path) -> ModuleType:
    """The file of an op, imported."""
    path = op.export(folder / f"{op.name}_exported.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@triton.jit
def biased_kernel(
    out, x, bias, n, BLOCK: tl.constexpr, KIND: tl.constexpr = "relu", TYPE: tl.constexpr = tl.float32,
    SUFFIX: tl.constexpr = "",
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n).to(TYPE)
    if bias is not None:
        value += tl.load(bias + i, mask=i < n)
    if KIND == "relu" and SUFFIX == "":
        value = tl.maximum(value, 0.0)
    tl.store(out + i, value, mask=i < n)


def biased(**declared: Any) -> Any:
    """An op of an optional tensor, in Triton."""

    @wb.op(name="biased")
    def reference(x, bias=None):
        return torch.relu(x if bias is None else x + bias)

    reference.case("plain", x=wb.randn(100), bias=None)
    reference.case("biased", x=wb.randn(100), bias=wb.randn(100))
    reference.triton(
        biased_kernel,
        tune={"BLOCK": (64,)},
        sizes=lambda x: {"n": x.numel()},
        grid="cdiv(n, BLOCK)",
        args=("out", "x", "bias", "n"),
        **declared,
    )
    return reference


@pytest.mark.parametrize("case", ["plain", "biased"])
@pytest.mark.parametrize("constexprs", [{}, {"KIND": "'relu'", "TYPE": tl.float16}], ids=["defaults", "given"])
def test_constexprs_of_triton_and_tensors_that_are_none(case: str, constexprs: dict):
    op = biased(constexprs=constexprs)
    arguments = op.case(case).arguments()
    wide = 2e-3 if constexprs else 1e-6
    torch.testing.assert_close(op(**arguments, variant="biased_kernel"), op(**arguments), rtol=wide, atol=wide)


def test_a_file_leaves_out_what_the_kernel_has_for_a_default(tmp_path: Path):
    module = exported(biased(), tmp_path)
    text = Path(module.__file__).read_text()
    assert "(out, x, bias, n, BLOCK=BLOCK, num_warps=4, num_stages=3)" in text
    torch.library.opcheck(module.biased, (torch.randn(5),), test_utils=("test_schema", "test_faketensor"))


SCALE = """extern "C" __global__ void scale(float *out, const float *x, const float *more, float s, bool minus) {
    float value = x[threadIdx.x] * s + (more ? more[threadIdx.x] : 0.f);
    out[threadIdx.x] = minus ? -value : value;
}"""


def test_a_files_op_may_be_called_without_what_has_defaults(tmp_path: Path):
    @wb.op(name="scaled")
    def reference(x, more=None, *, s: float = 2, minus: bool = False):
        value = x * s + (0 if more is None else more)
        return -value if minus else value

    reference.case("all", x=wb.randn(64), more=wb.randn(64), s=0.5, minus=True)
    reference.case("none", x=wb.randn(64), more=None, s=3.0, minus=False)
    reference.cuda(SCALE, grid=1, block="x.numel()", args=("out", "x", "more", "s", "minus"))
    for case in reference.cases.values():
        found = reference(**case.arguments(), variant="scale")
        torch.testing.assert_close(found, reference(**case.arguments()))
    op = exported(reference, tmp_path).scaled
    for given in ((torch.ones(4),), (torch.ones(4), torch.ones(4)), (torch.ones(4), None, 3.0)):
        torch.library.opcheck(op, given, test_utils=("test_schema", "test_faketensor"))
        assert torch.equal(op(*given), reference(*given[:2], **dict(zip("s", given[2:], strict=False))))
    text = (tmp_path / "scaled_exported.py").read_text()
    assert "(scaled(*given), reference(exact[0], exact[1], s=exact[2], minus=exact[3]))" in text


def test_a_file_draws_what_the_cases_draw(tmp_path: Path):
    import random

    @wb.op(name="summed")
    def reference(x, y, z, even):
        return x + y + z + even

    reference.case(
        "drawn",
        x=lambda: torch.rand(16),
        y=lambda n: torch.from_numpy(np.random.rand(n)).float(),
        z=lambda generator: torch.rand(16, generator=generator) * random.random(),
        even=lambda: torch.arange(16) * 2.0,
        n=16,
    )
    reference.cuda(
        'extern "C" __global__ void sum(float *out, const float *x, const float *y, const float *z, const float *even)'
        "{ int i = threadIdx.x; out[i] = x[i] + y[i] + z[i] + even[i]; }",
        grid=1,
        block="x.numel()",
    )
    module = exported(reference, tmp_path)
    ((_, given),) = module.cases()
    for one, same in zip(given, reference.case("drawn").arguments().values(), strict=True):
        assert torch.equal(one, same)
    text = Path(module.__file__).read_text()
    assert [text.count(f"    {one}") for one in ("torch.manual_seed", "np.random.seed", "random.seed")] == [1, 1, 1]


TURN = """extern "C" __global__ void turn(float2 *out, const float2 *x, const float2 *by, int cols) {
    float2 a = x[threadIdx.x], b = by[threadIdx.x % cols];
    out[threadIdx.x] = make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x + WRONG);
}"""


def test_complex_numbers(tmp_path: Path, fresh_home: Path):
    @wb.op(name="turned")
    def reference(x, by):
        return x * by

    reference.case("small", x=wb.randn(8, 4, dtype="complex64"), by=wb.randn(4, dtype="complex64", std=2.0))
    args = ("out", "x", "by", "x.shape[1]")
    reference.cuda(TURN, tune={"WRONG": (0, 1)}, grid=1, block="x.numel()", args=args)
    drawn = reference.case("small").arguments()["x"]
    assert drawn.real.std() > 0.5
    assert drawn.imag.std() > 0.5
    run = wb.tune(reference, device="sim", record=False)
    assert {trial.config["WRONG"]: trial.outcome for trial in run.trials} == {0: "ok", 1: "wrong_result"}
    assert "32 of 64 elements are wrong" in str(run), "the imaginary parts"
    module = exported(reference, tmp_path)
    ((_, given),) = module.cases()
    assert torch.equal(given[0], drawn)
    right = module.reference(*map(module.in_double, given))
    assert module.difference(module.turned(*given), right) == ""
    assert "Tensor-likes are not close" in module.difference(module.turned(*given) + 0.01j, right)


TWICE = """#include <cuda_fp16.h>
template <typename T, int VEC = 1, bool ODD = false> __global__ void twice(T *out, const T *x, int n) {
    for (int i = threadIdx.x * VEC; i < n; i += THREADS * VEC)
        for (int j = i; j < i + VEC && j < n; ++j) out[j] = T(2.f * float(x[j]));
}"""


def test_a_tunable_that_a_template_has_for_a_parameter_is_no_macro(tmp_path: Path):
    @wb.op(name="doubled_twice")
    def reference(x):
        return x * 2

    reference.case("half", x=wb.randn(70, dtype="float16"))
    variant = reference.cuda(
        TWICE,
        kernel="twice<ctype(x), VEC, VEC == 2>",
        tune={"THREADS": (32, 64), "VEC": (1, 2)},
        grid=1,
        block="THREADS",
        args=("out", "x", "x.numel()"),
    )
    problem = reference.quick_case.problem()
    assert variant.macros({"THREADS": 32, "VEC": 2}, problem) == {"THREADS": 32}
    arguments = reference.quick_case.arguments()
    for config in variant.configurations(problem):
        assert torch.equal(reference(**arguments, variant="twice", config=config), reference(**arguments))
    text = Path(exported(reference, tmp_path).__file__).read_text()
    assert '{"THREADS": config["THREADS"]}' in text
    assert "torch.float16" not in text.partition("def launch(")[2].partition("def ")[0], "the template is made for it"
    with pytest.raises(
        ArgumentError, match="argument 0 'out': got float16, the type that the reference doubled_twice returns"
    ):
        reference.cuda(
            TWICE.replace("VEC", "STEP"),
            kernel="twice<float, 1>",
            tune={"THREADS": (32,)},
            grid=1,
            block="THREADS",
            args=("out", "x", "x.numel()"),
        )


def copied(size: Any = 8, **declared: Any) -> Any:
    @wb.op(name="copied_again")
    def reference(x):
        return x.clone()

    reference.case("one", x=wb.randn(size), n=10)
    text = 'extern "C" __global__ void copy(float *out, const float *x, int n) { out[threadIdx.x] = x[threadIdx.x]; }'
    reference.cuda(text, **{"grid": 1, "block": 32, "args": ("out", "x", "x.numel()")} | declared)
    return reference


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: copied("n / 2"), r"randn\(\) shape\[0\]: got 5.0 of 'n / 2'; allowed: a whole number, 0 or more"),
        (lambda: copied("n - 20"), r"randn\(\) shape\[0\]: got -10 of 'n - 20'"),
        (lambda: copied("m"), r"randn\(\) shape\[0\]: got 'm', which names 'm'; allowed: n"),
        (lambda: copied(shared_bytes="x.numel() / 4"), "shared_bytes: got 2.0 of 'x.numel"),
        (lambda: copied(shared_bytes="'many'"), "shared_bytes: got 'many'; allowed: a whole number"),
        (lambda: copied(args=("out", "x", "'many'")), r"args\['n'\]: got 'many'; allowed: a tensor's name or a number"),
    ],
)
def test_what_is_no_whole_number_is_told(declare: Callable[[], Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        declare()


def test_a_reference_whose_arguments_have_no_names():
    def reference(x, /):
        return x

    with pytest.raises(
        ArgumentError, match=r"reference reference: got 'x', which no caller may name; .*Leave the / out"
    ):
        wb.op(reference, name="nameless")


TYPED = r"""
#include <cuda_fp16.h>
DECLARED
extern "C" __global__ void twice(TYPE *out, const TYPE *x, TYPE two) { out[threadIdx.x] = x[threadIdx.x] * two; }
"""


@pytest.mark.parametrize(
    ("declared", "macros", "right", "wrong"),
    [
        ("#define TYPE float", {}, "float32", "int32"),
        ("typedef int TYPE;", {}, "int32", "float32"),
        ("using TYPE = __half;", {}, "float16", "bfloat16"),
        ("template <typename T> using same = T;\ntypedef same<REAL> TYPE;", {"REAL": "float"}, "float32", "int32"),
        ("#if WIDE\ntypedef double TYPE;\n#else\ntypedef __half TYPE;\n#endif", {"WIDE": 0}, "float16", "float64"),
    ],
    ids=["macro", "typedef", "using", "alias", "condition"],
)
def test_types_behind_names(declared: str, macros: dict, right: str, wrong: str, tmp_path: Path):
    """The exported file, too: a launch would read other numbers than the reference."""

    @wb.op(name="twice")
    def twice(x):
        return 2 * x

    twice.case("small", x=wb.randint(0, 9, 32, dtype=right))
    arguments = ("out", "x", 2.0 if "float" in right else 2)
    variant = twice.cuda(TYPED.replace("DECLARED", declared), macros=macros, grid=1, block=32, args=arguments)
    x = twice.quick_case.arguments()["x"]
    assert torch.equal(twice(x, variant="twice"), 2 * x)
    with pytest.raises(ArgumentError, match=rf"twice\(\): argument . '\w+': got an array of {wrong}; allowed: {right}"):
        twice(x.to(getattr(torch, wrong)), variant="twice")
    with pytest.raises(TypeError, match=f"x is torch.{wrong}; the kernel reads torch.{right}"):
        exported(twice, tmp_path).launch({}, x.to(getattr(torch, wrong)), x)
    assert variant.name == "twice"


def test_an_exported_file_has_what_nvcc_has_without_an_include(tmp_path: Path):
    """NVRTC has not, with which it compiles its source."""

    @wb.op(name="rotated")
    def rotated(x):
        return torch.sqrt(x) * torch.pi

    source = r"""
extern "C" __global__ void rotated(float *out, const float *x, uint32_t n) {
    uint32_t i = threadIdx.x;
    if (i < n) out[i] = std::sqrt(x[i]) * M_PI;
}
"""
    rotated.case("small", x=wb.rand(32))
    rotated.cuda(source, grid=1, block=32, args=("out", "x", "x.numel()"))
    x = rotated.quick_case.arguments()["x"]
    torch.testing.assert_close(rotated(x, variant="rotated"), torch.sqrt(x) * torch.pi)
    module = exported(rotated, tmp_path)
    assert "typedef unsigned int uint32_t;\n" in module.SOURCE
    assert {"cmath", "math.h", "mixed_pow.h"} <= set(module.HEADERS)
    assert module.SOURCE.endswith(source.lstrip("\n"))
