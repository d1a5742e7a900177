"""A dispatcher is killed at each of its named points; the next one finishes its work.

Real: the command in its own process, SIGKILL, Postgres, the receiver's socket. The dispatcher that
comes after runs in this process. Asserted: the invariants, over the tables and what arrived, and
how often an entry was sent again.
"""

import signal
import ssl

import pytest
import trustme

from holdfast.dispatcher.outbound.transport.engines import EngineName
from tests.support.dispatch import webhooks
from tests.support.dispatch.delivery import expire_leases
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.waiting import eventually
from tests.support.world import SHORT, World

pytestmark = pytest.mark.faults

SUBJECTS = [f"m_{n}" for n in range(4)]
ALL_THREE = {name: {1, 2, 3} for name in SUBJECTS}

IN_ENGINES = [
    pytest.param("D8=kill@3", "asyncio"),
    *(
        pytest.param(point, engine, marks=pytest.mark.rest)
        for point in ("D4=kill", "D5=kill", "D7=kill@3", "D8=kill@3", "D9=kill@3")
        for engine in ("httpx", "asyncio")
        if (point, engine) != ("D8=kill@3", "asyncio")
    ),
]
ELSEWHERE = [
    "D3=kill@3",
    *(
        pytest.param(point, marks=pytest.mark.rest)
        for point in ("D1=kill", "D2=kill", "D10=kill@3", "D11=kill")
    ),
]


def _die(world: World, point: str, engine: EngineName | None = None, *options: str) -> None:
    """Run a dispatcher that is killed at the point."""
    options = (*SHORT, *options)
    with world.dispatch("dying", *options, engine=engine, failpoints=point) as dying:
        assert dying.ends() == -signal.SIGKILL, dying.text()


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("point", ELSEWHERE)
def test_killed_dispatcher_loses_nothing_and_repeats_only_the_unknown(
    world: World, point: str
) -> None:
    # A claim from an endpoint without a limit may be one message with its COMMIT, and never open.
    world.endpoint(rate_per_second=10_000 if point == "D1=kill" else None)
    world.decisions.write(*SUBJECTS * 3)
    _die(world, point)
    world.heal()
    assert {name: set(world.receiver.sequences(name)) for name in SUBJECTS} == ALL_THREE


@pytest.mark.rest
@pytest.mark.parametrize(("point", "routed"), [("D18=kill", False), ("D2=kill@2", True)])
def test_dispatcher_killed_as_it_routes_and_claims_at_once_loses_nothing(
    world: World, point: str, routed: bool
) -> None:
    """Batches come one by one, rung, while nothing else is under way."""
    world.endpoint()
    query = "SELECT routed_at IS NOT NULL FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1"
    written = 0
    with world.dispatch("dying", "--doorbell", failpoints=point) as dying:
        dying.says("dispatcher.started")
        while dying.process.poll() is None:
            written += 1
            world.decisions.write("m_1")
            eventually(
                lambda done=written: (
                    dying.process.poll() is not None
                    or world.value("SELECT max(delivered_sequence) FROM holdfast.lane") == done
                )
            )
        assert dying.ends() == -signal.SIGKILL, dying.text()
    assert world.value(query) is routed
    world.heal()
    assert set(world.receiver.sequences("m_1")) == set(range(1, written + 1))


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(("point", "engine"), IN_ENGINES)
def test_dispatcher_killed_within_a_request_repeats_only_the_unknown(
    world: World, point: str, engine: EngineName
) -> None:
    world.endpoint()
    world.decisions.write(*SUBJECTS * 3)
    _die(world, point, engine)
    world.heal(engine=engine)
    assert {name: set(world.receiver.sequences(name)) for name in SUBJECTS} == ALL_THREE


@pytest.mark.rest
@pytest.mark.parametrize("engine", ["httpx", "asyncio"])
def test_dispatcher_killed_before_the_handshake_has_sent_nothing(
    world: World, engine: EngineName
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = world.tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    with webhooks.listening(context) as receiver:
        world.endpoint(f"{receiver.url}/payouts")
        world.decisions.write(*SUBJECTS)
        _die(world, "D6=kill", engine, "--ca-file", str(file))
        assert receiver.seen == []
        world.heal(receiver, engine=engine, ca_file=file)


@pytest.mark.rest
def test_dispatcher_killed_at_its_heartbeat_loses_nothing(world: World) -> None:
    """The first sign of life comes before anything is sent, the second while requests run."""
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.decisions.write(*SUBJECTS * 2)
    with world.dispatch("dying", "--drain", failpoints="D12=kill@2") as dying:
        assert dying.ends() == -signal.SIGKILL, dying.text()
    gate.open()
    assert sorted(seen.subject for seen in world.receiver.seen) == SUBJECTS
    world.heal()
    assert world.unknown() >= len(SUBJECTS)


@pytest.mark.rest
def test_rescuer_killed_before_commit_books_nothing_twice(world: World) -> None:
    world.endpoint()
    world.decisions.write(*SUBJECTS * 3)
    _die(world, "D8=kill@2")
    expire_leases(world.db)
    _die(world, "D13=kill")
    assert world.unknown() == 0
    world.heal()
    assert world.unknown() > 0


@pytest.mark.rest
def test_dispatcher_killed_while_it_winds_down_loses_nothing(world: World) -> None:
    world.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.decisions.write(*SUBJECTS * 3)
    with world.dispatch("dying", "--stop-seconds", "10", failpoints="D14=kill") as dying:
        dying.until(lambda: len(world.receiver.seen) == len(SUBJECTS))
        dying.terminate()
        assert dying.ends() == -signal.SIGKILL, dying.text()
    gate.open()
    world.heal()


@pytest.mark.rest
@pytest.mark.parametrize("point", ["D11=kill", "D15=kill"])
def test_dispatcher_killed_as_it_sets_the_next_attempt_sets_none(world: World, point: str) -> None:
    world.endpoint(schedule_seconds=[3600] * 3)
    world.receiver.script = lambda _seen: answer(503)
    world.decisions.write(*SUBJECTS * 2)
    _die(world, point)
    assert world.value("SELECT count(*) FROM holdfast.attempt") == 0
    assert world.value("SELECT count(*) FROM holdfast.lane WHERE token IS NULL") == 0
    world.receiver.script = lambda _seen: answer(200)
    world.heal()
