"""Types behind typedef, using, macros and enumerations, as kernels' parameters have them."""

from __future__ import annotations

import pytest

from workbench.base.demangle import parameter_types
from workbench.toolchain.c_types import ANYTHING, CType, c_type
from workbench.toolchain.source import declared_kernels
from workbench.toolchain.type_names import names_of_types

FLOATS, INTS = CType("float32", pointer=True), CType("int32", pointer=True)
CONSTANTS = CType("float32", pointer=True, constant=True)

FORMS = {
    "a macro": ("#define REAL float", "REAL *", FLOATS),
    "a macro of a macro": ("#define A B\n#define B float", "A *", FLOATS),
    "a macro that is a pointer": ("#define P float *", "const P", CONSTANTS),
    "a macro with parameters": ("#define P(T) T * __restrict__", "P(float)", FLOATS),
    "an empty macro": ("#define RESTRICT", "float * RESTRICT", FLOATS),
    "over two lines": ("#define REAL \\\n  float", "REAL *", FLOATS),
    "in a comment": ("// #define REAL int\n#define REAL float /* typedef int REAL; */", "REAL *", FLOATS),
    "a typedef": ("typedef float T;", "T *", FLOATS),
    "a typedef of a typedef": ("typedef float T; typedef T U;", "const U *", CONSTANTS),
    "a typedef of a pointer": ("typedef float *P;", "P", FLOATS),
    "a constant pointer": ("typedef float *P;", "const P", FLOATS),
    "a pointer to constants": ("typedef const float *P;", "P", CONSTANTS),
    "several at once": ("typedef unsigned int uint, *uints;", "uints", CType("uint32", pointer=True)),
    "of several words": ("typedef unsigned long long int word;", "volatile word *", CType("uint64", pointer=True)),
    "a half": ("typedef __half scalar;", "scalar", CType("float16")),
    "using": ("using T = float;", "T *", FLOATS),
    "using of the standard library": ("using word = std::uint32_t;", "word", CType("uint32")),
    "in a namespace": ("namespace a { using T = float; }", "a::T *", FLOATS),
    "an alias template": ("template <typename T> using P = T *;", "P<float>", FLOATS),
    "one of two": ("template <typename T, int N> using V = T;", "V<const float, 4> *", CONSTANTS),
    "an enumeration": ("enum Kind { A, B };", "Kind *", INTS),
    "of a type": ("enum class Kind : unsigned char { A };", "Kind *", CType("uint8", pointer=True)),
    "a typedef of one": ("typedef enum { A } Kind;", "Kind *", INTS),
    "a struct": ("struct Pair { float x; };", "const Pair *", CType(ANYTHING, pointer=True, constant=True)),
    "a typedef of a struct": ("typedef struct { float x; } Pair;", "Pair *", CType(ANYTHING, pointer=True)),
    "a typedef of its tag": ("typedef struct Pair Pair;", "Pair *", CType(ANYTHING, pointer=True)),
    "a struct by value": ("struct Pair { float x; };", "Pair", None),
    "a name that CUDA has": ("typedef double half;", "half *", CType("float64", pointer=True)),
    "a circle": ("#define A B\n#define B A", "A *", None),
    "of a header that is not there": ("#include <other.h>", "scalar_t *", None),
    "decltype": ("typedef decltype(f(0)) T;", "T *", None),
    "an array": ("typedef float row[4];", "row *", None),
    "a condition that holds": ("#define N 2\n#if N > 1 && defined(N)\ntypedef float T;\n#else\ntypedef int T;\n#endif",
                               "T *", FLOATS),
    "a condition that does not": ("#ifdef DOUBLES\n#define T double\n#else\n#define T float\n#endif", "T *", FLOATS),
    "the third branch": ("#if N == 1\n#define T int\n#elif N == 2\n#define T double\n#elif !N\n#define T float\n#endif",
                         "T *", FLOATS),
    "nobody knows": ("#if __CUDA_ARCH__ >= 900\n#define T double\n#else\n#define T float\n#endif", "T *", None),
    "the same in all branches": ("#if __CUDA_ARCH__ >= 900\ntypedef float T;\n#else\ntypedef float T;\n#endif", "T *",
                                 FLOATS),
    "nested, and dead": ("#if 0\n#if __CUDA_ARCH__\n#define T int\n#endif\n#endif\n#define T float", "T *", FLOATS),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_a_type_is(form: str):
    text, written, expected = FORMS[form]
    assert c_type(written, names_of_types([text], {})) == expected


@pytest.mark.parametrize(
    ("text", "macros", "expected"),
    [
        ("", {"REAL": "float"}, FLOATS),
        ("#ifndef REAL\n#define REAL int\n#endif", {"REAL": "float"}, FLOATS),
        ("#ifndef REAL\n#define REAL float\n#endif", {}, FLOATS),
        ("typedef T REAL;", {"T": "float"}, FLOATS),
        ("#if WIDE\nusing REAL = double;\n#else\nusing REAL = float;\n#endif", {"WIDE": 0}, FLOATS),
        ("#if BITS == 32\nusing REAL = float;\n#endif", {"BITS": 32}, FLOATS),
    ],
)
def test_macros_of_the_command_line(text: str, macros: dict, expected: CType):
    assert c_type("REAL *", names_of_types([text], macros)) == expected


def test_headers_come_before_the_source():
    header = "#ifndef H\n#define H\n#ifdef DOUBLES\ntypedef double T;\n#else\ntypedef float T;\n#endif\n#endif"
    assert c_type("T *", names_of_types([header, "typedef T U;"], {})) == FLOATS
    unsure = names_of_types([header, "#define DOUBLES\n#include H"], {})
    assert c_type("T *", unsure) is None, "the source may define it before the header"


def test_kernels_under_conditions():
    text = "#if WIDE\n__global__ void k(double *x) {}\n#else\n__global__ void k(float *x) {}\n#endif"
    assert declared_kernels(text, {"WIDE": 1})["k"].types == ("double *",)
    assert declared_kernels(text)["k"].types == ("float *",)
    assert declared_kernels(text, ["WIDE"])["k"].types == ("?",), "its value is not known"
    assert declared_kernels("__global__ void k(int *a);\n__global__ void k(int *a, int b) {}")["k"].types == ()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("_Z3addPfi", ("float*", "int")),
        ("_Z5scaleIfLi4EEvPT_fi1P", ("float*", "float", "int", "P")),
        ("_Z1kPKfP6__half", ("float const*", "__half*")),
        ("_Z1kv", ()),
        ("add", None),
        ("_Z1kPFvvE", None),
    ],
)
def test_types_in_names_of_cpp(name: str, types: tuple | None):
    assert parameter_types(name) == types
