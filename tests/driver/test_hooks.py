"""The structs between the simulated driver's library and Python: the header and ctypes say the same."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from workbench.driver import hooks
from workbench.driver.order import HookHostAccess, HookSide, HookUnordered
from workbench.driver.refusals import HookRefusal

_HEADER = Path(hooks.__file__).with_name("library") / "hooks.hpp"
_TYPES = {"u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "s64": ctypes.c_int64, "double": ctypes.c_double}
_TYPES |= {"HookSide": HookSide}
_POINTERS = {"const char*": ctypes.c_char_p, "const u32*": ctypes.POINTER(ctypes.c_uint32)}
_POINTERS |= {"const int*": ctypes.POINTER(ctypes.c_int)}
STRUCTS = (
    hooks.HookCall, hooks.HookDevice, hooks.HookFunction, HookHostAccess, hooks.HookLaunch, HookRefusal, HookSide,
    hooks.HookTensorMap, HookUnordered,
)  # fmt: skip


def body_of(name: str) -> str:
    text = re.sub(r"//[^\n]*", "", _HEADER.read_text())
    found = re.search(rf"struct {name} {{(.*?)\n}};", text, re.S)
    assert found, f"no struct {name} in {_HEADER.name}"
    return found[1]


def members_of(name: str) -> list[tuple[str, object]]:
    """(name, ctypes type) of each member; pointers that Python only passes on are void pointers."""
    members = []
    for kind, names in re.findall(r"((?:const )?\w+\*?) ([^;]+);", body_of(name)):
        for one, count in re.findall(r"(\w+)(?:\[(\d+)\])?", names):
            plain = _TYPES[kind] if kind in _TYPES else _POINTERS.get(kind, ctypes.c_void_p)
            members.append((one, plain * int(count) if count else plain))
    return members


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_a_struct_is_laid_out_as_the_header_says(struct: type[ctypes.Structure]) -> None:
    assert list(struct._fields_) == members_of(struct.__name__)


def test_a_hook_takes_what_the_header_passes() -> None:
    declared = re.findall(r"void \(\*(\w+)\)\((.*?)\);", body_of("Hooks"), re.S)
    assert [name for name, _ in declared] == [name for name, _ in hooks.Hooks._fields_]
    for (name, parameters), (_, prototype) in zip(declared, hooks.Hooks._fields_, strict=True):
        count = len(re.sub(r"\([^)]*\)\([^)]*\)", "", parameters).split(",")) if parameters else 0
        assert len(prototype._argtypes_) == count, name
