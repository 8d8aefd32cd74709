"""What Python has from the core by name: every problem has words, every count a place in the report."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest

from workbench.ptx import LineFacts, products, tensor_loads
from workbench.ptx.findings import KINDS
from workbench.ptx.machine import FRAGMENT, OPCODES, core
from workbench.ptx.tensor_map import DRIVER_ELEMENTS, ELEMENTS, TensorMap


def test_every_problem_has_words_and_nothing_else_has() -> None:
    found_in_python = {products.TOUCHED, products.UNFENCED, tensor_loads.UNAWAITED}
    found_in_python |= {"replicas", "shuffled", "unwritten_choice", "confirmed_load"}
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
    "Bulk", "MapChange", "MapCopy", "Fragment", "Exchange", "Product", "GroupProduct", "Barrier", "Call",
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
    assert sorted(DRIVER_ELEMENTS) == sorted(ELEMENTS)


# What CuTe DSL 4.8.1's compiled host code writes for these maps, on its own: 16 words of 4 bytes, and nothing after.
_AT = 0x0123_4567_89AB_CD00
_HARDWARE = {
    "plain": (
        TensorMap("f16", 0x200_0000_0000, (128, 256), (256,), (64, 64)),
        (0, 0x200, 0x00040312, 0x10, 0, 0, 0, 0, 0x7F, 0xFF, 0, 0, 0, 0x3F000000, 0x3F),
    ),
    "a step for each dimension, and a swizzle of 128 bytes": (
        TensorMap("f16", 0x200_0000_0000, (128, 256, 4), (256, 65536), (64, 256, 10), (1, 4, 5), 128),
        (0, 0x200, 0x00046322, 0x10, 0x1000, 0, 0, 0, 0x7F, 0xFF, 3, 0, 0, 0x3F000118, 0x9FF),
    ),
    "large strides": (
        TensorMap(
            "tf32.ftz", _AT, (1 << 32, 8, 9, 10, 11), ((1 << 39) + 256, (1 << 40) - 256, (1 << 38) + 256, 1 << 37),
            (64, 2, 3, 4, 5),
        ),
        (0x89ABCD00, 0x1234567, 0x00050442, 0x10, 0xFFFFFFF0, 0x10, 0, 0x24F8, 0xFFFFFFFF, 7, 8, 9, 10, 0x3F000000,
         0x04030201),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _HARDWARE)
def test_a_tensor_map_has_the_form_of_the_hardware(name: str) -> None:
    tensor_map, words = _HARDWARE[name]
    assert struct.unpack("<32I", bytes(tensor_map)) == (*words, *[0] * (32 - len(words)))
