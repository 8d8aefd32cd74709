"""Folders and files of caches: whose they are, who can write them, and if they are whole."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.base import own_files
from workbench.base.own_files import own_folder, require_own, seal, sealed
from workbench.errors import DamagedFileWarning, FileError, UnsafeFileError


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_folders_are_made_for_this_account_alone(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        folder = own_folder(tmp_path / "cache", "programs", "one")
        seal(write(folder / "library.so"))
    finally:
        os.umask(before)
    for one in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
    assert sealed(folder / "library.so")
    assert own_folder(tmp_path / "cache", "programs", "one") == folder


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o707])
@pytest.mark.parametrize("level", [0, 1])
def test_a_folder_that_others_can_write_is_refused_with_the_remedy(tmp_path: Path, mode: int, level: int):
    inner = own_folder(tmp_path / "cache", "programs")
    [inner.parent, inner][level].chmod(mode)
    with pytest.raises(UnsafeFileError, match=rf"mode {mode:04o}.*chmod -R go-w {inner.parent}.*go-w,a\+rX"):
        own_folder(tmp_path / "cache", "programs")
    [inner.parent, inner][level].chmod(0o755)  # the remedy: others may read
    assert own_folder(tmp_path / "cache", "programs") == inner


@pytest.mark.parametrize(
    ("mine", "owner", "fits"), [(1000, 1000, True), (1000, 0, True), (1000, 1001, False), (0, 1000, False)]
)
def test_files_of_another_account_are_refused_but_for_root(
    monkeypatch: pytest.MonkeyPatch, mine: int, owner: int, fits: bool
):
    monkeypatch.setattr(os, "geteuid", lambda: mine)
    found = SimpleNamespace(st_uid=owner, st_mode=0o100644)
    if fits:
        require_own(Path("/kept/library.so"), found)
        return
    with pytest.raises(
        UnsafeFileError, match=rf"library.so belongs to .*uid {owner}.*chown -R {mine} /kept.*WORKBENCH_CACHE"
    ):
        require_own(Path("/kept/library.so"), found, Path("/kept"))


def test_a_folder_that_cannot_be_made_names_the_variables(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="WORKBENCH_CACHE or WORKBENCH_HOME"):
        own_folder(tmp_path / "file", "programs")


def write(path: Path, content: bytes = b"\x7fELF" + bytes(5000)) -> Path:
    path.write_bytes(content)
    return path


def test_a_sealed_file_is_found_whole_and_an_absent_one_is_absent(tmp_path: Path):
    assert not sealed(tmp_path / "library.so")
    seal(write(tmp_path / "library.so"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sealed(tmp_path / "library.so")


def cut(data: bytearray, size: int) -> None:
    del data[size:]


DAMAGE = {
    "empty": lambda data: cut(data, 0),
    "cut": lambda data: cut(data, 4096),
    "cut in its seal": lambda data: cut(data, len(data) - 1),
    "a bit": lambda data: data.__setitem__(100, 1),
    "of the digest": lambda data: data.__setitem__(-30, data[-30] ^ 1),
    "longer": lambda data: data.extend(b"x"),
    "without seal": lambda data: cut(data, len(data) - own_files._SEAL_BYTES),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_thrown_away_once_and_named(tmp_path: Path, damage: str):
    path = write(tmp_path / "library.so")
    seal(path)
    data = bytearray(path.read_bytes())
    DAMAGE[damage](data)
    path.write_bytes(data)
    with pytest.warns(DamagedFileWarning, match=r"library\.so is damaged.*removed"):
        assert not sealed(path)
    assert not path.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not sealed(path)


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path):
    path = write(tmp_path / "library.so")
    path.chmod(0o666)
    seal(path)
    assert sealed(path), "sealing closes it"
    path.chmod(0o666)
    with pytest.raises(UnsafeFileError, match=r"library\.so can be written by every account"):
        sealed(path)
