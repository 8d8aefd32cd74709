"""The real clients on the simulated driver, in an environment that is made for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import CLIENTS, PROGRAMS, page

import workbench.driver

PAGE = Path(workbench.driver.__file__).parent / "CLIENTS.md"


@pytest.fixture(scope="session")
def python(pycuda, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment with the clients, above the packages of this one."""
    folder = tmp_path_factory.mktemp("clients")
    venv.create(folder, with_pip=True)
    inner = folder / "bin" / "python"
    ask = [str(inner), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    own = [path for path in sys.path if path and Path(path).is_dir() and Path(path).name != "driver"]
    # With what their own .pth files bring, as an editable installation of the workbench does.
    (Path(packages) / "outer.pth").write_text(f"import site; list(map(site.addsitedir, {own!r}))\n")
    others = [client for client in CLIENTS.values() if not client.startswith(("kernel_tuner", "cupy"))]
    wanted = [client.replace(" ", "==") for client in others]
    wanted = [one.replace("numba-cuda", "numba-cuda[cu13]") for one in wanted]
    # NVIDIA's packages are looked for in the environment itself: they come again.
    install = [str(inner), "-m", "pip", "install", "--quiet", "--ignore-installed", *wanted]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    setup = [str(inner), "-m", "workbench.cli", "setup", "cupy"]
    done = subprocess.run(setup, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    yield inner
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.parametrize("program", CLIENTS)
def test_client(program: str, python: Path):
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_PATH", "LD_LIBRARY_PATH")}
    command = [str(python), str(PROGRAMS / f"{program}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_the_page_lists_them():
    assert PAGE.read_text() == page(), "run: python tests/driver/clients.py > workbench/driver/CLIENTS.md"
