"""The kit's client: each answer is graded as that of its own request."""

import asyncio

from holdfast.dispatcher.workbench.conform.client import Client
from holdfast.dispatcher.workbench.conform.shot import Shot
from tests.support.dispatch.hasty import hasty
from tests.support.dispatch.webhooks import response

SHOT = Shot("hf_0", ((b"content-type", b"application/json"),), b'{"type":"payout_hold"}')


def test_body_that_is_left_unread_never_spoils_the_next_answer() -> None:
    with hasty(response(401)) as receiver:
        receiver.goes_on.set()

        async def work() -> list[int | None]:
            async with Client(receiver.url, 10) as client:
                return [(await client.send(SHOT)).status for _ in range(2)]

        assert asyncio.run(work()) == [401, 200]
