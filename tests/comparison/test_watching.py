"""`workbench watch`: a verdict for each version of an op's files that is saved."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from workbench.comparison.watching import verdicts
from workbench.errors import ArgumentError

OP = """
import workbench as wb
from scale import FACTOR

@wb.op
def reversed_rows(x):
    return x.flip(1) * FACTOR

reversed_rows.case("small", x=wb.randn(2, 64))
reversed_rows.cuda("reversed_rows.cu", grid="rows", block=64, sizes=lambda x: {"rows": x.shape[0]})
"""

KERNEL = """
extern "C" __global__ void reversed_rows(float *out, const float *x, int rows) {
    __shared__ float row[64];
    row[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = 2 * row[63 - threadIdx.x];
}
"""


def test_each_save_gets_a_verdict_and_ends_the_work_on_an_older_one(tmp_path: Path) -> None:
    kernel, factor, file = (tmp_path / name for name in ("reversed_rows.cu", "scale.py", "reversed_rows.py"))
    kernel.write_text(KERNEL)
    factor.write_text("FACTOR = 2")
    file.write_text(OP)
    found = verdicts(f"{file}:reversed_rows")
    first = next(found)
    assert first.ok
    assert {kernel, factor, file} <= {*first.files}

    kernel.write_text(KERNEL.replace("__syncthreads();", ""))
    racy = next(found)
    assert not racy.ok
    assert any("shared race" in line and "reversed_rows.cu:4" in line for line in racy.lines())

    kernel.write_text(KERNEL.replace("63 -", "63 -;"))
    assert any("COMPILE ERROR" in line and "reversed_rows.cu(6)" in line for line in next(found).lines())

    kernel.write_text(KERNEL)
    factor.write_text("FACTOR = 3")
    assert any("WRONG RESULT" in line for line in next(found).lines())

    factor.write_text("import os; os.abort()")
    assert "SIGABRT" in next(found).error

    file.write_text(OP.replace("FACTOR\n\n", "FACTOR\n1 / 0\n", 1))
    factor.write_text("FACTOR = 2")
    assert "reversed_rows.py:4: ZeroDivisionError" in next(found).error

    file.write_text(OP)
    last = next(found)
    assert last.ok
    assert last.comparison is not None
    assert last.comparison["reversed_rows"].config == {}

    started = tmp_path / "started"
    saving = threading.Thread(target=lambda: (_wait_for(started), file.write_text(OP)))
    saving.start()
    file.write_text(f"open({str(started)!r}, 'w')\nwhile True:\n    pass\n")
    assert next(found).ok, "the save that came while the older version ran in circles"
    saving.join()


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_an_op_of_a_package_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"FILE\.py:NAME"):
        verdicts("paged_attention")
