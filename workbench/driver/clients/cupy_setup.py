"""``workbench setup cupy``: CuPy's wheel, with those modules rebuilt that contain NVIDIA's static CUDA runtime.

That runtime only works with NVIDIA's driver. The modules are compiled from CuPy's source archive of the same version
and linked to ``libcudart.so.13`` by its name: in a simulated process they use the simulated driver's runtime,
everywhere else NVIDIA's (``nvidia-cuda-runtime``). The rebuilt wheel has a version of its own, ``14.2.0+workbench``,
and is kept in the workbench's home, or in ``$WORKBENCH_WHEELS``.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workbench.base.files import replace_file
from workbench.driver.clients import nvcc_setup
from workbench.driver.clients.cupy_client import LABEL, PACKAGE, installed
from workbench.driver.clients.pip import kept_wheel, kept_wheels, pip, unpack_source
from workbench.driver.library_files import runtime_path
from workbench.errors import CompileError, MissingToolError
from workbench.toolchain import nvcc, tools

VERSION = "14.2.0"
_OTHERS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-rocm-7-0")
_DIRECTIVES = (
    "binding=False", "c_api_binop_methods=True", "embedsignature=True", "freethreading_compatible=True",
    "warn.deprecated.IF=False",
)  # fmt: skip
_CONSTANTS = ("CUPY_USE_CUDA_PYTHON=False", "CUPY_CUDA_VERSION=13000", "CUPY_HIP_VERSION=0", "CUPY_CUFFT_STATIC=False")
# PTX for the oldest architecture of CUDA 13; a GPU's driver compiles it for its own.
_NVCC = (
    "-arch=compute_75", "-no-compress", "-O2", "-w", "-Xcompiler=-fPIC,-w", "--expt-relaxed-constexpr", "-std=c++17",
    "-cudart=none", "-c",
)  # fmt: skip
_MACROS = ('-DCYTHON_EXTERN_C=extern "C"', "-D_FORCE_INLINES=1", "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION")


@dataclass(frozen=True)
class ExtensionModule:
    """One module to rebuild: its dotted name, and the CUDA file of its kernels, if it has any."""

    name: str
    device_code: str = ""

    @property
    def stem(self) -> str:
        """Path of the module in the source archive and in the wheel, without a suffix."""
        return self.name.replace(".", "/")


MODULES = (
    ExtensionModule("cupy_backends.cuda.api.runtime"),
    ExtensionModule("cupy.cuda.jitify"),
    ExtensionModule("cupy.random._generator_api", "cupy/random/cupy_distributions.cu"),
    ExtensionModule("cupy.cuda.cub", "cupy/cuda/cupy_cub.cu"),
    ExtensionModule("cupy.cuda.thrust", "cupy/cuda/cupy_thrust.cu"),
)


def install(say: Callable[[str], object] = print) -> str:
    """Rebuild CuPy's wheel, unless a rebuilt one is kept, install it into this environment, and return its version.

    If cupy-cuda13x is installed already, its version is kept. The first build takes three minutes of two cores and
    needs a package index, g++, and nvcc, which is installed if it is missing. ``pip install --force-reinstall
    cupy-cuda13x`` undoes it. Raises MissingToolError if another CuPy is installed or if pip fails, with the end of its
    log, and CompileError if a module cannot be compiled.
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
            nvcc_setup.install(say)
            say(f"building CuPy {version} on its wheel, once: about three minutes of two cores")
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
        say(f"compiling {len(MODULES)} of its modules, for most of the time")
        with ThreadPoolExecutor(os.cpu_count()) as executor:  # largest first, so that no core idles at the end
            list(executor.map(lambda one: _compile(one, source, packages, content, version), reversed(MODULES)))
        _relabel(content, version)
        _run([sys.executable, "-m", "wheel", "pack", content.name], folder, packages)
        built = next(folder.glob(f"*{LABEL}-*.whl"))
        replace_file(wheels / built.name, built.read_bytes())
        return wheels / built.name


def _build_requirements(source: Path) -> list[str]:
    """Return the source's requirement of Cython, with its version bounds."""
    with open(source / "pyproject.toml", "rb") as file:
        requires = tomllib.load(file)["build-system"]["requires"]
    return [one for one in requires if one.lower().startswith("cython")]


def _compile(module: ExtensionModule, source: Path, packages: Path, content: Path, version: str) -> None:
    """Compile a module over the wheel's own file of it."""
    cccl = source / "cupy/_core/include/cupy/_cccl"  # CUDA 13.0 has an older one than the source asks for
    code = source / f"{module.stem}.cpp"
    folders = (
        cccl / "cub", cccl / "thrust", cccl / "libcudacxx", *packages.glob("nvidia/*/include"), tools.cuda_include(),
        *tools.library_includes(), source, source / "cupy/_core/include", code.parent, sysconfig.get_path("include"),
    )  # fmt: skip
    includes = [f"-I{folder}" for folder in folders]
    objects = []
    if module.device_code:
        objects = [str(code.with_suffix(".o"))]
        _run([str(nvcc.program()), *_NVCC, *includes, module.device_code, "-o", *objects], source, packages)
    cython = [sys.executable, "-m", "cython", "-3", "--cplus", "-X", ",".join(_DIRECTIVES), "-E", ",".join(_CONSTANTS)]
    _run([*cython, f"{module.stem}.pyx", "-o", str(code)], source, packages)
    target = content / f"{module.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Relative to the module: the packages of NVIDIA's runtime and NVRTC lie beside CuPy's.
    rpath = "$ORIGIN" + "/.." * module.name.count(".") + "/nvidia/cu13/lib"
    macros = [*_MACROS, f"-DCUPY_CACHE_KEY={version}", "-DCUPY_JITIFY_VERSION_CODE=-1", "-DJITIFY_PRINT_LOG=0"]
    macros += ["-include", "cub/version.cuh", "-DCUPY_CUB_VERSION_CODE=CUB_VERSION"]
    options = ["-O1", "-g0", "-w", "-fPIC", "-shared", "-std=c++17", *macros, *includes]
    # jitify's calls of the driver stay undefined, as in the original: they are bound at the first call.
    libraries = [runtime_path(), tools.find_library(r"libnvrtc\.so\.13")]
    link = ["-Wl,--as-needed", *(str(library) for library in libraries), f"-Wl,-rpath,{rpath}"]
    _run(["g++", *options, str(code), *objects, "-o", str(target), *link], source, packages)


def _relabel(content: Path, version: str) -> None:
    """Give the unpacked wheel a version that differs from the original's."""
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
