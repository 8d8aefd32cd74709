"""The kind of a file of machine code, read without tools."""

from __future__ import annotations

import subprocess
import sys

import pytest

from workbench.driver.elf import is_elf, read_elf
from workbench.driver.library_files import library_path
from workbench.errors import ArgumentError


def test_elf_tells_symbols_and_kind(tmp_path):
    source, library, program = tmp_path / "code.c", tmp_path / "code.so", tmp_path / "code"
    source.write_text(
        "void __cudaRegisterFatBinary(void);\nint main(void) { __cudaRegisterFatBinary(); return 0; }\n"
        '__attribute__((section(".nv_fatbin"))) const char code[8] = "code";\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    found = read_elf(library)
    assert (found.executable, found.has_device_code, found.has_static_runtime) == (False, True, False)
    assert "main" in found.defined
    assert "__cudaRegisterFatBinary" in found.asked - found.defined
    source.write_text(
        source.read_text().replace("void __cudaRegisterFatBinary(void);", "void __cudaRegisterFatBinary(void) {}")
    )
    subprocess.run(["gcc", "-o", program, source], check=True)
    found = read_elf(program)
    assert (found.executable, found.has_static_runtime) == (True, True)
    assert any(name.startswith("libc.so") for name in found.needed)
    subprocess.run(["gcc", "-no-pie", "-o", program, source], check=True)
    assert read_elf(program).executable
    runtime = read_elf(library_path().with_name("libcudart.so.13"))
    assert "libcuda.so.1" in runtime.needed
    assert "cudaMalloc" in runtime.defined


def test_what_is_no_elf_of_this_machine(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"#!/bin/sh\n")
    assert not is_elf(path)
    assert not is_elf(tmp_path / "absent")
    whole = library_path().read_bytes()
    path.write_bytes(whole[:18] + b"\x02\x00" + whole[20:])
    assert is_elf(path)
    with pytest.raises(ArgumentError, match="machine 2"):
        read_elf(path)
    path.write_bytes(whole[:100])
    with pytest.raises(ArgumentError, match="damaged"):
        read_elf(path)
    assert is_elf(type(path)(sys.executable).resolve())
