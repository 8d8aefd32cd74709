"""Instructions with a modifier too few, too many or unknown: accepted, or refused by name."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from ptx_support import module

from workbench import ptx
from workbench.errors import UnsupportedInstructionError, WorkbenchError
from workbench.ptx.decode import FAMILIES

_HERE = Path(__file__).parent
_STATEMENT = re.compile(r"\b([a-z][a-z0-9_]*(?:\.[a-zA-Z0-9_]+(?:::[a-z0-9_]+)*)+)(\s+[^;{}\n\"']+)?;")


def spelled() -> list[tuple[str, str]]:
    """Opcode and operands of each instruction that the tests spell, once for each opcode."""
    found = {}
    for path in sorted(_HERE.glob("*.py")):
        for opcode, operands in _STATEMENT.findall(path.read_text()):
            if opcode.partition(".")[0] in FAMILIES:
                found.setdefault(opcode, operands)
    return sorted(found.items())


def damaged(opcode: str) -> list[str]:
    parts = opcode.split(".")
    texts = []
    for at in range(1, len(parts)):
        for instead in ([], ["foo"], [parts[at], parts[at]]):
            texts.append(".".join([*parts[:at], *instead, *parts[at + 1 :]]))
    return texts


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(16))
def test_a_damaged_instruction_is_accepted_or_refused_by_name(part):
    statements = spelled()
    assert len(statements) > 100
    for opcode, operands in statements[part::16]:
        for text in damaged(opcode):
            code = module("k", "", f"{text}{operands};").replace("sm_80", "sm_100a").replace("8.0", "8.7")
            with contextlib.suppress(WorkbenchError):
                ptx.Program(code)["k"]


@pytest.mark.parametrize("kind", ["", ".kind::foo", ".kind::", ".kind::f16.kind::tf32"])
def test_a_product_without_a_kind_of_its_own_is_refused_by_name(kind):
    text = f"tcgen05.mma.cta_group::1{kind} [%r1], %d1, %d2, 5, %p1;"
    with pytest.raises(UnsupportedInstructionError, match=r"tcgen05\.mma.*kind.*f16, tf32"):
        ptx.Program(module("k", "", text).replace("sm_80", "sm_100a"))["k"]
