"""Paths of the compiled libraries of the simulated driver."""

from __future__ import annotations

from pathlib import Path

from workbench.errors import MissingToolError

_SONAME = "libcuda.so.1"


def library_path() -> Path:
    """Return the path of this package's ``libcuda.so.1``; raise MissingToolError if it was not built."""
    from workbench.ptx import _core  # type: ignore[attr-defined]  # compiled

    beside_core = Path(_core.__file__).resolve().parent.parent / "driver" / _SONAME
    for path in (beside_core, Path(__file__).resolve().parent / _SONAME):
        if path.is_file():
            return path
    raise MissingToolError(f"{_SONAME} is not part of this installation. Build it: python -m pip install -e .")


def runtime_path() -> Path:
    """Return the path of our ``libcudart.so.13``, which lies beside the simulated driver."""
    return library_path().with_name("libcudart.so.13")
