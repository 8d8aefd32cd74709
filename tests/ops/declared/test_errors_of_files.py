"""Errors that an op's file raises: its line and the error itself, once."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench.errors import ArgumentError, UserFileError
from workbench.ops.files import load_op

START = "import workbench as wb\n\n@wb.op\ndef rows(x):\n    return x * 2\n\n"
CASE = 'rows.case("small", x=wb.randn(4, 64))\n'

FILES = {
    "a name that is not there": (START + "nonsense()\n", 7, "NameError: name 'nonsense' is not defined", "nonsense()"),
    "in a function": (
        START + "def helper():\n    return 1 / 0\nhelper()\n", 8, "ZeroDivisionError: division by zero", "return 1 / 0",
    ),
    "syntax": (START + "x = (1,\n", 7, "SyntaxError: '(' was never closed", "x = (1,"),
    "the workbench's own": (START + 'rows.case("small", y=3)\n', 7, "case 'small': got nothing for x", "rows.case("),
    "leaving": (START + "raise SystemExit(0)\n", 7, "SystemExit: 0", "raise SystemExit(0)"),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in FILES])
def test_the_error_has_the_users_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [])
    text, line, message, source = FILES[name]
    file = tmp_path / f"faulty_{len(name)}.py"
    file.write_text(text)
    with pytest.raises(UserFileError) as caught:
        load_op(f"{file}:rows")
    head, told = str(caught.value).splitlines()
    assert head.startswith(f"{file.name}:{line}: {message}")
    assert told.strip().startswith(source)


KERNEL = """extern "C" __global__ void rows(float *out, const float *x) {
    out[blockIdx.x * 64 + threadIdx.x] = 2 * x[blockIdx.x * 64 + threadIdx.x];
}"""


def declared(reference) -> None:
    op = wb.op(reference, name="typed_rows")
    op.case("small", x=wb.randn(4, 64))
    op.cuda(KERNEL, grid=lambda x: x.shape[0], block=64, args=("out", "x"))


def test_an_output_of_another_type_is_the_references():
    declared(lambda x: 2 * x)
    with pytest.raises(ArgumentError, match=r"'out': got float64, the type that the reference typed_rows returns"):
        declared(lambda x: (2 * x).double())


def test_an_argument_of_another_type_is_not():
    op = wb.op(lambda x: (2 * x).float(), name="typed_rows")
    op.case("small", x=wb.randn(4, 64, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"'x': got an array of float64; allowed: float32 .*Convert it"):
        op.cuda(KERNEL, grid=lambda x: x.shape[0], block=64, args=("out", "x"))
