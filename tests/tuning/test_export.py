"""What is exported is what was stored."""

from __future__ import annotations

import csv
import json

import pytest
import toy

from workbench.errors import ArgumentError
from workbench.tuning import Store, tune
from workbench.tuning.export import export, to_frame


def test_json_csv_and_frame_hold_every_row(tmp_path):
    pytest.importorskip("pandas")
    tune(toy.steps_op(values=(1, 2, 13)), device="sim")
    with Store() as store:
        assert export(store, tmp_path / "all.json") == export(store, tmp_path / "all.csv", op="steps") == 3
        assert export(store, tmp_path / "none.csv", op="other") == 0
        records = json.loads((tmp_path / "all.json").read_text())["trials"]
        assert records == store.records()
        frame = to_frame(store)
        with pytest.raises(ArgumentError, match=r"\.csv"):
            export(store, tmp_path / "all.xml")
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert (
        [json.loads(row["config"]) for row in rows] == [record["config"] for record in records] == list(frame["config"])
    )
    assert {row["outcome"] for row in rows} == {"ok", "compile_error"}
