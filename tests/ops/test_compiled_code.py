"""Kernels that were compiled ahead of a run: used once, and never after a file of the variant has changed."""

from __future__ import annotations

import os

from workbench.ops import compiled_code
from workbench.ops.compiled_code import CompiledCode, Plan


class Counted:
    """A variant in one file, which counts its compilations."""

    def __init__(self, path):
        self.files, self.compiled = (path,), 0

    def check(self, config, problem):
        pass

    def code_key(self, config, problem):
        return tuple(config.items())

    def kernels(self, config, problem, arch, *, machine_code):
        self.compiled += 1
        return (f"kernel {self.compiled}",)

    def plan(self, config, problem, kernels=None):
        return Plan(kernels, (), ())


def test_kernels_that_were_kept_do_not_outlive_their_source(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_code, "_SECONDS_UNSEEN", -1.0)
    path = tmp_path / "kernel.cu"
    path.write_text("first")
    code, variant, arguments = CompiledCode(), Counted(path), ({"N": 1}, "problem", "sm_80")
    code.keep(*arguments, ("ahead",))
    assert code.of(variant, *arguments, False).kernels == ("ahead",)
    assert code.of(variant, *arguments, False).kernels == ("ahead",)
    assert variant.compiled == 0
    path.write_text("second")
    os.utime(path, (1, 1))
    assert code.of(variant, *arguments, False).kernels == ("kernel 1",)
