"""A process without the workbench's ops: imports exported files, runs their self-tests, and prints what came of it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import runpy
import sys

import torch
import triton  # noqa: F401  # before the files: its simulated driver takes what it needs of the workbench


class _Refusing(importlib.abc.MetaPathFinder):
    """The simulated driver alone may take what it needs of the workbench."""

    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename in FILES and name.split(".")[0] == "workbench":
                raise ImportError(f"{name} is not there")
            frame = frame.f_back
        if name == "workbench.ops" or name.startswith("workbench.ops."):
            raise ImportError(f"{name} is not there")
        return None


def status(path: str) -> int:
    """That of ``python path``."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        return ended.code or 0
    return 0


def load(path: str):
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_streams(path: str) -> bool:
    """Whether the op gives the same on a stream that torch made, and is what ``torch.library`` wants of one."""
    module = load(path)
    _, inputs = next(iter(module.cases()))
    given = [value.cuda() if isinstance(value, torch.Tensor) else value for value in inputs]
    name = next(name for name, one in vars(module).items() if isinstance(one, torch.library.CustomOpDef))
    op = getattr(module, name)
    expected = op(*given)
    with torch.cuda.stream(torch.cuda.Stream()):
        found = op(*given)
    torch.cuda.synchronize()
    torch.library.opcheck(op, tuple(given), test_utils=("test_schema", "test_faketensor"))
    one, other = (value if isinstance(value, tuple) else (value,) for value in (found, expected))
    return all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    FILES = set(sys.argv[1:])
    sys.meta_path.insert(0, _Refusing())
    results = {path: status(path) for path in sys.argv[1:]}
    results["streams"] = on_streams(sys.argv[1])
    print("\n" + json.dumps(results))
