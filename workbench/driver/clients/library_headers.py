"""The headers of cuBLAS and cuRAND: the ``include`` folders of NVIDIA's wheels, without their 500 MB of libraries.

A wheel is a zip file, whose members can be fetched one by one if the server answers range requests, as PyPI does.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

from workbench.base.files import replace_file
from workbench.errors import MissingToolError
from workbench.toolchain import tools

_LIBRARIES = {"nvidia-cublas": "cublas_v2.h", "nvidia-curand": "curand_kernel.h"}
_BLOCK = 1 << 20


def fetch(say: Callable[[str], object] = print) -> None:
    """Download missing headers into the workbench's own folder, in the versions that cuda-toolkit requires.

    Raises MissingToolError if the package index cannot be reached or has no such wheel.
    """
    folder = tools.fetched_headers()
    for package, header in _LIBRARIES.items():
        places = [tools.cuda_include(), folder]
        if found := next((place for place in places if (place / header).is_file()), None):
            say(f"{found / header} is there")
            continue
        wanted = f"{package}=={_version(package)}"
        say(f"fetching the headers of {wanted}")
        with zipfile.ZipFile(_opened(_url(wanted))) as wheel:
            for name in wheel.namelist():
                path = re.match(r"nvidia/cu\d+/include/(.*[^/])$", name)
                if path is not None and ".." not in name:
                    target = folder / path[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    replace_file(target, wheel.read(name))
        if not (folder / header).is_file():
            raise MissingToolError(f"The wheel of {wanted} has no {header}.")


def _version(package: str) -> str:
    """Return the version of a package that the installed cuda-toolkit requires."""
    for line in importlib.metadata.requires("cuda-toolkit") or []:
        if found := re.match(rf"{package}==([\d.*]+)", line):
            return found[1]
    raise MissingToolError(f"The installed cuda-toolkit does not state the version of {package}.")


def _url(wanted: str) -> str:
    """Return the URL from which pip would download a wheel."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--dry-run"]
    command += ["--ignore-installed", "--no-deps", "--report", "-", wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line.rstrip() for line in done.stderr.splitlines() if line.strip()]
        raise MissingToolError(
            "\n".join([f"pip cannot find {wanted}. Its headers come from a package index:", *lines[-6:]])
        )
    return str(json.loads(done.stdout)["install"][0]["download_info"]["url"])


def _opened(url: str) -> BinaryIO:
    """Open the wheel for reading in parts; download all of it if the server answers no range requests."""
    try:
        request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})
        with urllib.request.urlopen(request) as answer:
            length = re.match(r"bytes 0-0/(\d+)", answer.headers.get("Content-Range") or "")
            if answer.status != 206 or length is None:
                return io.BytesIO(answer.read())
        return io.BufferedReader(_Ranges(url, int(length[1])), _BLOCK)
    except OSError as error:
        raise MissingToolError(f"{url.partition('?')[0]} cannot be read: {error}") from error


class _Ranges(io.RawIOBase):
    """A file behind a URL; reading fetches only the bytes that are read."""

    def __init__(self, url: str, size: int):
        self._url, self._size, self._at = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._at)
        if count <= 0:
            return 0
        wanted = f"bytes={self._at}-{self._at + count - 1}"
        with urllib.request.urlopen(urllib.request.Request(self._url, headers={"Range": wanted})) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
