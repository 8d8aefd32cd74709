"""Export of an own op as one file that needs torch and PyCUDA or Triton, but nothing of the workbench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.base.files import replace_file
from workbench.errors import ArgumentError

if TYPE_CHECKING:
    from workbench.ops.op import Op

__all__ = ["export"]


def export(op: Op, path: str | Path, variant: str | None = None) -> Path:
    """Write a kernel of an op to a Python file of its own.

    The file has the reference, the kernel, the tuned configurations of every GPU with their origin, the launch, and a
    ``torch.library`` op with the op's name. A self-test against the reference on the op's cases runs when the file is
    run. For tensors on the CPU the file's op computes the reference.

    Args:
        op: the own op.
        path: the file, ``"row_softmax_tuned.py"``; an existing one is replaced.
        variant: a kernel's name; None for the one that won most often in the tuned tables, else the last declared.

    Raises:
        ArgumentError: there is no kernel or no case, or something that the file needs, named in the message, cannot be
            written into it.
    """
    from workbench.ops.own.export.file import file_text

    path = Path(path).expanduser()
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ArgumentError("path", repr(str(path)), "a Python file that can be imported", f'"{op.name}_tuned.py"')
    if not path.absolute().parent.is_dir():
        raise ArgumentError("path", repr(str(path)), "a file in an existing folder", "Make the folder.")
    text = file_text(op, variant)
    replace_file(path, text)
    return path
