"""Begin a notebook whose results are the same for every reader."""

from __future__ import annotations

from workbench.base.home import temporary_home
from workbench.ui.figures import show_as_vectors


def fresh_notebook() -> None:
    """Begin a notebook that shows the same to every reader, whatever they have tuned before.

    Its tuning results go to an empty home, which is deleted when the kernel ends; compilations are kept. Its figures
    are vectors in the colours of the reader's theme.
    """
    temporary_home()
    show_as_vectors()
