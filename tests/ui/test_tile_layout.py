"""Layouts of tiles in shared memory: counted wavefronts, and paddings and swizzles without bank conflicts."""

from __future__ import annotations

import random
import re

import pytest

from workbench.errors import ArgumentError, UnknownNameError
from workbench.ui import SharedAccess, shared_layout
from workbench.ui.tile_layout import requests_of


def _halves(columns: int) -> dict[str, SharedAccess]:
    """Return the copy of a tile by 16 bytes, and the rows of its matrices for ``ldmatrix.x4``."""
    chunks = columns // 8
    return {
        "copy": SharedAccess(
            lambda lane, step: ((step * 32 + lane) // chunks, lane % chunks * 8),
            steps=columns // 16,
            vec=8,
            store=True,
        ),
        "ldmatrix": SharedAccess(
            lambda lane, step: (lane % 16, step * 16 + lane // 16 * 8), steps=columns // 16, vec=8
        ),
    }


# What people ask in NVIDIA/cutlass (issues 1234, 1443, 3172) and reed-lau/cute-gemm (issue 5).
@pytest.mark.parametrize(
    ("shape", "dtype", "accesses", "swizzle"),
    [
        (
            (32, 32),
            "float32",
            {
                "rows": SharedAccess(lambda lane, step: (step, lane), steps=32, store=True),
                "columns": SharedAccess(lambda lane, step: (lane, step), steps=32),
            },
            (5, 0, 5),
        ),
        ((16, 64), "float16", _halves(64), (3, 3, 3)),
        ((16, 32), "float16", _halves(32), (2, 3, 3)),
        (
            (32, 128),
            "float16",
            {  # M-major, read with .trans: a row of a matrix is 8 elements along M
                "copy": SharedAccess(
                    lambda lane, step: (step * 2 + lane // 16, lane % 16 * 8), steps=16, vec=8, store=True
                ),
                "ldmatrix.trans": SharedAccess(
                    lambda lane, step: (lane % 8 + lane // 16 * 8, step * 16 + lane // 8 % 2 * 8), steps=8, vec=8
                ),
            },
            (3, 3, 4),
        ),
    ],
    ids=["transposed", "rows of 128 bytes", "rows of 64 bytes", "ldmatrix.trans"],
)
def test_the_swizzle_that_people_ask_for_is_found(shape, dtype, accesses, swizzle) -> None:
    report = shared_layout(shape, dtype, accesses)
    assert not report.ok
    found = report.remedies[-1]
    assert found.layout.swizzle == swizzle
    assert found.wavefronts == report.ideal
    assert found.layout.bytes == report.layout.bytes
    assert sorted(found.layout.offset(row, column) for row in range(shape[0]) for column in range(shape[1])) == [
        *range(shape[0] * shape[1])
    ]
    assert shared_layout(shape, dtype, accesses, swizzle=swizzle).ok


def test_a_report_shows_both_remedies_and_the_lanes_that_meet() -> None:
    report = shared_layout((32, 32), "float32", {"column": SharedAccess(lambda lane, step: (lane, 3 * step), steps=2)})
    text = re.sub(" +", " ", str(report))
    assert "as given 64/2 4,096 row * 32 + column" in text
    assert "pad rows by 1 2/2 4,220 row * 33 + column" in text
    assert "Swizzle<5, 0, 5> 2/2 4,096 o = row * 32 + column; o ^ ((o >> 5) & 0x1f)" in text
    assert "Triton: vec=1, per_phase=1, max_phase=32" in text
    assert report.bank_map("column").headline == "32 wavefronts for 32 words (1 would do): 31 from bank conflicts"
    assert report.bank_map("column", step=1).caption.startswith("column, step 1, warp 0")
    assert report.bank_map("column", layout=report.remedies[1].layout).conflicts == 0


def test_an_access_that_no_layout_helps() -> None:
    report = shared_layout((1, 64), "float32", {"stride": SharedAccess(lambda lane, step: (0, lane // 16 * 32))})
    assert report.wavefronts == {"stride": 2}
    assert report.remedies[-1].layout.swizzle is not None  # two words of one bank: a swizzle parts them
    alone = shared_layout((32, 32), "float64", {"one": SharedAccess(lambda lane, step: (0, 0) if lane == 7 else None)})
    assert alone.ok
    assert not alone.remedies


@pytest.mark.parametrize("seed", range(30))
def test_the_rules_count_what_the_machine_counts(seed: int) -> None:
    draw = random.Random(seed)
    dtype, itemsize = draw.choice([("uint8", 1), ("float16", 2), ("float32", 4), ("float64", 8)])
    vec = draw.choice([vec for vec in (1, 2, 4, 8) if vec * itemsize <= 16])
    rows, columns = draw.randint(1, 40), vec * draw.randint(1, 24)
    places = [
        [
            (draw.randrange(rows), vec * draw.randrange(columns // vec)) if draw.random() < 0.9 else None
            for _ in range(32)
        ]
        for _ in range(3)
    ]
    access = SharedAccess(lambda lane, step: places[step][lane], steps=3, vec=vec, store=draw.random() < 0.5)
    report = shared_layout((rows, columns), dtype, {"random": access}, pad=vec * draw.randint(0, 3))
    assert report.wavefronts["random"] == sum(
        request.wavefronts for request in requests_of(report.layout, access, "random")
    )
    for remedy in report.remedies:
        assert remedy.wavefronts["random"] < report.wavefronts["random"]


ONE = {"one": SharedAccess(lambda lane, step: (0, lane))}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((32, 32), "float31", ONE), {}, "float31"),
        (((32, 32), "float32", {}), {}, "accesses"),
        (((0, 32), "float32", ONE), {}, "shape"),
        (((32, 32), "float32", ONE), {"pad": -1}, "pad"),
        (((32, 32), "float32", ONE), {"swizzle": (3, 0, 2)}, "Swizzle<B, M, S>"),
        (((32, 16), "float32", ONE), {}, "row 0, column 16 in lane 16"),
        (((32, 32), "float32", {"one": SharedAccess(lambda lane, step: (0, 0), vec=3)}), {}, "12 bytes"),
        (((32, 32), "float32", {"one": SharedAccess(lambda lane, step: (lane, 0), vec=4)}), {"pad": 1}, "byte 132"),
    ],
)
def test_what_cannot_be_is_refused(arguments, options, message) -> None:
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        shared_layout(*arguments, **options)
