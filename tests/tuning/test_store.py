"""The store loses no finished row, gives no work out twice, and refuses what is not a store."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import toy

from workbench.base.trials import store_schema
from workbench.base.trials.judgements import JudgementStore
from workbench.base.trials.processes import STALE_SECONDS, owner_alive, this_process
from workbench.base.trials.store import CRASH_AFTER, Identity, Store
from workbench.base.trials.trial import OUTCOMES, REFUTED, Trial, canonical
from workbench.errors import StoreError, StoreWarning


def identity(steps: int = 1, **changes) -> Identity:
    values = {
        "op": "steps",
        "variant": "steps",
        "language": "cuda",
        "case_name": "small",
        "case_json": canonical(toy.ToyCase().to_dict()),
        "config": {"STEPS": steps},
        "device": "sim",
        "device_description": "a machine",
        "arch": "sm_80",
        "source_hash": "1",
        "toolchain": "none 1",
        "versions": {"none": "1"},
    }
    return Identity(**{**values, **changes})


def trial(steps: int = 1, outcome: str = "ok", **changes) -> Trial:
    found = Trial("steps", "steps", "cuda", "small", {"STEPS": steps}, "sim", "sm_80", outcome, finished=1.0, **changes)
    return replace(found, predicted_seconds=1e-6, predicted_for="a100-sxm-80gb") if outcome == "ok" else found


def put(store: Store, steps: int = 1, outcome: str = "ok", **changes) -> str:
    who = identity(steps)
    assert store.claim([who], retry_failed=True)[0].state == "mine"
    store.begin(who.key)
    store.finish(who.key, trial(steps, outcome, **changes))
    return who.key


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def test_a_row_comes_back_as_it_went_in(path):
    whole = trial(
        compile_seconds=0.5,
        from_cache=False,
        resources={"registers": 40},
        counts={"mix": {"fp32": 3}},
        samples=(1e-6, 2e-6),
        leader_samples=(3e-6,),
        timing={"method": "none"},
        prediction={"bound_by": "dram", "parts": {"dram": 1.0}},
        max_error=1e-7,
        error_bound=1e-6,
        message="µ",
        started=0.5,
    )
    with Store(path) as store:
        store.claim([identity()])
        store.finish(identity().key, whole)
    with Store(path) as store:
        assert store.get(identity().key) == replace(whole, reused=True)
        assert store.trials(op="steps") == [replace(whole, reused=True)]
        assert store.trials(op="other") == []
        (record,) = store.records()
        assert record["case_json"] == toy.ToyCase().to_dict()
        json.dumps(record)


@pytest.mark.parametrize("outcome", [one for one in OUTCOMES if one != REFUTED])
def test_every_outcome_can_be_stored(path, outcome):
    with Store(path) as store:
        key = put(store, outcome=outcome, message="why", max_error=float("nan") if outcome == "wrong_result" else None)
        assert store.get(key).outcome == outcome
        assert store.get(key).max_error is None


def test_a_failure_carries_no_time(path):
    with Store(path) as store:
        store.claim([identity()])
        with pytest.raises(StoreError):
            store.finish(identity().key, trial(outcome="wrong_result", measured_seconds=1.0))


def test_what_identifies_a_row():
    changed = [
        identity(2),
        identity(op="x"),
        identity(variant="x"),
        identity(case_json="{}"),
        identity(device="x"),
        identity(arch="sm_90"),
        identity(source_hash="x"),
        identity(toolchain="x"),
    ]
    assert len({one.key for one in (identity(), *changed)}) == 9
    assert identity().key == identity(versions={}, device_description="other words", case_name="renamed").key


def test_done_rows_are_given_back_and_failed_ones_retried_only_when_asked(path):
    with Store(path) as store:
        put(store, 1)
        put(store, 2, "compile_error")
    with Store(path) as store:
        assert [claim.state for claim in store.claim([identity(1), identity(2)])] == ["done", "done"]
        first, second = store.claim([identity(1), identity(2)], retry_failed=True)
        assert (first.state, second.state) == ("done", "mine")
    with Store(path) as store:
        assert store.get(identity(2).key).outcome == "compile_error", "given up, it is what it was"
        assert len(store) == 2


def test_a_claim_keeps_others_away_until_it_is_given_up(path):
    with Store(path) as one, Store(path) as two:
        assert one.claim([identity()])[0].state == "mine"
        assert two.claim([identity()])[0].state == "busy"
        one.close()
        assert two.claim([identity()])[0].state == "mine"


def claim_and_die(path) -> None:
    """Begin to measure a row in another process and die in it, as a segmentation fault would."""
    code = (
        "import os, test_store as t; from workbench.base.trials.store import Store\n"
        f"s = Store({str(path)!r}); c = s.claim([t.identity()])[0]; s.begin(t.identity().key); os._exit(9)"
    )
    folder = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 9


def test_a_dead_process_s_claim_is_taken_over(path):
    claim_and_die(path)
    with Store(path) as store:
        assert len(store) == 0
        assert store.claim([identity()])[0].state == "mine"


def test_what_ends_its_process_again_and_again_is_a_crash(path):
    with Store(path) as store:
        store.claim([identity()])
        store.begin(identity().key)
        dead = canonical({**this_process(), "pid": 2**22 + 1, "token": "gone"})
        store._file.connection.execute("UPDATE trials SET owner = ?, attempts = ?", (dead, CRASH_AFTER - 1))
        store._claimed.clear()
    with Store(path) as store:
        assert store.claim([identity()])[0].state == "mine", "not yet"
        store.begin(identity().key)
        store._file.connection.execute("UPDATE trials SET owner = ?", (dead,))
        store._claimed.clear()
    with Store(path) as store:
        claim = store.claim([identity()])[0]
        assert (claim.state, claim.trial.outcome) == ("done", "crash")
        assert str(CRASH_AFTER) in claim.trial.message


def test_whether_an_owner_lives():
    me = {**this_process(), "token": "t"}
    assert owner_alive(canonical(me), 0, {"t"})
    assert not owner_alive(canonical(me), 0, set()), "the run is over, although the process lives"
    assert not owner_alive(canonical({**me, "born": "1", "pid": os.getppid()}), 0, {"t"}), "the pid was given out again"
    elsewhere = canonical({**me, "host": "elsewhere"})
    assert owner_alive(elsewhere, time.time(), set()), "its process cannot be looked at, and the claim is fresh"
    assert not owner_alive(elsewhere, time.time() - STALE_SECONDS - 1, {"t"})


@pytest.mark.long
def test_many_processes_may_make_the_same_store_at_once(tmp_path):
    code = "import sys\nfrom workbench.base.trials.store import Store\nfor p in sys.argv[1:]: Store(p).close()"
    paths = [str(tmp_path / f"{at}.sqlite") for at in range(8)]
    command = [sys.executable, "-c", code, *paths]
    processes = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) for _ in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]


def test_a_foreign_file_is_refused_and_left_alone(path):
    path.write_bytes(b"not a database, but long enough to be looked at as one" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"mv .*store\.sqlite"):
        Store(path)
    assert path.read_bytes() == before
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="not a tuning store"):
        Store(path)


def damage(path, spare: int, every: int = 4096) -> None:
    """Overwrite a part of every page, or of every so many bytes, behind the first ``spare`` ones."""
    data = bytearray(path.read_bytes())
    for at in range(spare, len(data), every):
        data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)


@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
def test_a_damaged_store_is_kept_aside_and_what_can_be_read_of_it_goes_on(path, when):
    with Store(path) as store:
        kept = {put(store, steps) for steps in range(60)}
    store = Store(path)
    if when == "before it is opened":
        store.close()
    damage(path, spare=4096 * 6, every=4096 * 3)  # two of the seven pages with rows
    before = path.read_bytes()
    with pytest.warns(StoreWarning, match=r"(\d+) rows that could still be read.*kept as .*\.damaged-"):
        rows = (Store(path) if when == "before it is opened" else store).trials()
    if when == "before it is opened":
        store = Store(path)
    assert 30 < len(rows) < 60, "those of two pages are lost"
    assert {identity(row.config["STEPS"]).key for row in rows} <= kept
    (aside,) = path.parent.glob("*.damaged-*[0-9]")
    assert aside.read_bytes() == before
    put(store, 100)
    assert store.get(identity(100).key).ok
    store.close()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_rows_behind_a_cut_are_lost_and_the_others_are_kept(path):
    with Store(path) as store:
        kept = {put(store, steps) for steps in range(60)}
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.warns(StoreWarning, match="rows that could still be read"):
        store = Store(path)
    rows = store.trials()
    put(store, 100)
    store.close()
    assert {identity(row.config["STEPS"]).key for row in rows} <= kept
    assert len(rows) >= 20


def test_a_store_of_which_the_header_is_left_is_rebuilt_empty(path):
    with Store(path) as store:
        put(store)
    path.write_bytes(path.read_bytes()[:100] + bytes(path.stat().st_size - 100))
    with pytest.warns(StoreWarning, match="0 rows"):
        Store(path).close()
    with Store(path) as store:
        assert len(store) == 0
        put(store)


def test_a_row_whose_figures_were_altered_is_found_and_left_behind(path):
    with Store(path) as store:
        keys = [put(store, steps) for steps in range(3)]
        store._file.connection.execute("UPDATE trials SET counts = '{' WHERE key = ?", (keys[1],))
        with pytest.warns(StoreWarning, match="2 rows"):
            assert store.get(keys[1]) is None
        assert [store.get(key) is not None for key in keys] == [True, False, True]


def test_a_store_that_is_removed_during_a_run_loses_nothing_that_is_finished_later(path):
    with Store(path) as store:
        store.claim([identity()])
        store.begin(identity().key)
        path.unlink()
        store.finish(identity().key, trial())
    with Store(path) as store:
        assert store.get(identity().key).ok


def test_a_newer_store_is_refused(path):
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"version 99.*Update"):
        Store(path)


def test_a_store_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="store="):
        Store(tmp_path / "file" / "store.sqlite")
    with pytest.raises(StoreError, match="store="):
        Store(tmp_path)


def test_a_store_in_memory_is_refused():
    with pytest.raises(StoreError, match=r":memory:: SQLite has no write-ahead log there \(journal mode memory\)"):
        Store(":memory:")


def test_an_older_store_is_brought_up_to_date(path, monkeypatch):
    with Store(path) as store:
        put(store)
    older = "DROP TABLE judgements; PRAGMA user_version = 1"  # as the first version made it
    with contextlib.closing(sqlite3.connect(path)) as first:
        first.executescript(older)
    with JudgementStore(path) as judgements:
        assert judgements.get(["no such"]) == {}
    monkeypatch.setattr(store_schema, "SCHEMA_VERSION", 4)
    steps = (
        *store_schema.MIGRATIONS,
        "ALTER TABLE trials ADD COLUMN novel TEXT",
        "CREATE TABLE more (x); CREATE INDEX i ON more (x)",
    )
    monkeypatch.setattr(store_schema.migrate, "__defaults__", (steps,))
    with Store(path) as store:
        assert store._file.connection.execute("PRAGMA user_version").fetchone()[0] == 4
        assert store.get(identity().key).ok
        assert store.records()[0]["novel"] is None
