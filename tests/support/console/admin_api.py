"""The admin API for tests: the real server in a thread, on a real database, with a token a role."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import httpx
import psycopg
from psycopg.rows import dict_row

from holdfast.dispatcher.api.serving import server
from holdfast.dispatcher.api.settings import ApiSettings
from holdfast.dispatcher.operators.common.session import operator_connection
from holdfast.dispatcher.operators.tokens.store import Tokens
from holdfast.sink.contract.states import AccessRole
from tests.support.waiting import eventually

V1 = "/api/v1"
DAYS = 1


@dataclass
class Api:
    """A server that listens, and who may use it."""

    url: str
    dsn: str
    secrets: dict[str, str] = field(repr=False)
    """By the name of a role; the token is called after it."""

    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def ask(self, method: str, path: str, who: str | None = "admin", **more: Any) -> httpx.Response:
        """Ask as the holder of a role's token (None: as nobody), below /api/v1."""
        headers = more.pop("headers", {})
        if who is not None:
            headers = {"Authorization": f"Bearer {self.secrets[who]}", **headers}
        return self.client.request(method, self.url + V1 + path, headers=headers, **more)

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """What the database has."""
        with psycopg.connect(self.dsn, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def audited(self) -> list[tuple[str, str, str, str]]:
        """The audit trail from its beginning: action, target, actor, reason."""
        rows = self.rows(
            "SELECT action, target, actor, reason FROM holdfast.operator_action ORDER BY id"
        )
        return [tuple(row.values()) for row in rows]  # type: ignore[misc]


@contextmanager
def serving(dsn: str, **settings: Any) -> Iterator[Api]:
    """Serve until the block ends; the server has ended then, whatever happened."""
    secrets = {}
    with operator_connection(dsn) as connection:
        for role in AccessRole:
            made = Tokens(connection).add(role.value, role, days=DAYS, reason="a test")
            secrets[role.value] = made["secret"]
    listener = socket.create_server(("127.0.0.1", 0))
    running = server(ApiSettings(dsn, **settings))
    thread = Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    api = Api(f"http://127.0.0.1:{listener.getsockname()[1]}", dsn, secrets)
    try:
        eventually(lambda: running.started or not thread.is_alive())
        yield api
    finally:
        api.client.close()
        running.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()
