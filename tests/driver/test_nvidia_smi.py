"""The nvidia-smi beside the simulated driver: what programs ask it, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from workbench.driver.attributes import device_facts
from workbench.driver.clients import nvidia_smi
from workbench.driver.simulated import provide_programs

NAME = "H100-SXM5-80GB (simulated)"
IDS = ["GPU-776f726b-6265-6e63-6820-73696d203000", "GPU-776f726b-6265-6e63-6820-73696d203100"]


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvidia_smi.VARIABLE, "")
    nvidia_smi.describe(device_facts("h100-sxm"), 2, 8 << 30)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--query-gpu=name --format=csv", ["name", NAME, NAME]),
        ("--query-gpu=name,memory.total --format=csv,noheader", [f"{NAME}, 8192 MiB"] * 2),
        ("--query-gpu=memory.total,memory.used --format=csv", ["memory.total [MiB], memory.used [MiB]"]
         + ["8192 MiB, [N/A]"] * 2),
        ("--query-gpu=index,gpu_uuid --format=csv,noheader,nounits -i 1", [f"1, {IDS[1]}"]),
        (f"--query-gpu index,compute_cap --format csv,noheader --id {IDS[0]}", ["0, 9.0"]),
        ("--query-gpu=count,clocks.max.sm --format=csv,noheader,nounits -i 00000000:01:00.0", ["2, 1830"]),
        ("-L", [f"GPU {at}: {NAME} (UUID: {IDS[at]})" for at in (0, 1)]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("two_devices")
def test_it_answers(words: str, expected: list[str], capsys: pytest.CaptureFixture):
    assert nvidia_smi.main(words.split()) == 0
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.usefixtures("two_devices")
def test_the_table_names_each_device(capsys: pytest.CaptureFixture):
    assert nvidia_smi.main([]) == 0
    table = capsys.readouterr().out
    assert table.count(NAME) == 2
    assert "8192MiB" in table
    assert "CUDA Version: 13.0" in table
    assert len({len(line) for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("-q -x", "-q -x"), ("--gpu-reset", "--gpu-reset"), ("--query-gpu=name", "--format=csv"),
        ("--query-gpu=wattage --format=csv", "no field wattage"), ("--query-gpu=name --format=xml", "got xml"),
        ("-L -i 7", "-i 7"), ("--query-gpu=name --format=noheader", "got noheader"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("two_devices")
def test_other_options_are_refused_by_name(words: str, named: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as leaving:
        nvidia_smi.main(words.split())
    assert leaving.value.code == 2
    assert named in capsys.readouterr().err


def test_programs_find_it(fresh_home, monkeypatch: pytest.MonkeyPatch):
    for name in ("PATH", "PYCUDA_CACHE_DIR", nvidia_smi.VARIABLE):
        monkeypatch.setenv(name, "")
    provide_programs(device_facts("l4", exact_name=True), devices=3)
    done = subprocess.run([shutil.which("nvidia-smi"), "-L"], capture_output=True, text=True, check=True)
    assert done.stdout.count(": L4 (UUID") == 3
    monkeypatch.delenv(nvidia_smi.VARIABLE)
    done = subprocess.run([shutil.which("nvidia-smi")], capture_output=True, text=True)
    assert (done.returncode, "no simulated device" in done.stderr) == (9, True)
