"""The headers of cuBLAS and cuRAND come out of wheels of which nothing else is fetched."""

from __future__ import annotations

import http.server
import io
import os
import threading
import zipfile

import pytest

from workbench.driver.clients import library_headers
from workbench.errors import MissingToolError
from workbench.toolchain import tools

HEADERS = {"nvidia-cublas": "cublas_v2.h", "nvidia-curand": "curand_kernel.h"}
BESIDE = os.urandom(8 << 20)


def wheel(header: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(f"nvidia/cu13/include/{header}", f"// {header}")
        file.writestr("nvidia/cu13/lib/large.so", BESIDE)
    return made.getvalue()


class Server(http.server.BaseHTTPRequestHandler):
    ranges, sent = True, 0

    def do_GET(self):
        data = wheel(self.path.strip("/"))
        asked = self.headers.get("Range")
        if asked and self.ranges:
            first, last = map(int, asked.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            data = data[first : last + 1]
        else:
            self.send_response(200)
        self.end_headers()
        self.wfile.write(data)
        Server.sent += len(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def index(monkeypatch, tmp_path):
    monkeypatch.setattr(tools, "fetched_headers", lambda: tmp_path / "headers")
    monkeypatch.setattr(tools, "cuda_include", lambda: tmp_path / "toolkit")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(
        library_headers, "_url", lambda wanted: f"http://127.0.0.1:{server.server_port}/{HEADERS[wanted.split('=')[0]]}"
    )
    yield tmp_path / "headers"
    server.shutdown()


@pytest.mark.parametrize("ranges", [True, False])
def test_headers_are_fetched_once_and_alone_where_the_server_can(index, monkeypatch, ranges):
    monkeypatch.setattr(Server, "ranges", ranges)
    monkeypatch.setattr(Server, "sent", 0)
    said = []
    library_headers.fetch(said.append)
    assert {path.name: path.read_text() for path in index.iterdir()} == {
        name: f"// {name}" for name in HEADERS.values()
    }
    assert ["fetching" in line for line in said] == [True, True]
    assert (Server.sent < len(BESIDE)) == ranges
    before = Server.sent
    library_headers.fetch(said.append)
    assert said[2:] == [f"{index / name} is there" for name in HEADERS.values()]
    assert Server.sent == before


def test_a_wheel_without_the_header_and_no_index_are_told(index, monkeypatch):
    url = library_headers._url
    monkeypatch.setattr(library_headers, "_url", lambda wanted: url(wanted).replace("cublas_v2.h", "other.h"))
    with pytest.raises(MissingToolError, match=r"nvidia-cublas==\S+ has no cublas_v2.h"):
        library_headers.fetch(str)
    monkeypatch.setattr(library_headers, "_url", lambda wanted: "http://127.0.0.1:9/none")
    with pytest.raises(MissingToolError, match="cannot be read"):
        library_headers.fetch(str)
