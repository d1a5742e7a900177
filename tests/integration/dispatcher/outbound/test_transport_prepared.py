"""The asyncio engine resolves the name of an endpoint when that is loaded, before it is needed."""

import asyncio
from collections.abc import Sequence

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.outcome import Answer, NotSent, Response
from tests.support.dispatch.transports import LOOPBACK, REQUEST
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.waiting import eventually

NAME = "receiver.test"


class Names:
    """A resolver that counts how often it was asked, and waits to be allowed to answer."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked = 0
        self.answers = asyncio.Event()
        self._fails = fails

    async def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.asked += 1
        await self.answers.wait()
        if self._fails and self.asked == 1:
            raise OSError("the resolver is away")
        return ["127.0.0.1"]


def _named(receiver: WebhookReceiver, total: float = 10) -> Target:
    return Target(1, receiver.url.replace(receiver.host, NAME), LOOPBACK, 5, total)


async def _loaded(names: Names, target: Target) -> AsyncioTransport:
    transport = AsyncioTransport(resolve=names)
    assert transport.fault(target) is None
    for _ in range(2):  # loads of endpoints, a second apart
        await transport.retain([target])
    return transport


def test_first_request_finds_a_client_whose_name_is_resolved(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        names.answers.set()
        channel = transport._channel(_named(receiver))
        await asyncio.to_thread(eventually, lambda: channel.dialer.fresh)
        assert await transport.send(_named(receiver), REQUEST, Progress()) == Response(200)
        assert names.asked == 1
        await transport.close()

    asyncio.run(work())


def test_concurrent_request_waits_for_the_same_client(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        sending = asyncio.create_task(transport.send(_named(receiver), REQUEST, Progress()))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        names.answers.set()
        assert await sending == Response(200)
        assert names.asked == 1
        await transport.close()

    asyncio.run(work())


def test_unresolved_name_is_resolved_for_the_request(
    receiver: WebhookReceiver,
) -> None:
    async def work() -> list[Answer]:
        names = Names(fails=True)
        names.answers.set()
        transport = await _loaded(names, _named(receiver))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        answers = [await transport.send(_named(receiver), REQUEST, Progress())]
        assert names.asked == 2
        await transport.close()
        return answers

    assert asyncio.run(work()) == [Response(200)]


def test_transport_is_closed_while_a_name_is_being_resolved(receiver: WebhookReceiver) -> None:
    async def work() -> None:
        names = Names()
        transport = await _loaded(names, _named(receiver))
        await asyncio.to_thread(eventually, lambda: names.asked == 1)
        async with asyncio.timeout(60):
            await transport.close()
        answer = await transport.send(_named(receiver, 0.2), REQUEST, Progress())
        assert isinstance(answer, NotSent)
        await transport.close()

    asyncio.run(work())
