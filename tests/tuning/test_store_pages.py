"""Rows read from the pages of an SQLite file, without SQLite: every kind of value, overflow pages, the log."""

import contextlib
import sqlite3

import pytest

from workbench.trials.store_pages import rows_on_pages

VALUES = [
    (None, 0, 1, -1, 127, "a"),
    (-129, 40_000, -(1 << 20), 1 << 40, -(1 << 62), "ä"),
    (0.5, -1e300, b"", b"\x00\xff", "", "x" * 9000),
    ("y" * 4061, b"z" * 70_000, 1 << 31, 1 << 15, 1 << 23, 3),
]


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_values_come_back_as_sqlite_gives_them(tmp_path, page_size):
    path = tmp_path / "any.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page_size}")
        database.execute("CREATE TABLE any (a, b, c, d, e, f)")
        database.executemany("INSERT INTO any VALUES (?, ?, ?, ?, ?, ?)", VALUES * 40)
        database.commit()
    found = [tuple(row) for row in rows_on_pages(path) if len(row) == 6]
    assert sorted(map(repr, found)) == sorted(map(repr, VALUES * 40))


def test_the_log_is_read_as_far_as_it_is_committed(tmp_path):
    path = tmp_path / "any.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA cache_size = 1")  # what does not fit goes into the log before it is committed
        database.execute("CREATE TABLE any (a, b, c)")
        database.execute("INSERT INTO any VALUES (1, 2, 3)")
        database.execute("BEGIN")
        database.executemany("INSERT INTO any VALUES (?, 5, 6)", [("x" * 3000,)] * 50)
        assert [row for row in rows_on_pages(path) if len(row) == 3] == [[1, 2, 3]]
        database.execute("COMMIT")
        assert len([row for row in rows_on_pages(path) if row[1:] == [5, 6]]) == 50


def test_what_is_no_such_file_has_no_rows(tmp_path):
    path = tmp_path / "none.sqlite"
    for content in (b"", b"SQLite format 3\0", b"\xff" * 10_000, bytes(10_000)):
        path.write_bytes(content)
        assert list(rows_on_pages(path)) == []
