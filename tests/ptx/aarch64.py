"""An aarch64 Python for tests under qemu-user: ``python tests/ptx/aarch64.py FOLDER`` fetches it from Debian and PyPI.

Nothing is installed: packages are unpacked into ``FOLDER/root`` (Python 3.11 and what it is linked with, of Debian 12)
and ``FOLDER/site`` (what the PTX machine and its tests import, with NVRTC, of the versions in constraints.txt).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DEBIAN = (
    "python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libpython3.11-dev libc6 libcrypt1 "
    "libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libssl3 libuuid1"
)
PYPI = (
    "numpy pytest click rich platformdirs cloudpickle tqdm "
    "nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
)
SETTINGS = """
APT::Architectures {{ "amd64"; "arm64"; }};
APT::Sandbox::User "root";
Dir::State "{apt}";
Dir::State::status "{apt}/status";
Dir::Cache "{apt}";
Dir::Etc::sourcelist "{apt}/sources.list";
Dir::Etc::sourceparts "-";
"""
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [arch=arm64 signed-by={KEYS}] http://deb.debian.org/debian bookworm main"


def fetch(folder: Path) -> None:
    """Fetch and unpack all of it."""
    apt, root = folder / "apt", folder / "root"
    for made in (apt / "lists" / "partial", apt / "archives" / "partial", root):
        made.mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(SOURCE + "\n")
    (apt / "settings").write_text(SETTINGS.format(apt=apt))
    apt_get = ["apt-get", "-q", "-c", str(apt / "settings")]
    subprocess.run([*apt_get, "update"], check=True)
    subprocess.run([*apt_get, "download", *(f"{name}:arm64" for name in DEBIAN.split())], cwd=apt, check=True)
    for package in apt.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(folder / "site"), *platforms]
    pip += ["--python-version=3.11", "--only-binary=:all:", "-c", str(CHECKOUT / "constraints.txt")]
    subprocess.run([*pip, *PYPI.split()], check=True)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]).resolve())
