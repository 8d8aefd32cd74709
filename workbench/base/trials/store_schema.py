"""Schema of a tuning store, and the migrations that bring an older store to it.

One table has a row per attempted configuration, another one per judged candidate. Numbers that are searched or sorted
by have a column of their own. Values that may still grow (resources, counts, parts of a prediction, versions) are a
JSON object in one column, so a new figure needs no new schema. Times are in seconds, ``started`` and ``finished`` in
Unix time.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x776B6231  # "wkb1": tells a tuning store from any other SQLite file
SCHEMA_VERSION = 2

_CREATE = """
CREATE TABLE trials (
    key                TEXT PRIMARY KEY,   -- digest of op, variant, source, case, config, device, arch, toolchain
    op                 TEXT NOT NULL,
    variant            TEXT NOT NULL,
    language           TEXT NOT NULL,
    case_name          TEXT NOT NULL,
    case_json          TEXT NOT NULL,
    case_hash          TEXT NOT NULL,
    config             TEXT NOT NULL,      -- canonical JSON
    device             TEXT NOT NULL,      -- "sim", or the GPU's name
    device_description TEXT NOT NULL,
    arch               TEXT NOT NULL,
    source_hash        TEXT NOT NULL,
    toolchain          TEXT NOT NULL,      -- the part of versions that decides whether a result can be used again
    versions           TEXT NOT NULL DEFAULT '{}',
    run                TEXT NOT NULL DEFAULT '',
    -- the claim: who works on it, and how often somebody began to measure it and did not live to say how it went
    status             TEXT NOT NULL CHECK (status IN ('claimed', 'measuring', 'done')),
    owner              TEXT NOT NULL DEFAULT '',
    claimed            REAL,
    attempts           INTEGER NOT NULL DEFAULT 0,
    -- the result
    outcome            TEXT CHECK (outcome IN ('ok', 'restricted', 'compile_error', 'launch_error', 'wrong_result',
                                               'timeout', 'crash')),
    message            TEXT NOT NULL DEFAULT '',
    compile_seconds    REAL,
    from_cache         INTEGER,
    resources          TEXT NOT NULL DEFAULT '{}',  -- registers, spill_bytes, shared_bytes, occupancy, limited_by, ...
    counts             TEXT NOT NULL DEFAULT '{}',  -- what the simulator counted; enough to predict any device
    samples            TEXT NOT NULL DEFAULT '[]',  -- every timed run
    leader_samples     TEXT NOT NULL DEFAULT '[]',  -- every timed run against the other leaders, interleaved
    timing             TEXT NOT NULL DEFAULT '{}',  -- how it was timed: method, warm-up, flush, clocks
    measured_seconds   REAL,
    predicted_seconds  REAL,
    predicted_for      TEXT,
    prediction         TEXT NOT NULL DEFAULT '{}',  -- parts, bound_by, version of the model
    max_error          REAL,
    error_bound        REAL,
    started            REAL,
    finished           REAL,
    extra              TEXT NOT NULL DEFAULT '{}',
    CHECK ((status = 'done') = (outcome IS NOT NULL)),
    CHECK (outcome = 'ok' OR (measured_seconds IS NULL AND predicted_seconds IS NULL))
);
CREATE INDEX trials_by_case ON trials (op, case_hash, device, variant);
"""
_JUDGEMENTS = """
CREATE TABLE judgements (
    key       TEXT PRIMARY KEY,  -- digest of op or problem, candidate, options, versions
    op        TEXT NOT NULL,
    candidate TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    record    TEXT NOT NULL,     -- the judge's JSON
    finished  REAL NOT NULL
);
"""

JSON_COLUMNS = (
    "case_json",
    "config",
    "versions",
    "resources",
    "counts",
    "samples",
    "leader_samples",
    "timing",
    "prediction",
    "extra",
)

# From version n to n + 1, in order; each runs inside the transaction that raises the version.
MIGRATIONS: tuple[str, ...] = (_JUDGEMENTS,)


def create(connection: sqlite3.Connection) -> None:
    """Write the current schema into an empty file. Call inside a transaction."""
    for statement in _statements(_CREATE + _JUDGEMENTS):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def migrate(connection: sqlite3.Connection, version: int, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring a store of an older ``version`` to the current schema. Call inside a transaction."""
    for number, script in enumerate(migrations[version - 1 :], start=version + 1):
        for statement in _statements(script):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")


def _statements(script: str) -> list[str]:
    lines = (line.split("--")[0] for line in script.splitlines())
    return [statement for statement in "\n".join(lines).split(";") if statement.strip()]
