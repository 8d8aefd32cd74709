"""NCCL over simulated devices: torch's process groups, and what each rank gets to read when ranks make a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.driver.torch_device.library import installed_torch

HERE = Path(__file__).parent
TORCH = installed_torch()
PARTS = ("collectives", "data_parallel", "tensor_parallel", "ring_attention")
# Words of the messages of rank 0 and rank 1; "" stands for no message.
MISTAKES = {
    "right": ("", ""),
    "disagree": ("rank 0 calls all_reduce of 4 float32 (sum) at nccl_mistakes.py:", "rank 1 calls broadcast of 4 "),
    "crossed": ("deadlock: rank ", " waits for rank "),
    "both_send": ("deadlock: rank ", "batch_isend_irecv"),
    "other_size": ("recv from rank 1 of 4 float32 at nccl_mistakes.py:", ""),
    "leaves": ("waits for rank 1 (process ", ""),
    "ended": ("ncclAllReduce: the communicator (rank 0, of 2 ranks) has ended: destroy it after", "rank 1, of 2"),
    "no_root": ("there are ranks 0 to 1, not 2", "ncclBcast: "),
    "shrinks": ("ncclCommShrink: not part of this NCCL", "make a new communicator"),
    "shares_a_device": ("ranks 0 and 1 both use device 0", "torch.cuda.set_device(rank)"),
    "dies": ("waits for rank 1 (process PID), which has died",),
}


def test_each_mistake_ends_with_a_message():
    done = subprocess.run([sys.executable, HERE / "nccl_mistakes.py"], capture_output=True, text=True, timeout=200)
    told = {case: said for case, *said in map(json.loads, done.stdout.splitlines())}
    assert told.keys() == MISTAKES.keys(), done.stderr
    for case, words in MISTAKES.items():
        for message, word in zip(told[case], words, strict=True):
            assert word in message if word else not message, (case, message)


@pytest.mark.skipif(TORCH is None or TORCH.problem is not None, reason="needs torch's build for CUDA 13")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_ranks_together_compute_what_one_device_does(ranks: int, tmp_path: Path):
    command = [sys.executable, "-m", "workbench.cli", "run", "--simulated", "--check", f"--devices={ranks}"]
    command += [HERE / "nccl_ranks.py", str(ranks), tmp_path / "meeting"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "workbench: nothing found" in done.stderr
    for part in PARTS:
        assert done.stdout.count(part) == ranks
