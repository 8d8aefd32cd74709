"""The benchmark of the machine, at a size where only its arithmetic is tested, not its speed."""

from __future__ import annotations

import json

import pytest

from benchmarks import sim


@pytest.mark.long
@pytest.mark.parametrize("peers", [False, True])
def test_bench_sim_checks_every_run_and_relates_it_to_the_peers(peers):
    if peers:
        pytest.importorskip("numba", reason='no Numba: python -m pip install -e ".[peers]"')
    result = sim.run(context=16, repeats=1, peers=peers, candidates=2 * peers)
    cuda = result.row("CUDA kernel, bare, 1 core")
    for what in ("statistics", "all checks", "statistics and all checks"):
        checked = result.row(f"CUDA kernel, {what}, 1 core")
        assert cuda.instructions == checked.instructions
        assert checked.ratio == checked.seconds / cuda.seconds
        if what == "statistics":
            assert checked.shadow_ratio is None
        else:
            assert 1 <= checked.shadow_ratio <= 3
    assert cuda.rate == cuda.instructions / cuda.seconds / 1e6
    small = result.row("launch of a small kernel by Triton")
    assert small.ratio == small.seconds / result.row("launch of a small kernel through load_cuda").seconds
    assert result.row("Triton program, softmax 512 x 781").seconds > 0
    for peer, ours in peers * (("TRITON_INTERPRET=1", "Triton kernel"), ("Numba's CUDA simulator", "CUDA kernel")):
        row = next(row for row in result.rows if row.what.startswith(peer))
        assert row.ratio == row.seconds / result.row(f"{ours}, bare, 1 core").seconds
    if peers:
        row = result.row("judge a candidate for a softmax, 2 cores")
        assert row.ratio == pytest.approx(3600 / row.seconds / sim.CANDIDATES_PER_HOUR)
    assert {row["what"] for row in json.loads(result.to_json())["rows"]} == {row.what for row in result.rows}
    assert "M warp-instr/s" in str(result)


def test_a_long_kernel_is_decoded_once():
    fresh, again = sim._front_end(repeats=1)
    assert 6500 < int(fresh.what.split()[3].replace(",", "")) < 7500
    assert again.seconds < fresh.seconds / 100
