"""Loading of ops and kernels from files that a terminal names: ``my_ops.py:row_softmax``, ``scale.cu:scale``."""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.base.callers import at_user_line
from workbench.base.files import out_of_space
from workbench.base.op_names import op_file
from workbench.errors import ArgumentError, UnknownNameError, UserFileError
from workbench.launch.loading import Kernel, Module, load_cuda
from workbench.launch.loading_ptx import load_ptx
from workbench.ops import registry
from workbench.ops.op import Op

_KERNEL = re.compile(r"(.+\.(cu|ptx))(?::(.+))?")
"""A file with kernels, and the name of one of them."""


def load_op(text: str) -> Op:
    """Return the op of ``FILE.py:NAME``, or the op of that name in the workbench or an installed package.

    The file is run as a module; its folder comes first on the import path, where worker processes find it, too. Raises
    ArgumentError for a file that does not exist, UserFileError for one that raises an error, and UnknownNameError for a
    name that is not an op.
    """
    if (named := op_file(text)) is None:
        return registry.get(text)
    file, name = named
    module = _module(file)
    found = getattr(module, name, None)
    if isinstance(found, Op):
        return found
    own = ", ".join(key for key, value in vars(module).items() if isinstance(value, Op)) or "none"
    got = f"{text!r}: {name} is " + ("not there" if found is None else f"a {type(found).__name__}")
    raise UnknownNameError("op", got, own, f"{file.name} has these ops; decorate a reference with @workbench.op.")


def is_kernel_file(text: str) -> bool:
    """Return True if a text names a file with kernels, ``FILE.cu`` or ``FILE.ptx``, or a kernel of one."""
    return _KERNEL.fullmatch(text) is not None


def load_kernel(text: str, arch: str | None = None, macros: Mapping[str, Any] | None = None) -> Kernel:
    """Return the kernel of ``FILE.cu:KERNEL`` or ``FILE.ptx:KERNEL``; the name may be left out where there is one.

    KERNEL is a name or, of a template, a C++ name expression. Raises ArgumentError for a file that cannot be read, that
    has several kernels and none is named, and for an architecture or macros of PTX.
    """
    found = _KERNEL.fullmatch(text)
    assert found is not None  # `is_kernel_file`
    path, kind, name = Path(found[1]).expanduser(), found[2], found[3]
    if not path.is_file():
        raise ArgumentError("kernel", f"{text!r}: no file {path}", "FILE.cu or FILE.ptx that exists", "Check the path.")
    if kind == "ptx":
        for argument, value in (("arch", arch), ("config", macros)):
            if value:
                raise ArgumentError(argument, repr(value), "no value with PTX", "PTX is compiled already.")
        module: Module = load_ptx(path, device="sim")
    else:
        module = load_cuda(path, device="sim", arch=arch, macros=macros)
    if name is None and len(names := [*module]) != 1:
        known = ", ".join(names) or "the instance of a template, such as scale<float>"
        raise ArgumentError("kernel", repr(text), f"{path.name}:KERNEL with one of {known}", "Name the kernel.")
    return module[name or names[0]]


def _module(file: Path) -> ModuleType:
    """Return the file as the module of its own name, so that other processes can unpickle its objects by name."""
    known = sys.modules.get(file.stem)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == file:
            return known
        what = f"{file.name}: a module {file.stem!r} is loaded already"
        raise ArgumentError("op", what, "a file with a name that no other op has", "Rename it.")
    try:
        return run_file(file)
    except (Exception, SystemExit) as error:
        del sys.modules[file.stem]
        if out_of_space(error):  # no fault of the file's
            raise
        raise UserFileError(at_user_line(error, file.name)) from error


def run_file(file: Path) -> ModuleType:
    """Run a file as the module of its own name, its folder first on the import path. Raises whatever the file does.

    The file is read once, so that tracebacks and `read_digest` are of the text that was run. Bytecode beside the file
    is not used.
    """
    if sys.path[:1] != [str(file.parent)]:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    content = file.read_bytes()
    _digests[str(file)] = hashlib.sha256(content).hexdigest()
    lines = importlib.util.decode_source(content).splitlines(keepends=True)
    linecache.cache[str(file)] = (len(content), None, lines, str(file))
    exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))
    return module


_digests: dict[str, str] = {}


def read_digest(file: Path) -> str:
    """Return the SHA-256 of a file as `run_file` has read it, or as it is now if `run_file` has not."""
    known = _digests.get(str(file))
    return known if known is not None else hashlib.sha256(file.read_bytes()).hexdigest()
