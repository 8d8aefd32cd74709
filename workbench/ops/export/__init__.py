"""Export of a declared op to one file that needs torch and PyCUDA or Triton, and nothing of the workbench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.base.files import replace_file
from workbench.errors import ArgumentError

__all__ = ["export"]


def export(op: Any, path: str | Path, variant: str | None = None) -> Path:
    """Write a kernel of an op to a Python file of its own.

    The file has the reference, the kernel, the tuned configurations of every GPU with how they were chosen, the launch,
    a ``torch.library`` op with the op's name, and a self-test against the reference on the op's cases, which runs when
    the file is run. For tensors on the CPU its op computes the reference.

    Args:
        op: the declared op.
        path: the file, ``"row_softmax_tuned.py"``; it replaces one that is there.
        variant: a kernel's name; None for the one that won most often in the tuned tables, else the last declared.

    Returns:
        The path of the file.

    Raises:
        ArgumentError: there is no kernel or no case, or something that the file would need cannot be written into it;
            the error names it.
    """
    from workbench.ops.export.file import file_text

    path = Path(path).expanduser()
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ArgumentError("path", repr(str(path)), "a Python file that can be imported", f'"{op.name}_tuned.py"')
    if not path.absolute().parent.is_dir():
        raise ArgumentError("path", repr(str(path)), "a file in an existing folder", "Make the folder.")
    text = file_text(op, variant)
    replace_file(path, text)
    return path
