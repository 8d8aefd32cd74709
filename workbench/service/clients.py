"""Clients of a server: who may submit, by a bearer token, and how much."""

from __future__ import annotations

import hmac
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workbench.base.files import replace_file
from workbench.errors import ArgumentError

QUEUED = 256
"""Unfinished submissions that a client may have unless its table says otherwise."""

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Client:
    """One client: its token, the most unfinished submissions it may have, and the highest priority it may ask for."""

    name: str
    token: str
    queued: int = QUEUED
    priority: int = 0

    def __post_init__(self) -> None:
        name = f"clients: {self.name}"
        if not isinstance(self.token, str) or len(self.token) < _SHORTEST_TOKEN or not self.token.isascii():
            remedy = 'Make one: python -c "import secrets; print(secrets.token_urlsafe())"'
            raise ArgumentError(name, "another token", f"{_SHORTEST_TOKEN} or more ASCII characters", remedy)
        if not isinstance(self.queued, int) or self.queued < 1 or not isinstance(self.priority, int):
            got = f"queued = {self.queued!r}, priority = {self.priority!r}"
            raise ArgumentError(name, got, "queued = 1 or more, priority a whole number", "Correct the table.")


class Clients:
    """The clients of a server, by their tokens."""

    def __init__(self, known: tuple[Client, ...]):
        self._known = known

    @classmethod
    def read(cls, file: Path) -> Clients:
        """Return the clients of a TOML file: a table for each with ``token``, ``queued`` and ``priority``.

        Raises ArgumentError.
        """
        remedy = '[trainer]\\ntoken = "..."\\nqueued = 512\\npriority = 10'
        allowed = {one.name for one in fields(Client)} - {"name"}
        try:
            tables: Mapping[str, Any] = tomllib.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise ArgumentError("clients", f"{file}: {error}", "a TOML file", remedy) from error
        wrong = [name for name, one in tables.items() if not isinstance(one, dict) or {*one} - allowed]
        if wrong or not tables:
            got = f"{file}: {wrong[0] if wrong else 'empty'}"
            raise ArgumentError("clients", got, f"a table for each client with {', '.join(sorted(allowed))}", remedy)
        return cls(tuple(Client(name, **{"token": ""} | table) for name, table in tables.items()))

    @classmethod
    def one(cls, state: Path) -> tuple[Clients, Path]:
        """Return one client, with the token that the file ``token`` of a folder has, and that file.

        The file is made if there is none, for this account alone to read.
        """
        file = state / "token"
        if not file.exists():
            replace_file(file, secrets.token_urlsafe() + "\n", durable=True, mode=0o600)
        return cls((Client("default", file.read_text().strip(), priority=100),)), file

    def of(self, token: str) -> Client | None:
        """Return the client with that token, compared in constant time, or None."""
        given = token.encode()
        found = [one for one in self._known if hmac.compare_digest(one.token.encode(), given)]
        return found[0] if found else None
