"""What is read from a source's text: its kernels, their parameters, and readable names."""

from __future__ import annotations

import pytest

from workbench.base.demangle import demangle, normalised
from workbench.ptx.parse import parse
from workbench.toolchain.source import declared_kernels, template_parameters


@pytest.mark.parametrize(
    ("text", "name", "parameters", "template"),
    [
        ("__global__ void k() {}", "k", (), ()),
        ("__global__ void k(void) {}", "k", (), ()),
        ("__global__ void k(int *a, const float * __restrict__ b, int c[4]) {}", "k", ("a", "b", "c"), ()),
        ('extern "C" __global__ void __launch_bounds__(128, 2)\nk(float x) {}', "k", ("x",), ()),
        ("__global__ __launch_bounds__(max(32, N)) void k(float x) {}", "k", ("x",), ()),
        (
            "template <typename T, int N = 2>\n__global__ void k(T *a, std::array<int, 3> b) {}",
            "k",
            ("a", "b"),
            ("T", "N"),
        ),
        ("template <int N> __device__ int f() { return N; }\n__global__ void k(int a) {}", "k", ("a",), ()),
        (
            "/* __global__ void gone(int a) */ __global__ void k(int a /* , int b */) {} // __global__ void g()",
            "k",
            ("a",),
            (),
        ),
        (
            "template <class... T, typename, bool B = true> __global__ void k(float *a)",
            "k",
            ("a",),
            ("T", "", "B"),
        ),
        ("static __global__ void k(int, float b) {}", "k", (), ()),
        ("__global__ void k(const __grid_constant__ Pair pair) {}", "k", ("pair",), ()),
    ],
)
def test_declared_kernels(text: str, name: str, parameters: tuple, template: tuple):
    found = declared_kernels(text)
    assert list(found) == [name]
    assert (found[name].parameters, found[name].template) == (parameters, template)


def test_the_instance_of_a_template():
    found = declared_kernels("template <typename T, int N, bool B = true> __global__ void k(T *a) {}")["k"]
    assert found.instance("n::k<std::array<int, 3>, 4>") == {"T": "std::array<int, 3>", "N": "4"}
    assert found.instance("k") == {}
    text = (
        "template <int M> struct A {}; // template <int C>\n template <typename T, int = 2> __global__ void k(T *a) {}"
    )
    assert template_parameters(text) == {"M", "T", ""}


@pytest.mark.parametrize(
    ("macros", "parameters"),
    [((), ("a", "d", "z")), (("B",), ("a", "b", "z")), (("B", "C"), ("a", "b", "c", "z"))],
)
def test_parameters_under_a_condition(macros: tuple, parameters: tuple):
    text = "__global__ void k(int a,\n#ifdef B\nint b,\n#ifdef C\nint c,\n#endif\n#else\nint d,\n#endif\nint z) {}"
    assert declared_kernels(text, macros)["k"].parameters == parameters
    assert declared_kernels(f"# define B\n{text}", macros)["k"].parameters[1] == "b", "defined in the text"
    for condition in ("#if __CUDA_ARCH__ > 800", "#if B > 1"):  # B is defined, and its value is not known
        unsure = declared_kernels(f"#define D\n{text.replace('#ifdef B', condition)}", (*macros, "B"))
        assert unsure["k"].parameters == ()
    assert declared_kernels(text.replace("#ifdef B", "#if B > 1"), {"B": 2})["k"].parameters == ("a", "b", "z")


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("plain", "plain"),
        ("_Z3addPfi", "add"),
        ("_ZN2ns3addEPf", "ns::add"),
        ("_Z5scaleIfLi4EEvPT_fi1P", "scale<float, 4>"),
        ("_Z4pickI6__halfLb1EEvPT_", "pick<__half, true>"),
        ("_ZN12_GLOBAL__N_14thisEi", "{anonymous}::this"),
        ("_Znonsense!", "_Znonsense!"),
        ("_ZN4main12_3clocals_3e3addB2v2B6cw51cXE5ArrayIfLi1EE", "main::<locals>::add"),
    ],
)
def test_readable_names(mangled: str, readable: str):
    assert demangle(mangled) == readable


def test_spellings_of_one_expression_agree():
    assert normalised("scale< float,4 >") == normalised("&scale<float, (int)4>") == normalised("::scale<float, 4U>")
    assert normalised("scale<float, 4>") != normalised("scale<float, 40>")


def test_parameters_of_a_ptx_entry():
    ptx = """.version 9.0
.target sm_80
.visible .entry both(
	.param .u64 .ptr .global .align 16 both_param_0,
	.param .align 8 .b8 both_param_1[24],
	.param .f32 both_param_2
)
.maxntid 128
{ ret; }
.entry nothing() { ret; }
"""
    found = {name: entry.parameters for name, entry in parse(ptx).entries.items()}
    assert [(p.type, p.size, p.align) for p in found["both"]] == [("u64", 8, 8), ("b8", 24, 8), ("f32", 4, 4)]
    assert [p.pointer for p in found["both"]] == [True, False, False]
    assert found["nothing"] == ()
