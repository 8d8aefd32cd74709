"""The package as users get it: what an import costs, and a wheel that works outside the checkout."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from fenced import block

CHECKOUT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path, seconds: int = 600, **environment: str) -> str:
    """Run a command outside the checkout and return what it printed; fails with the output if it does."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_import_workbench_loads_no_heavy_package(tmp_path):
    code = (
        "import sys, workbench; dir(workbench); workbench.WorkbenchError\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'triton', 'pycuda', 'numpy'}))"
    )
    assert run(sys.executable, "-c", code, cwd=tmp_path).strip() == "[]"


def test_containers_install_what_the_readme_does():
    if not (CHECKOUT / "README.md").is_file():
        pytest.skip("not running from a checkout")
    command = re.search(
        r"^(python -m pip install .*\[lab,test\].*?) && pytest$", (CHECKOUT / "README.md").read_text(), re.M
    )[1]
    assert f"RUN {command}\n" in (CHECKOUT / "Dockerfile").read_text()
    container = json.loads((CHECKOUT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"].replace("'", '"') == command
    folder = (CHECKOUT / ".devcontainer" / container["build"]["dockerfile"]).resolve()
    assert folder == CHECKOUT / "Dockerfile"


def test_every_public_name_loads():
    import workbench

    for name in workbench.__all__:
        assert getattr(workbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = workbench.nonsense


VERSIONS = {
    "CITATION.cff": r"^version: (.+)$",
    "CHANGELOG.md": r"\A# Changelog\n\n## (\S+) \(\d{4}-\d\d-\d\d\)$",
    "workbench/ui/labextension/package.json": r'^  "version": "(.+)",$',
}


@pytest.mark.parametrize("file", VERSIONS)
def test_files_name_the_version_of_the_package(file):
    import workbench

    if not (CHECKOUT / file).is_file():
        pytest.skip("not running from a checkout")
    assert re.findall(VERSIONS[file], (CHECKOUT / file).read_text(), re.M) == [workbench.__version__]


def test_a_build_takes_its_version_from_the_package(monkeypatch):
    import workbench

    if not (CHECKOUT / "pyproject.toml").is_file():
        pytest.skip("not running from a checkout")
    monkeypatch.chdir(CHECKOUT)
    project = tomllib.loads(Path("pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert "version" not in project["project"]
    settings = project["tool"]["scikit-build"]["metadata"]["version"]
    provider = importlib.import_module(settings.pop("provider"))
    assert provider.dynamic_metadata("version", settings) == workbench.__version__


def test_the_citation_and_the_changelog_name_the_same_day():
    if not (CHECKOUT / "CITATION.cff").is_file():
        pytest.skip("not running from a checkout")
    day = re.search(r"^date-released: (\S+)$", (CHECKOUT / "CITATION.cff").read_text(), re.M)[1]
    assert re.search(r"^## \S+ \((\S+)\)$", (CHECKOUT / "CHANGELOG.md").read_text(), re.M)[1] == day


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The Python of an environment with the wheel that an sdist gives; its dependencies come from this environment."""
    if not (CHECKOUT / "pyproject.toml").is_file():
        pytest.skip("not running from a checkout")
    folder = tmp_path_factory.mktemp("installed")
    # With the CMake and Ninja that the installation found: others would compile everything anew.
    isolation = ["--no-isolation"] if shutil.which("cmake") and shutil.which("ninja") else []
    # Both cores of the machine, and the libraries: seven minutes of two processors, more of processors that are busy.
    build = (sys.executable, "-m", "build", *isolation, "--outdir", folder / "dist", CHECKOUT)
    run(*build, cwd=folder, seconds=1800)
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    assert (site / "workbench" / "py.typed").is_file()
    version = run(python, "-c", "import workbench; print(workbench.__version__)", cwd=folder).strip()
    assert wheel.name.startswith(f"kernel_workbench-{version}-")
    assert sdist.name == f"kernel_workbench-{version}.tar.gz"
    # Path lines make packages importable without running their own .pth files, an editable install's among them.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(folders) + "\n")
    return python


@pytest.mark.long
def test_a_wheel_runs_a_cuda_variant_outside_the_checkout_on_both_cores(installed, tmp_path):
    told = [
        run(
            installed, "-P", CHECKOUT / "tests" / "wheel_program.py",
            cwd=tmp_path, WORKBENCH_HOME=str(tmp_path / "home"), WORKBENCH_PTX_CORE=core,
        ).split()
        for core in ("", "baseline")
    ]  # fmt: skip
    assert [line[0] for line in told] == ["True", "True"]
    assert told[0][1] == told[1][1], "both cores give the same bits"
    assert told[1][2] == "baseline"


@pytest.mark.long
def test_the_readmes_example_and_triton_need_no_compiler(installed, tmp_path):
    """Only the environment's own programs are on the path, so that nothing finds g++, nvcc or another Python."""
    readme = (CHECKOUT / "README.md").read_text()
    (tmp_path / "transpose.cu").write_text(block(readme, "cpp", "transpose"))
    (tmp_path / "transpose.py").write_text(block(readme, "python", "@wb.op"))
    alone = {"PATH": str(installed.parent), "WORKBENCH_HOME": str(tmp_path / "home"), "CC": "", "CXX": ""}
    program = installed.with_name("workbench")
    assert "2 of 2 passed" in run(program, "check", "transpose.py:transpose", cwd=tmp_path, **alone)
    assert "bank conflicts" in run(program, "trace", "transpose.py:transpose", cwd=tmp_path, **alone)
    assert "winner: " in run(program, "tune", "transpose.py:transpose", cwd=tmp_path, **alone)
    run(program, "export", "transpose.py:transpose", "tuned.py", cwd=tmp_path, **alone)
    assert "def transpose" in (tmp_path / "tuned.py").read_text()
    names = ("--variant", "triton_online_softmax", "--variant", "cuda_thread_group")
    assert "yes, error" in run(program, "compare", "paged_attention", *names, cwd=tmp_path, **alone)
