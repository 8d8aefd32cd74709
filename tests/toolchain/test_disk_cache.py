"""The cache gives back exactly what was stored, or nothing: whatever happened to the file in between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench.errors import ArgumentError, DamagedFileWarning, UnsafeFileError
from workbench.toolchain import disk_cache

BLOBS = {"header": b'{"a": 1}', "ptx": b".version 8.0\n" * 50, "cubin": bytes(range(256)) * 20, "empty": b""}
KEY = disk_cache.content_key(["a test"])


def test_gives_back_what_was_stored(fresh_home: Path):
    assert disk_cache.load(KEY) is None
    assert disk_cache.store(KEY, BLOBS)
    assert disk_cache.load(KEY) == BLOBS
    assert fresh_home in disk_cache.entry_path(KEY).parents


@pytest.mark.parametrize("where", [0, 10, 20, 60, 200, -1])
def test_a_flipped_byte_makes_an_entry_absent_and_removes_it(fresh_home: Path, where: int):
    disk_cache.store(KEY, BLOBS)
    path = disk_cache.entry_path(KEY)
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)
    with pytest.warns(DamagedFileWarning, match=f"{KEY}.bin is damaged"):
        assert disk_cache.load(KEY) is None
    assert not path.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk_cache.load(KEY) is None


@pytest.mark.parametrize("size", [0, 1, 18, 40, 50, 58, 1000])
def test_a_truncated_entry_is_absent(fresh_home: Path, size: int):
    disk_cache.store(KEY, BLOBS)
    path = disk_cache.entry_path(KEY)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.warns(DamagedFileWarning):
        assert disk_cache.load(KEY) is None
    assert disk_cache.store(KEY, BLOBS)
    assert disk_cache.load(KEY) == BLOBS


def test_appended_bytes_make_an_entry_absent(fresh_home: Path):
    disk_cache.store(KEY, BLOBS)
    path = disk_cache.entry_path(KEY)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.warns(DamagedFileWarning):
        assert disk_cache.load(KEY) is None


def test_keys_tell_every_part_apart():
    parts = [["a", "b"], ["ab"], [["a"], "b"], {"a": 1}, {"a": "1"}, {"a": 1.5}, [None], []]
    assert len({disk_cache.content_key(part) for part in parts}) == len(parts)
    assert disk_cache.content_key({"a": 1, "b": 2}) == disk_cache.content_key({"b": 2, "a": 1})


def test_a_reader_never_sees_half_an_entry(fresh_home: Path):
    """Writers in three processes and readers in two threads, all on one key."""
    code = (
        "import sys; from workbench.toolchain import disk_cache as c\n"
        "for i in range(60): c.store(sys.argv[1], {'n': bytes([i]) * 40000})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, KEY]) for _ in range(3)]

    def read() -> list[bytes]:
        seen = []
        while any(writer.poll() is None for writer in writers):
            blobs = disk_cache.load(KEY)
            if blobs is not None:
                seen.append(blobs["n"])
        return seen

    with ThreadPoolExecutor(2) as pool:
        seen = [blob for future in [pool.submit(read), pool.submit(read)] for blob in future.result()]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen
    assert all(len(blob) == 40000 and len(set(blob)) == 1 for blob in seen)
    # Once written, an entry is there at every moment: each reader saw it, and no temporary file stays behind.
    assert disk_cache.load(KEY) is not None
    assert [path.name for path in disk_cache.entry_path(KEY).parent.iterdir()] == [disk_cache.entry_path(KEY).name]


def test_a_file_in_place_of_the_folder_is_no_error(fresh_home: Path):
    fresh_home.write_text("in the way")
    assert disk_cache.store(KEY, BLOBS) is False
    assert disk_cache.load(KEY) is None


def test_trimming_removes_what_was_not_read_for_longest(fresh_home: Path):
    keys = [disk_cache.content_key(["entry", number]) for number in range(10)]
    for age, key in enumerate(keys):
        disk_cache.store(key, {"blob": bytes(1000)})
        os.utime(disk_cache.entry_path(key), (1000 + age, 1000 + age))
    assert disk_cache.load(keys[0]), "read now: the oldest is the newest"
    size = disk_cache.entry_path(keys[0]).stat().st_size
    assert disk_cache.trim(10 * size) == 0
    assert disk_cache.trim(10 * size - 1) == 2 * size, "9/10 of that is just below 9 entries"
    assert disk_cache.trim(5 * size) == 4 * size
    assert [key for key in keys if disk_cache.load(key)] == [keys[0], *keys[7:]]


def test_trimming_leaves_what_is_being_written(fresh_home: Path):
    disk_cache.store(KEY, BLOBS)
    folder = disk_cache.entry_path(KEY).parent
    for name, age in ((".writing-now", 0), (".writing-dead", 7200)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    disk_cache.trim()
    assert (folder / ".writing-now").exists()
    assert not (folder / ".writing-dead").exists()


OTHERS = ("torch_device/operators.so", "torch_device/.lock", "programs/program.bin", "triton_device/a/kernel.ptx")


def test_trimming_leaves_what_has_another_owner(fresh_home: Path):
    disk_cache.store(KEY, BLOBS)
    others = [disk_cache.cache_folder() / name for name in OTHERS]
    others.append(disk_cache.entry_path(KEY).with_name("notes.bin"))
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"compiled")
        os.utime(path, (1000, 1000))
    assert disk_cache.trim(0) == len(disk_cache._pack(BLOBS))
    assert all(path.exists() for path in others)


def test_a_cache_that_others_can_write_is_refused(fresh_home: Path):
    disk_cache.store(KEY, BLOBS)
    entry = disk_cache.entry_path(KEY)
    for path, mode in ((entry.parent, 0o700), (disk_cache.cache_folder(), 0o700), (entry, 0o644)):
        path.chmod(mode | 0o022)
        with pytest.raises(UnsafeFileError, match="chmod -R go-w"):
            disk_cache.load(KEY)
        if path != entry:  # a file is replaced
            with pytest.raises(UnsafeFileError, match="chmod -R go-w"):
                disk_cache.store(KEY, BLOBS)
        path.chmod(mode)
    assert disk_cache.load(KEY) == BLOBS


def test_a_process_keeps_the_folder_within_the_limit(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_CACHE_BYTES", "20000")
    for number in range(2 * disk_cache._LOOK_EVERY):
        disk_cache.store(disk_cache.content_key(["many", number]), {"blob": bytes(100)})
    entries = list(disk_cache.cache_folder().glob("*/*.bin"))
    assert sum(path.stat().st_size for path in entries) < 20000 + 256 * 300
    assert len(entries) < 2 * disk_cache._LOOK_EVERY


def test_a_limit_that_is_no_number_is_refused(fresh_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORKBENCH_CACHE_BYTES", "2 GB")
    with pytest.raises(ArgumentError, match="whole number of bytes"):
        disk_cache.limit_bytes()


def test_a_temporary_home_ends_with_its_process_and_leaves_compilations_where_they_are(fresh_home: Path):
    code = "\n".join(
        (
            "from workbench.base.home import home, temporary_home",
            "from workbench.toolchain import disk_cache",
            "temporary_home()",
            "(home() / 'tuned').mkdir()",
            "disk_cache.store(disk_cache.content_key('it'), {'ptx': b'kept'})",
            "print(home())",
        )
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told
    assert Path(told) != fresh_home
    assert not Path(told).exists()
    assert disk_cache.load(disk_cache.content_key("it")) == {"ptx": b"kept"}
