"""The tests collect where only what the package itself needs is installed, as on a GPU machine without the extras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import durations
import pytest

ABSENT = {
    "lab": "IPython anywidget comm ipykernel ipywidgets jupyterlab matplotlib nbconvert nbformat pandas traitlets",
    "test": "build hypothesis jsonschema kernel_tuner mako nbval playwright pytools vulture xdist",
    "docs": "docutils furo myst_nb sphinx sphinx_click",
    "cuda, dask, hf and peers": "pynvml dask distributed transformers numba",
}

PROGRAM = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        absent = name.partition(".")[0] in sys.argv[1].split()
        return None if absent else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
import pytest

sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.long
def test_all_tests_collect_without_the_extras():
    """A module that needs one is skipped as a whole, and says what it needs; no error ends the run of the others."""
    options = [
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "--assert=plain",
        "-q",
        "-rs",
        "-m",
        "gpu",
        "--collect-only",
        "tests",
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, " ".join(ABSENT.values()), *options],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "test_paged_attention_gpu.py::" in done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert any("test_space.py" in line and "pip install" in line for line in skipped)
    assert all("pip install" in line for line in skipped), skipped


def test_modules_run_in_the_order_of_their_recorded_durations(tmp_path, monkeypatch):
    monkeypatch.setattr(durations, "pace", lambda: 1.0)
    recorded = tmp_path / "durations.json"
    recorded.write_text('{"tests/gone.py": 9}')
    recorder = durations.Recorder(recorded)
    for module, seconds in (("tests/a.py", 1.4), ("tests/b.py", 1.2), ("tests/b.py", 2.1), ("tests/c.py", 31.0)):
        recorder.pytest_runtest_logreport(SimpleNamespace(nodeid=f"{module}::test", duration=seconds))
    recorder.pytest_sessionfinish()
    assert list(durations.read(recorded).items()) == [("tests/c.py", 31), ("tests/gone.py", 9), ("tests/b.py", 3)]


def test_the_expected_seconds_are_those_of_the_modules_that_run(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    recorded = {"tests/a/b.py": 60, "tests/a/c.py": 30, "notebooks/d.ipynb": 9}
    expected = lambda *paths, workers: durations.expected(recorded, paths, tmp_path, workers)  # noqa: E731
    assert expected(Path("tests"), Path("notebooks"), workers=3) == 33
    assert expected(tmp_path / "tests" / "a", workers=1) == 60
    assert expected(tmp_path / "tests/a/c.py", Path("other"), workers=2) == 10


def test_the_recorded_modules_exist():
    root = Path(__file__).parents[1]
    assert durations.read()
    assert [module for module in durations.read() if not (root / module).exists()] == []
