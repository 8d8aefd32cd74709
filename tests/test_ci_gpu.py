"""``.ci/gpu``, the one command for a GPU machine, on the simulated GPU: the same steps, with little of everything.

The environment is that of a machine which has torch, triton and pytest and none of the notebook's packages: its
site-packages are a folder of links to this one's, without those. PyCUDA comes as a wheel, and so does the workbench,
with what is compiled already; among the long tests it is built.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from simulated_gpu.plugin import environment, missing

CHECKOUT = Path(__file__).resolve().parent.parent
ABSENT = re.compile(
    r"(?i)(ipython|ipykernel|ipywidgets|anywidget|jupyter|notebook|nbval|nbformat|nbclient|playwright|distributed|dask"
    r"|kernel_tuner|pycuda|pytools|workbench|kernel_workbench|_editable|__editable__|.*\\.pth$)"
)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The folder of a Python as such a machine has it."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not ABSENT.match(path.name):
            (packages / path.name).symlink_to(path)
    venv.create(tmp_path / "python", with_pip=False)
    own = next((tmp_path / "python" / "lib").glob("python*/site-packages"))
    (own / "machine.pth").write_text(f"{packages}\n")
    return tmp_path / "python" / "bin"


def pack(folder: Path) -> None:
    """Make a wheel of the checkout and of what is compiled for its editable installation."""
    installed = metadata.distribution("kernel-workbench")
    known = f"kernel_workbench-{installed.version}.dist-info"
    sources = {path.relative_to(CHECKOUT).as_posix(): path for path in (CHECKOUT / "workbench").rglob("*")}
    cuda = {f"workbench/{path.relative_to(CHECKOUT).as_posix()}": path for path in (CHECKOUT / "cuda_src").rglob("*")}
    built = {file.as_posix(): Path(file.locate()) for file in installed.files}
    files = sources | cuda | {name: path for name, path in built.items() if name.startswith(("workbench/", known))}
    write_wheel(installed, files, folder)


def pack_installed(package: str, folder: Path) -> None:
    """Make a wheel of an installed package, however it was installed."""
    installed = metadata.distribution(package)
    files = {file.as_posix(): Path(file.locate()) for file in installed.files or ()}
    write_wheel(installed, {name: path for name, path in files.items() if not name.startswith("..")}, folder)


def write_wheel(installed: metadata.Distribution, files: dict[str, Path], folder: Path) -> None:
    tag = re.search(r"^Tag: (\S+)$", installed.read_text("WHEEL") or "", re.MULTILINE)[1]
    stem = f"{installed.name.replace('-', '_')}-{installed.version}"
    left_out = ("/RECORD", "/direct_url.json", ".pyc")
    names = [name for name, path in files.items() if path.is_file() and not name.endswith(left_out)]
    with zipfile.ZipFile(folder / f"{stem}-{tag}.whl", "w") as wheel:
        for name in names:
            wheel.write(files[name], name)
        wheel.writestr(f"{stem}.dist-info/RECORD", "".join(f"{name},,\n" for name in names))


@pytest.mark.long  # a minute and a half; run it before a GPU is lent, or when the script changes
@pytest.mark.parametrize("built", [False, True], ids=["wheel", "build"])
def test_ci_gpu(python: Path, tmp_path: Path, built: bool):
    problem = missing()
    if problem is not None:
        assert not os.environ.get("WORKBENCH_REQUIRE_GPU_DOUBLE"), problem
        pytest.skip(problem)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    pack_installed("pycuda", wheels)
    if not built:
        pack(wheels)
    out = tmp_path / "out"
    settings = {"SIZE": "small", "OUT": str(out), "WHEELS": str(wheels), "LIMIT_SECONDS": "590", "PIP_NO_INDEX": "1"}
    settings["PATH"] = os.pathsep.join([str(python), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", str(CHECKOUT / ".ci" / "gpu")], env=environment() | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert {"attention.json", "logs.tar.gz", "tune.sqlite"} <= {path.name for path in out.iterdir()}
    with tarfile.open(out / "logs.tar.gz") as archive:
        names = {Path(name).stem for name in archive.getnames()}
    assert {"wheels", "doctor", "tests", "bench", "once", "counters", "tune"} <= names
    assert ("build" in names) is built
    assert "passed" in done.stdout
