"""What all tests share: gpu tests are skipped, with the device's own reason, where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    from workbench import devices
    from workbench.errors import DeviceUnavailableError

    try:
        devices.get("cuda")
    except DeviceUnavailableError as error:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the workbench's home, so that nothing comes from an earlier run's cache."""
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
