"""The API server's watch of the schema, where the database answers nothing. Doubled: the pool."""

from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.dispatcher.api import serving


class Silent:
    """A pool whose database answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers = Event(), Event()

    def misfit(self) -> None:
        self.asked.set()
        self.answers.wait()


def test_server_ends_while_its_watch_waits_for_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "WATCH_SECONDS", 0.01)
    pool = Silent()
    app = SimpleNamespace(state=SimpleNamespace(pool=pool))
    running: Any = SimpleNamespace(config=SimpleNamespace(app=app), should_exit=False)
    answering = Timer(30, pool.answers.set)
    answering.start()
    try:
        with serving._watched(running) as found:
            assert pool.asked.wait(60)
        assert not pool.answers.is_set()
        assert found == []
    finally:
        answering.cancel()
        pool.answers.set()
