"""``workbench setup pycuda``: PyCUDA built from its source with nothing but pip packages and a C++ compiler.

PyCUDA has no wheels and its setup looks for an installed CUDA toolkit, of which it needs three things: ``cuda.h``,
which NVIDIA's runtime package has; ``cudaProfiler.h``, which stands here; and a ``libcuda`` to link against, for which
the simulated driver serves. The extension names that library by its soname only, so the result works with a real driver
too. The wheel is kept in the workbench's home, or in ``$WORKBENCH_WHEELS``, for other environments of the same Python.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workbench.base.files import replace_file
from workbench.driver.clients.pip import isolation, kept_wheel, kept_wheels, pip, unpack_source
from workbench.driver.library_files import library_path
from workbench.toolchain import tools

VERSION = "2026.1"

_PROFILER_HEADER = """
#include <cuda.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR = 0, CU_OUT_CSV = 1 } CUoutput_mode;
CUresult CUDAAPI cuProfilerInitialize(const char *config_file, const char *output_file, CUoutput_mode output_mode);
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);
#ifdef __cplusplus
}
#endif
"""

# Sources of the extension; Boost's by folder. The first one sets up NumPy's headers, so it stays the first.
_OWN = ("wrapper/wrap_cudadrv.cpp", "wrapper/mempool.cpp", "cpp/cuda.cpp", "cpp/bitlog.cpp")
_BOOST = ("python/src/**/*.cpp", "smart_ptr/src/*.cpp", "system/src/*.cpp", "thread/src/pthread/*.cpp")


def installed() -> str | None:
    """Return the version of PyCUDA in this environment, or None."""
    importlib.invalidate_caches()
    return importlib.metadata.version("pycuda") if importlib.util.find_spec("pycuda") is not None else None


def install(say: Callable[[str], object] = print) -> str:
    """Build PyCUDA, unless a wheel of it is kept, install it into this environment, and return its version.

    Building takes about a minute of one core and needs a package index. Raises MissingToolError, with the end of the
    log, if that fails.
    """
    with kept_wheels() as wheels:
        if (present := installed()) is not None:
            say(f"PyCUDA {present} is installed")
            return present
        wheel = kept_wheel(wheels, f"pycuda-{VERSION}")
        if wheel is None:
            say(f"building PyCUDA {VERSION} from its source, once: about a minute")
            began = time.monotonic()
            wheel = _build(wheels, say)
            say(f"built in {time.monotonic() - began:.0f} s, kept as {wheel}")
        say(f"installing {wheel.name}")
        _pip("install", str(wheel))
    return installed() or VERSION


def _build(wheels: Path, say: Callable[[str], object]) -> Path:
    include = tools.cuda_include()
    with tempfile.TemporaryDirectory(prefix="workbench-pycuda-") as name:
        folder = Path(name)
        say("downloading its source")
        _pip("download", f"pycuda=={VERSION}", "--no-deps", "--no-binary", "pycuda", *isolation(), "--dest", name)
        source = unpack_source(folder, "pycuda", VERSION)
        (folder / "include").mkdir()
        (folder / "include" / "cudaProfiler.h").write_text(_PROFILER_HEADER)
        (folder / "lib").mkdir()
        (folder / "lib" / "libcuda.so").symlink_to(library_path())
        settings = {
            "CUDA_ROOT": str(include.parent),
            "CUDA_INC_DIR": [str(folder / "include"), str(include)],
            "CUDADRV_LIB_DIR": [str(folder / "lib")],
            "CUDA_ENABLE_CURAND": False,
            # The time goes into the driver and the device: a higher level gains less than it costs to compile.
            "CXXFLAGS": ["-O1", "-g0", "-w"],
        }
        (source / "siteconf.py").write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
        _join(source)
        say("compiling it, for most of a minute")
        _pip("wheel", str(source), "--no-deps", *isolation(), "--wheel-dir", name)
        built = next(folder.glob("pycuda-*.whl"))
        replace_file(wheels / built.name, built.read_bytes())
        return wheels / built.name


def _pip(*arguments: str) -> None:
    pip(*arguments, needs="PyCUDA needs a package index and a C++ compiler")


def _join(source: Path) -> None:
    """Join all sources of the extension ``_driver`` into one file, which compiles in a third of the time.

    Boost's headers are most of each file, and the joined one reads them once. setup.py names PyCUDA's four files, so
    these stay, three of them empty; it finds Boost's by their folders.
    """
    own = [source / "src" / name for name in _OWN]
    boost = source / "bpl-subset" / "bpl_subset" / "libs"
    parts = []
    for path in [*own, *sorted(path for pattern in _BOOST for path in boost.glob(pattern))]:
        parts.append(path.rename(path.with_suffix(".part")))
    for path in own:
        path.touch()
    own[0].write_text("".join(f'#include "{part}"\n' for part in parts))
