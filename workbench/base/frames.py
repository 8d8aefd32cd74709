"""Rows as a pandas DataFrame; pandas is an extra and is imported for the first frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.errors import MissingToolError

if TYPE_CHECKING:
    import pandas


def data_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """Return a DataFrame with one row per mapping; ``columns`` names the columns of a frame without rows.

    Raises MissingToolError without pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingToolError('to_frame() needs pandas: python -m pip install -e ".[lab]"') from error
    return pandas.DataFrame(rows, columns=columns)
