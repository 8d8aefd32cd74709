"""Paths of a declaration start at the folder of the file that declares it, then at the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.errors import UserFileError
from workbench.ops.files import load_op

DECLARED = """
import workbench as wb

@wb.op
def {name}(x):
    return x * 2

{name}.case("small", x=wb.randn(64))
{name}.cuda("kernels/twice.cu", grid=1, block=64, include_dirs=["headers"])
"""
KERNEL = """
#include "factor.h"
extern "C" __global__ void twice(float *out, const float *x) { out[threadIdx.x] = FACTOR * x[threadIdx.x]; }
"""


def write_sources(folder: Path) -> None:
    (folder / "kernels").mkdir(parents=True)
    (folder / "headers").mkdir()
    (folder / "kernels/twice.cu").write_text(KERNEL)
    (folder / "headers/factor.h").write_text("#define FACTOR 2")


@pytest.mark.parametrize("beside", ["the file", "the working directory", "both", "neither"])
def test_a_relative_path_starts_at_the_declaring_file(beside: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    declaring, working = tmp_path / "declaring", tmp_path / "working"
    for folder, words in ((declaring, ("the file", "both")), (working, ("the working directory", "both"))):
        folder.mkdir()
        if beside in words:
            write_sources(folder)
    name = "doubled_" + beside.replace(" ", "_")
    (declaring / f"{name}.py").write_text(DECLARED.format(name=name))
    monkeypatch.chdir(working)
    if beside == "neither":
        with pytest.raises(UserFileError, match=rf"kernels/twice\.cu.*neither in {declaring} nor in {working}"):
            load_op(f"{declaring}/{name}.py:{name}")
        return
    variant = load_op(f"../declaring/{name}.py:{name}").variant("twice")
    expected = working if beside == "the working directory" else declaring
    assert variant.files == (expected / "kernels/twice.cu", expected / "headers/factor.h")
    assert variant.include_dirs == (expected / "headers",)


def test_a_candidate_named_in_a_terminal_starts_at_the_working_directory(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("declaring", "working"):
        write_sources(tmp_path / folder)
    (tmp_path / "declaring/doubled_candidate.py").write_text(DECLARED.format(name="doubled_candidate"))
    monkeypatch.chdir(tmp_path / "working")
    declared = load_op("../declaring/doubled_candidate.py:doubled_candidate").variant("twice")
    other = declared.with_source("kernels/twice.cu")
    assert other.source == tmp_path / "working/kernels/twice.cu"
    assert other.include_dirs == declared.include_dirs, "the headers stay those of the declaration"
