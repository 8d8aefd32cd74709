"""The record of predictions against measured times: written by the command, shown in docs/PREDICTIONS.md."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import StoreError
from workbench.tuning.bench.measured import Judged, PredictionJudgement, Ranking
from workbench.tuning.bench.prediction_record import read, read_tables, table, write
from workbench.tuning.search.ranking import spearman

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, GPUS = DOCS / "PREDICTIONS.md", DOCS / "GPUS.md"

ONE = Judged(
    space="steps",
    gpu="NVIDIA GeForce RTX 3090",
    model="rtx-3090",
    source="its published source",
    measured="measured on it",
    seed=0,
    rows=60,
    valid=5220,
    clock_mhz=1695.0,
    unconfirmed=0,
    refused={"not compiled within 120 s": 2},
    rankings={"prediction": Ranking(0.91234567, 0.8, 1.024, 1.0), "fewest instructions": Ranking(0.5, 0.4, 2.5, 1.5)}
    | {"its own single runs": Ranking(0.9766, 0.9, 1.0, 1.0)},
    ratio=(1.0, 0.5, 2.0),
    bounds={"shared": (60, 1.0, 0.5, 2.0)},
    order={"to 1%": (10, 0.5)},
)


def judgement(*spaces: Judged) -> PredictionJudgement:
    return PredictionJudgement(spaces, (), 60, 0)


def test_a_record_replaces_what_it_judges_again_and_keeps_the_rest(tmp_path):
    path = write(judgement(ONE, replace(ONE, seed=1)), tmp_path / "record.json")
    write(judgement(replace(ONE, rows=80)), path)
    first, second = read(path)
    assert [(entry["seed"], entry["rows"]) for entry in (first, second)] == [(0, 80), (1, 60)]
    assert first["rankings"]["prediction"]["spearman"] == 0.9123
    assert first["refused"] == {"not compiled within 120 s": 2}
    assert {"workbench", "model", "NVRTC"} == set(first["versions"])
    assert table([first]).markdown().splitlines()[2] == (
        "| steps | RTX 3090 | 80 of 5,220, seed 0 | 0.912 | 1.02x | 1.00x "
        "| 1.00 (0.50 to 2.00) | 0.500, 2.50x | 0.977 |"
    )
    assert "steps, our kernel" in table([first | {"source": "our kernel"}]).markdown()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99, "spaces": []}'])
def test_what_is_no_record_is_told(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"record\.json: (no record|format 99)"):
        read(path)


def test_the_readme_has_the_table_of_the_record():
    assert table(read()).markdown() in PAGE.read_text()


def test_the_entry_of_a_table_is_that_table():
    (entry,) = read_tables()
    row = r"^\|(?:[^|]+\|){5} ([\d.]+) \| ([\d.]+) \| [\d.]+ \|$"
    rows = re.findall(row, GPUS.read_text(), re.M)
    measured, predicted = np.array(rows, float).T
    assert entry["model"] == "h200"
    assert entry["space"] == f"{len(rows)} Triton kernels of docs/GPUS.md"
    assert entry["ratio"] == pytest.approx(np.quantile(predicted / measured, [0.5, 0.1, 0.9]), abs=1e-3)
    assert entry["rankings"]["prediction"]["spearman"] == pytest.approx(spearman(predicted, measured), abs=1e-3)


def test_a_record_keeps_its_tables(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"format": 1, "spaces": [], "tables": [{"space": "a page"}]}))
    assert read_tables(write(judgement(ONE), path)) == [{"space": "a page"}]
    assert [entry["space"] for entry in read(path)] == ["steps"]


def test_the_record_is_of_published_kernels_and_of_ours():
    entries = read()
    assert {(entry["space"], entry["model"]) for entry in entries if entry["source"] != "our kernel"} == {
        ("convolution", "rtx-3090"),
        ("convolution", "rtx-2080-ti"),
        ("pnpoly", "rtx-3090"),
        ("convolution_milo", "a100-pcie-40gb"),
        ("dedispersion_milo", "a100-pcie-40gb"),
    }
    assert any(entry["source"] == "our kernel" for entry in entries)
    for entry in entries:
        assert entry["rankings"]["prediction"]["spearman"] > entry["rankings"]["fewest instructions"]["spearman"]
