"""``workbench setup nvcc``: the toolkit's version by pip, once."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from workbench.driver.clients import nvcc_setup
from workbench.errors import MissingToolError
from workbench.toolchain import tools


def test_nvcc_of_the_installed_toolkit_is_asked_of_pip(monkeypatch, tmp_path):
    asked, folders = [], []
    monkeypatch.setattr(nvcc_setup.library_headers, "fetch", lambda say: say("headers"))
    monkeypatch.setattr(tools, "pip_folders", lambda: folders)
    monkeypatch.setattr(nvcc_setup, "pip", lambda *words, needs: asked.append(words))
    with pytest.raises(MissingToolError, match="does not contain the program nvcc"):
        nvcc_setup.install(str)
    assert asked == [("install", f"cuda-toolkit[nvcc]=={importlib.metadata.version('cuda-toolkit')}")]
    folders.append(tmp_path)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nvcc"
    program.write_text("#!/bin/sh\necho 'release 13.0, V13.0.88'\n")
    program.chmod(0o755)
    said = []
    assert nvcc_setup.install(said.append) == "13.0.88"
    assert said == [f"{program} is installed", "headers"]
    assert len(asked) == 1


def test_what_pip_says_is_in_the_error(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(MissingToolError, match=r"pip install failed\. nvcc needs a package index"):
        nvcc_setup.pip("install", "nothing", needs="nvcc needs a package index")
