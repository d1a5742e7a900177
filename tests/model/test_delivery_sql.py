"""Delivery on a real Postgres, step by step beside the twin of its model."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.servers.databases import copy_of
from tests.support.twins.outbox import Outbox

ENDPOINT = "payouts"


@pytest.fixture(scope="module")
def outbox(server_dsn: str, template_database: str) -> Iterator[Outbox]:
    """An outbox with two dispatchers, which every test begins anew."""
    with (
        copy_of(server_dsn, template_database) as dsn,
        pytest.MonkeyPatch.context() as patch,
        ExitStack() as stack,
    ):
        patch.setenv(SECRET, secret_text())
        yield Outbox(dsn, ["one", "two"], stack)


def test_late_result_counts_for_nothing_and_the_key_protects(outbox: Outbox) -> None:
    start = outbox.take()
    outbox.add_endpoint(ENDPOINT)
    outbox.begin(outbox.take())
    one, two = outbox.dispatchers.values()
    (key,) = outbox.ingest("m_1")
    outbox.loop.run(one.store.route(1))
    (stalled,) = outbox.loop.run(one.claim(1, 1))
    outbox.loop.run(one.send(stalled))
    outbox.expire(stalled.lane.token)
    outbox.loop.run(two.store.rescue(1))
    (again,) = outbox.loop.run(two.claim(1, 1))
    outbox.loop.run(two.send(again))
    for dispatcher, held in ((two, again), (one, stalled)):
        assert held.request is not None
        outbox.receiver.receive(held.request)
        outbox.loop.run(dispatcher.answer(held, held.request.answer))
    assert outbox.loop.run(one.settle(stalled)) == []
    assert len(outbox.loop.run(two.settle(again))) == 1
    seen = outbox.look()
    assert seen.attempts == {(ENDPOINT, "m_1", 1): ["unknown", "delivered"]}
    assert seen.lanes[ENDPOINT, "m_1"].state == "idle"
    assert seen.actions == {key: 1}
    outbox.check()
    outbox.begin(start)
