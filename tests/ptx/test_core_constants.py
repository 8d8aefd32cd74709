"""What Python has from the core by name: every problem has words, every count a place in the report."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from workbench.ptx import LineFacts, products, tensor_loads
from workbench.ptx.findings import KINDS
from workbench.ptx.machine import FRAGMENT, OPCODES, core
from workbench.ptx.tensor_map import DRIVER_ELEMENTS, ELEMENTS, SWIZZLES, TENSOR_MAP_BYTES, TensorMap


def test_every_problem_has_words_and_nothing_else_has() -> None:
    found_in_python = {products.TOUCHED, products.UNFENCED, tensor_loads.UNAWAITED, "replicas", "shuffled"}
    assert set(KINDS) == {*core.Problem.__members__, *found_in_python}


def test_every_count_is_a_fact_of_a_line() -> None:
    names = {field.name for field in fields(LineFacts)}
    assert set(core.COUNTS["names"]) <= names
    assert core.COUNTS["itemsize"] == 8 * len(core.COUNTS["names"]), "a count of the core has no name"


def test_records_name_all_of_their_bytes() -> None:
    for layout in (core.ROW, core.REQUEST, core.SPAN, core.EVENT):
        assert sum(np.dtype(one).itemsize for one in layout["formats"]) == layout["itemsize"], layout["names"]


OPERANDS = [
    "Elementwise", "Comparison", "Unpacking", "Carrying", "Access", "Atomic", "AsyncCopy", "AsyncStore", "Mbarrier",
    "Bulk", "MapField", "MapCopy", "Fragment", "Exchange", "Product", "GroupProduct", "Barrier", "Call",
    "ParameterCopy", "SystemCall",
]  # fmt: skip


@pytest.mark.parametrize("kind", OPERANDS)
def test_operands_have_columns_of_their_own(kind: str) -> None:
    columns = list(vars(getattr(core, kind)).values())
    assert len(set(columns)) == len(columns)
    assert core.ROW["names"].index("operands") == min(columns)
    assert max(columns) < FRAGMENT


def test_opcodes_are_of_kinds_that_the_core_has() -> None:
    assert {opcode.kind for opcode in OPCODES.values()} <= set(core.Kind)


def test_the_driver_numbers_the_same_elements_in_another_order() -> None:
    assert sorted(DRIVER_ELEMENTS) == sorted(name for name, _ in ELEMENTS)


def test_a_tensor_map_is_laid_out_as_the_core_reads_it() -> None:
    sizes, strides, box, steps = (64, 48, 40), (512, 32768), (16, 8, 4), (1, 2, 1)
    content = bytes(TensorMap("f32", 4096, sizes, strides, box, steps, 64, "nan"))
    layout = np.dtype(core.TENSOR_MAP)
    assert len(content) == layout.itemsize == TENSOR_MAP_BYTES
    (row,) = np.frombuffer(content, layout)
    found = {name: row[name].tolist() for name in core.TENSOR_MAP["names"]}
    assert found == {
        "global_address": 4096,
        "global_stride": [*strides, 0, 0],
        "global_dim": [*sizes, 0, 0],
        "box_dim": [*box, 0, 0],
        "element_stride": [*steps, 0, 0],
        "rank": 2,
        "elemtype": [name for name, _ in ELEMENTS].index("f32"),
        "interleave_layout": 0,
        "swizzle_mode": SWIZZLES.index(64),
        "swizzle_atomicity": 0,
        "fill_mode": 1,
    }
