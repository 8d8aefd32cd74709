"""Files written in one step."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from workbench.base.files import out_of_space, replace_file, require_space
from workbench.cli import main
from workbench.errors import ArgumentError, FileError


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "table.json"
    replace_file(path, "old\n", durable=durable)
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
    replace_file(path, b"n\xc3\xa9w", durable=durable)
    assert path.read_text() == "néw"
    assert sorted(os.listdir(tmp_path)) == ["plain", "table.json"]


def test_what_fails_half_way_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"table\.json cannot be written: No space left.*unchanged"):
        replace_file(path, "new", durable=True)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space") as caught:
        replace_file(path, "new")
    assert caught.value.errno == 28
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.json"]
    with pytest.raises(FileError, match="No part of it was written"):
        replace_file(tmp_path / "other", "new")


def test_a_device_is_written_to_and_stays_one():
    replace_file(os.devnull, "nothing")
    assert Path(os.devnull).is_char_device()
    if os.path.exists("/dev/full"):
        with pytest.raises(FileError, match="No space left on device"):
            replace_file("/dev/full", "nothing")


def test_permissions_are_those_asked_for(tmp_path):
    replace_file(tmp_path / "program", "#!/bin/sh\n", mode=0o755)
    assert os.access(tmp_path / "program", os.X_OK)


@pytest.mark.parametrize(("free", "files"), [(0, 9), (9, 0)], ids=["blocks", "files"])
def test_a_full_disk_is_found_before_somebody_else_is_blamed(tmp_path, monkeypatch, free: int, files: int):
    require_space(tmp_path)
    found = types.SimpleNamespace(f_bavail=free, f_frsize=1 << 20, f_files=9, f_favail=files)
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    with pytest.raises(FileError, match=r"no space is left.*TMPDIR"):
        require_space(tmp_path)


def test_a_full_disk_is_found_behind_other_errors():
    full = OSError(errno.ENOSPC, "No space left on device")
    for wrapped in (full, FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")):
        taken = ValueError("Correct the file")
        taken.__cause__ = wrapped
        assert out_of_space(taken) is wrapped
    assert out_of_space(FileNotFoundError(2, "No such file")) is None
    itself = ValueError("disk")
    itself.__cause__ = itself
    assert out_of_space(itself) is None


@click.command()
@click.argument("kind")
def failing(kind: str) -> None:
    """A command that meets a full disk, or another error."""
    try:
        raise OSError({"full": errno.ENOSPC, "other": errno.EIO}[kind], "of the disk", "there")
    except OSError as error:
        if kind == "other":
            raise
        raise ArgumentError("op", "file", "another", "Correct it.") from error


def test_a_command_that_meets_a_full_disk_blames_nothing_else():
    group = type(main)(commands={"failing": failing})
    done = CliRunner().invoke(group, ["failing", "full"])
    assert (done.exit_code, "of the disk: 'there'. Free space" in done.output) == (2, True)
    assert isinstance(CliRunner().invoke(group, ["failing", "other"]).exception, OSError)


# -- the commands ---------------------------------------------------------------------------------------------------

FULL = """
import json, resource, sys
from click.testing import CliRunner
from workbench.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))  # no more bytes go into any file
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, words)
    known = done.exception is None or isinstance(done.exception, SystemExit)
    print(json.dumps([done.exit_code, known, done.output]))
"""
OP = """
import torch
import workbench as wb

@wb.op
def tripled(x):
    return 3 * x

tripled.case("small", x=wb.randn(64))
tripled.cuda(
    'extern "C" __global__ void f(float *out, const float *x) { out[threadIdx.x] = 3 * x[threadIdx.x]; }',
    tune={"N": (64,)}, grid=1, block="N",
)
"""
SWEEP = "paged_attention-cuda_thread_group-llama-3-8b-sim-a100-sxm-80gb"
COMMANDS = {
    "check OP": (0, "1 of 1 passed"),
    "compare OP": (2, "File too large"),
    "tune OP": (2, "tuning.sqlite: disk I/O error. Check that the folder can be written and has space"),
    "export OP FOLDER/tripled.py": (2, "tripled.py cannot be written: File too large. No part of it was written"),
    "export SWEEP FOLDER/sweep.json": (2, "sweep.json cannot be written"),
    "export SWEEP FOLDER/kept_tuned.json": (2, "kept_tuned.json cannot be written: File too large. The existing"),
    "bench attention --minutes 0.01 --out FOLDER/bench.json": (2, "bench.json cannot be written"),
    "doctor": (0, "cannot be written (File too large)"),
}
"""Exit status and what a command says where next to nothing can be written."""


@pytest.mark.long
def test_commands_on_a_full_disk_say_so_and_lose_nothing(tmp_path):
    (tmp_path / "full_op.py").write_text(OP)
    (tmp_path / "kept_tuned.json").write_text("old")
    names = {"OP": "full_op.py:tripled", "FOLDER": str(tmp_path), "SWEEP": SWEEP}
    commands = [re.sub("|".join(map(re.escape, names)), lambda one: names[one[0]], one).split() for one in COMMANDS]
    environment = os.environ | {"WORKBENCH_HOME": str(tmp_path / "home"), "WORKBENCH_CACHE": str(tmp_path / "cache")}
    # Python keeps bytecode that is cut off, and nobody could import that module again. Children inherit the variable.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", FULL, json.dumps(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(COMMANDS), done.stderr
    for (command, (status, words)), (code, known, output) in zip(COMMANDS.items(), found, strict=True):
        assert (code, known, words in " ".join(output.split())) == (status, True, True), f"{command}: {output}"
        assert "Correct" not in output
    assert (tmp_path / "kept_tuned.json").read_text() == "old"
    assert not list(tmp_path.rglob(".writing-*"))
