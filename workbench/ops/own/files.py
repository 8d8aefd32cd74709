"""Own ops by the file that declares them: ``FILE.py:NAME``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from workbench.errors import ArgumentError
from workbench.ops.own.op import OwnOp


def load_op(text: str) -> OwnOp:
    """The op of ``"FILE.py:NAME"``: the file is run as a module, with its folder first on ``sys.path``.

    Raises ArgumentError for a file that is not there, and for a name that is no op in it.
    """
    name, _, wanted = text.rpartition(":")
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise ArgumentError("op", repr(text), "FILE.py:NAME with a file that exists", "Check the path.")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, wanted, None)
    if not isinstance(found, OwnOp):
        listed = ", ".join(key for key, one in vars(module).items() if isinstance(one, OwnOp)) or "none"
        raise ArgumentError("op", repr(text), f"an op of {path.name}: {listed}", "Name one that is made by @wb.op.")
    return found
