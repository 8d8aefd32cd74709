"""An own op by its file and name, as a command line says it: ``FILE.py:NAME``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from workbench import ops
from workbench.errors import ArgumentError
from workbench.ops.op import Op


def load_op(text: str) -> Op:
    """The op of ``"FILE.py:NAME"``, or of a name that is known.

    The file is run as the module of its name, with its folder first on the import path. Raises ArgumentError where it
    is not there or raises an error, or NAME is no op; UnknownNameError for another name.
    """
    file, colon, name = text.rpartition(":")
    if not colon:
        return ops.get(text)
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError("op", repr(text), "FILE.py:NAME of a file that is there", f"There is no {path}.")
    folder = str(path.parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        what = f"{text!r}: {type(error).__name__}: {error}"
        raise ArgumentError("op", what, "a file that can be imported", f"Correct {path.name}.") from error
    found = getattr(module, name, None)
    if not isinstance(found, Op):
        known = ", ".join(one for one, value in vars(module).items() if isinstance(value, Op)) or "none"
        raise ArgumentError("op", repr(text), f"an op of {path.name}: {known}", "Decorate its reference with @wb.op.")
    return found
