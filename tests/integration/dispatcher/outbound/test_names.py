"""Names are resolved by a real name server on this machine, also by one that misbehaves."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import uvloop

from holdfast.deploy.local.ports import free_port
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport import dialing, names
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.guard import AddressRefusedError, Guard, ResolveError
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.outbound.transport.transport import Progress
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.outcome import Response
from tests.support.dispatch import webhooks
from tests.support.dispatch.name_server import MANY, NameServer, name_server
from tests.support.dispatch.transports import LOOPBACK, REQUEST, answering
from tests.support.dispatch.webhooks import WebhookReceiver

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """The name server that this process asks, with a search domain."""
    with name_server() as server:
        channel = import_module("pycares").Channel(
            tries=names.TRIES, servers=[server.address], domains=["corp.test"]
        )
        monkeypatch.setattr(names, "_channel", lambda: channel)
        yield server
        channel.close()


def resolved(host: str) -> list[str]:
    return sorted(asyncio.run(system_addresses(host, 443)))


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("good.test", 1),
        ("late.test", 1),
        ("truncated.test", 1),
        ("many.test", MANY),
        ("localhost", None),
    ],
)
@pytest.mark.usefixtures("server")
def test_name_with_addresses_is_resolved(host: str, addresses: int | None) -> None:
    result = resolved(host)
    assert result
    assert addresses is None or len(result) == addresses


def test_name_in_the_file_of_hosts_is_not_asked_for(server: NameServer) -> None:
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    known = [
        words[1] for words in lines if words and not words[1].startswith(("localhost", "ip6-"))
    ]
    if not known:
        pytest.skip("/etc/hosts names this machine alone")
    addresses = [words[0] for words in lines if known[0] in words[1:]]
    assert resolved(known[0]) == sorted(addresses)
    assert not server.asked


def test_name_without_a_dot_is_searched(server: NameServer) -> None:
    assert resolved("payouts") == ["127.0.0.1"]
    assert server.asked["payouts.corp.test"] == 1


def test_failing_search_domain_is_passed_over(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = import_module("pycares").Channel(
        tries=names.TRIES, servers=[server.address], domains=["broken.test"], ndots=5
    )
    monkeypatch.setattr(names, "_channel", lambda: channel)
    assert resolved("api.partner.test") == ["127.0.0.1"]
    assert server.asked["api.partner.test.broken.test"]
    channel.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f.1", "::1"])
def test_numeric_address_is_not_asked_for(server: NameServer, host: str) -> None:
    assert resolved(host) == ["::1" if host == "::1" else "127.0.0.1"]
    assert not server.asked


@pytest.mark.parametrize("host", ["unknown.test", "failing.test", "loop.test", "bad..test"])
@pytest.mark.usefixtures("server")
def test_name_without_an_address_is_an_error_of_its_endpoint(host: str) -> None:
    with pytest.raises(ResolveError, match=host):
        asyncio.run(Guard(LOOPBACK, encrypted=True).addresses(host, 443, 60))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("server")
def test_silent_names_delay_no_other_name(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def work() -> None:
        guard = Guard(LOOPBACK, encrypted=True)
        silent = [
            asyncio.create_task(guard.addresses(f"silent-{n}.test", 443, 60)) for n in range(100)
        ]
        async with asyncio.timeout(30):
            assert await guard.addresses("late.test", 443, 60) == ["127.0.0.1"]
        assert not any(each.done() for each in silent)
        for each in silent:
            each.cancel()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(work())


def test_addresses_stay_in_use_while_a_renewal_hangs(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        return ["127.0.0.1"]

    async def work() -> None:
        transport = AsyncioTransport(resolve=resolve)
        url = receiver.url.replace(receiver.host, "receiver.test")
        target = Target(1, url, LOOPBACK, 60, 60)
        async with asyncio.timeout(30):
            for _ in range(5):
                assert await transport.send(target, REQUEST, Progress()) == Response(200)
            await transport.close()

    monkeypatch.setattr(dialing, "RESOLVED_SECONDS", 0)
    monkeypatch.setattr(dialing, "RENEWAL_PATIENCE_SECONDS", 0.01, raising=False)
    asyncio.run(work())
    assert asked == 2, "one renewal is under way, however many requests need it"


def test_refusal_after_a_slow_renewal_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = asyncio.Event()
    asked = 0

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        nonlocal asked
        asked += 1
        if asked == 1:
            return ["127.0.0.1"]
        await moved.wait()
        return ["169.254.169.254"]

    async def work() -> None:
        url = httpx.URL("https://receiver.test/")
        guard = Guard(LOOPBACK, encrypted=True, resolve=resolve)
        dialer = dialing.Dialer(Target(1, str(url), LOOPBACK, 60, 60), url, guard, None)
        with monkeypatch.context() as once:
            once.setattr(dialing, "RESOLVED_SECONDS", 0)
            await dialer.look_up()
        await dialer.look_up()
        assert dialer.addresses == ("127.0.0.1",)
        moved.set()
        async with asyncio.timeout(30):
            while dialer.addresses:  # noqa: ASYNC110 - there is no event of it
                await asyncio.sleep(0)
        with pytest.raises(AddressRefusedError):
            await dialer.look_up()
        await dialer.close()

    monkeypatch.setattr(dialing, "RENEWAL_PATIENCE_SECONDS", 0.01)
    asyncio.run(work())


def test_idle_connection_to_an_address_that_its_name_left_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [seconds()]
    resolve = answering(["127.0.0.2"], ["127.0.0.3"])

    async def work() -> None:
        transport = AsyncioTransport(resolve=resolve)
        target = Target(1, second.url.replace(second.host, "receiver.test"), LOOPBACK, 5, 10)
        for receiver in (second, third):
            assert await transport.send(target, REQUEST, Progress()) == Response(200)
            assert len(receiver.seen) == 1
            now.append(now[-1] + dialing.RESOLVED_SECONDS)
        await transport.close()

    monkeypatch.setattr(dialing, "seconds", lambda: now[-1])
    port = free_port()
    with (
        webhooks.listening(host="127.0.0.2", port=port) as second,
        webhooks.listening(host="127.0.0.3", port=port) as third,
    ):
        asyncio.run(work())
