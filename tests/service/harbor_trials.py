"""Trials of Harbor with its oracle agent, each in a sandbox of bubblewrap for a container; prints their rewards.

A program for a Python that has Harbor, without the workbench: ``harbor_trials.py FOLDER TASK...``.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")
OWN = ("app", "tests", "solution", "logs", "installed-agent")


class Sandbox(BaseEnvironment):
    """A container's folders on this machine, which commands see as theirs."""

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        self._root = self.trial_paths.trial_dir / "root"

    @staticmethod
    def type() -> str:
        return "sandbox"

    def _validate_definition(self) -> None:
        assert (self.environment_dir / "Dockerfile").is_file()

    async def start(self, force_build: bool) -> None:
        for name in (*OWN, "logs/agent", "logs/verifier", "logs/artifacts"):
            (self._root / name).mkdir(parents=True, exist_ok=True)

    async def stop(self, delete: bool) -> None:
        pass

    def _here(self, path: str) -> Path:
        return self._root / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._here(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._here(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._here(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._here(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._here(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        words = ["bwrap", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", cwd or "/app"]
        for path in filter(lambda one: Path(one).exists(), SYSTEM):
            words += ["--ro-bind", path, path]
        for name in OWN:
            words += ["--bind", str(self._root / name), f"/{name}"]
        for name, value in (env or {}).items():
            words += ["--setenv", name, value]
        done = await asyncio.to_thread(
            subprocess.run, [*words, "bash", "-c", command], capture_output=True, text=True, timeout=timeout_sec
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)


async def reward(task: Path, trials: Path) -> float:
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=trials,
        agent=AgentConfig(name="oracle"),
        environment=EnvironmentConfig(import_path=f"{Path(__file__).stem}:Sandbox"),
    )
    result = await (await Trial.create(config)).run()
    if result.exception_info is not None:
        raise SystemExit(str(result.exception_info))
    return result.verifier_result.rewards["reward"]


async def main(folder: Path, tasks: list[str]) -> None:
    for name in tasks:
        print(await reward(folder / name, folder / "trials"), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
