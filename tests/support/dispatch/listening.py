"""The server of `holdfast listen` in this process, on a free port, with a real client before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from holdfast.dispatcher.workbench.listen.listener import Listener
from holdfast.dispatcher.workbench.listen.misbehaviour import Misbehaviour
from holdfast.dispatcher.workbench.listen.record import Arrival, Report
from holdfast.dispatcher.workbench.listen.server import Server
from holdfast.receiver import Secret
from tests.support.dispatch.sender import KEY_BYTES, Sent

GOOD = Misbehaviour()


@dataclass
class Listening:
    """A running listener and the arrivals that it reported."""

    url: str
    listener: Listener
    server: Server
    client: httpx.Client
    heard: list[Arrival] = field(default_factory=list)
    unanswered: list[Arrival] = field(default_factory=list)

    def send(self, sent: Sent) -> httpx.Response:
        return self.client.post(self.url, content=sent.content, headers=sent.headers)

    def report(self, *expected: str, gaps_allowed: bool = False) -> Report:
        return self.listener.report(expected or None, gaps_allowed=gaps_allowed)


@contextmanager
def listening(asked: Misbehaviour = GOOD, *, seed: int = 1) -> Iterator[Listening]:
    """Listen until the block ends."""
    heard: list[Arrival] = []
    unanswered: list[Arrival] = []
    listener = Listener(
        [Secret(KEY_BYTES)],
        asked,
        seed=seed,
        subject_member="merchant_id",
        on_arrival=heard.append,
        unanswered=unanswered.append,
    )
    with Server("127.0.0.1", 0, "/webhooks") as server, httpx.Client(timeout=30) as client:
        server.start(listener, lambda: None)
        host, port = server.address
        url = f"http://{host}:{port}/webhooks"
        try:
            yield Listening(url, listener, server, client, heard, unanswered)
        finally:
            server.stop()
