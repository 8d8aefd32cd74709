"""``workbench setup cupy``: CuPy's wheel, with the modules rebuilt that carry NVIDIA's static CUDA runtime.

That runtime works with NVIDIA's driver alone. The modules are compiled from CuPy's source archive of the same version
and linked to ``libcudart.so.13`` by its name: the simulated driver's own runtime serves them in a simulated process,
NVIDIA's (``nvidia-cuda-runtime``) everywhere else. The wheel that holds them has a version of its own,
``14.2.0+workbench``, and is kept in the workbench's home, or in ``$WORKBENCH_WHEELS``.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.driver.cupy_client import LABEL, PACKAGE, installed
from workbench.driver.pip import kept_wheel, kept_wheels, pip, unpack_source
from workbench.driver.simulated import runtime_path
from workbench.errors import CompileError, MissingToolError
from workbench.files import replace_file
from workbench.toolchain import tools

VERSION = "14.2.0"
_OTHERS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-rocm-7-0")
_DIRECTIVES = (
    "binding=False", "c_api_binop_methods=True", "embedsignature=True", "freethreading_compatible=True",
    "warn.deprecated.IF=False",
)  # fmt: skip
_CONSTANTS = ("CUPY_USE_CUDA_PYTHON=False", "CUPY_CUDA_VERSION=13000", "CUPY_HIP_VERSION=0", "CUPY_CUFFT_STATIC=False")
_MACROS = ('-DCYTHON_EXTERN_C=extern "C"', "-D_FORCE_INLINES=1", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION")


@dataclass(frozen=True)
class ExtensionModule:
    """One module to rebuild, by its name in Python."""

    name: str

    @property
    def stem(self) -> str:
        """Its path in the source archive and in the wheel, without a suffix."""
        return self.name.replace(".", "/")


MODULES = (ExtensionModule("cupy_backends.cuda.api.runtime"),)


def install(say: Callable[[str], object] = print) -> str:
    """Build CuPy's wheel anew, unless one is kept, and install it into this environment; returns its version.

    A version of cupy-cuda13x that is installed already stays the one. The first build takes about a minute and needs a
    package index and g++. ``pip install --force-reinstall cupy-cuda13x`` undoes it. Raises MissingToolError, with the
    end of pip's log, where that fails or another CuPy is installed, CompileError where a module cannot be compiled.
    """
    with kept_wheels() as wheels:
        present = installed()
        if present is not None and present.endswith(LABEL):
            say(f"CuPy {present} is installed")
            return present
        _refuse_others()
        version = present or VERSION
        wheel = kept_wheel(wheels, f"{PACKAGE.replace('-', '_')}-{version}{LABEL}")
        if wheel is None:
            say(f"building CuPy {version} on its wheel, once: about a minute")
            began = time.monotonic()
            wheel = _build(version, wheels, say)
            say(f"built in {time.monotonic() - began:.0f} s, kept as {wheel}")
        say(f"installing {wheel.name}")
        _pip("install", str(wheel))
    return installed() or version


def _refuse_others() -> None:
    for name in _OTHERS:
        if any(importlib.metadata.distributions(name=name)):
            raise MissingToolError(
                f"{name} is installed, and its modules would mix with those of {PACKAGE}. Remove it first: "
                f"python -m pip uninstall {name}"
            )


def _build(version: str, wheels: Path, say: Callable[[str], object]) -> Path:
    with tempfile.TemporaryDirectory(prefix="workbench-cupy-") as name:
        folder = Path(name)
        say("downloading its wheel and its source")
        _pip("download", f"{PACKAGE}=={version}", "--no-deps", "--only-binary", ":all:", "--dest", name)
        stub = {"CUPY_INSTALL_USE_STUB": "1"}  # pip asks the source for its metadata, and that for a CUDA toolkit
        _pip("download", f"cupy=={version}", "--no-deps", "--no-binary", "cupy", "--dest", name, environment=stub)
        source = unpack_source(folder, "cupy", version)
        packages = folder / "packages"
        _pip("install", *_build_requirements(source), "wheel", "--target", str(packages))
        _pip("install", "nvidia-cuda-profiler-api==13.*", "--no-deps", "--target", str(packages))
        original = next(folder.glob(f"{PACKAGE.replace('-', '_')}-*.whl"))
        _run([sys.executable, "-m", "wheel", "unpack", original.name], folder, packages)
        content = folder / f"{PACKAGE.replace('-', '_')}-{version}"
        for module in MODULES:
            say(f"compiling {module.name}")
            _compile(module, source, packages, content)
        _relabel(content, version)
        _run([sys.executable, "-m", "wheel", "pack", content.name], folder, packages)
        built = next(folder.glob(f"*{LABEL}-*.whl"))
        replace_file(wheels / built.name, built.read_bytes())
        return wheels / built.name


def _build_requirements(source: Path) -> list[str]:
    """Return Cython, in the versions that this source asks for."""
    with open(source / "pyproject.toml", "rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    return [one for one in requires if one.lower().startswith("cython")]


def _compile(module: ExtensionModule, source: Path, packages: Path, content: Path) -> None:
    """Compile a module in the place of the wheel's own."""
    code = source / f"{module.stem}.cpp"
    cython = [sys.executable, "-m", "cython", "-3", "--cplus", "-X", ",".join(_DIRECTIVES), "-E", ",".join(_CONSTANTS)]
    _run([*cython, f"{module.stem}.pyx", "-o", str(code)], source, packages)
    folders = (
        tools.cuda_include(), *packages.glob("nvidia/*/include"), source, source / "cupy/_core/include",
        code.parent, sysconfig.get_path("include"),
    )  # fmt: skip
    target = content / f"{module.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # By a relative path: where the package of NVIDIA's runtime lies beside CuPy's.
    rpath = "$ORIGIN" + "/.." * module.name.count(".") + "/nvidia/cu13/lib"
    options = ["-O1", "-g0", "-w", "-fPIC", "-shared", *_MACROS, *(f"-I{folder}" for folder in folders)]
    libraries = [str(runtime_path()), f"-Wl,-rpath,{rpath}"]
    _run(["g++", *options, str(code), "-o", str(target), *libraries], source, packages)


def _relabel(content: Path, version: str) -> None:
    """Give the unpacked wheel the version that tells it from the original."""
    information = next(content.glob("*.dist-info"))
    metadata = information / "METADATA"
    text = metadata.read_text()
    metadata.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}{LABEL}", text, count=1))
    information.rename(content / f"{PACKAGE.replace('-', '_')}-{version}{LABEL}.dist-info")


def _run(command: Sequence[str], folder: Path, packages: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(packages)}, capture_output=True, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise CompileError(f"{Path(command[0]).name} cannot build a module of CuPy:", done.stdout + done.stderr)


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    pip(*arguments, needs="CuPy needs a package index and a C++ compiler", environment=environment)
