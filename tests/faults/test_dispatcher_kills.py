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
from tests.support.dispatch.scene import SHORT, Scene
from tests.support.dispatch.webhooks import Gate, answer
from tests.support.waiting import eventually

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


def _die(scene: Scene, point: str, engine: EngineName | None = None, *options: str) -> None:
    """Run a dispatcher that is killed at the point."""
    options = (*SHORT, *options)
    with scene.dispatch("dying", *options, engine=engine, failpoints=point) as dying:
        assert dying.ends() == -signal.SIGKILL, dying.text()


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("point", ELSEWHERE)
def test_killed_dispatcher_loses_nothing_and_repeats_only_the_unknown(
    scene: Scene, point: str
) -> None:
    # A claim from an endpoint without a limit may be one message with its COMMIT, and never open.
    scene.endpoint(rate_per_second=10_000 if point == "D1=kill" else None)
    scene.decisions.write(*SUBJECTS * 3)
    _die(scene, point)
    scene.heal()
    assert {name: set(scene.receiver.sequences(name)) for name in SUBJECTS} == ALL_THREE


@pytest.mark.rest
@pytest.mark.parametrize(("point", "routed"), [("D18=kill", False), ("D2=kill@2", True)])
def test_dispatcher_killed_as_it_routes_and_claims_at_once_loses_nothing(
    scene: Scene, point: str, routed: bool
) -> None:
    """Batches come one by one, rung, while nothing else is under way."""
    scene.endpoint()
    scene.decisions._writer._doorbell = True
    query = "SELECT routed_at IS NOT NULL FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1"
    written = 0
    with scene.dispatch("dying", "--doorbell", failpoints=point) as dying:
        dying.says("dispatcher.started")
        while dying.process.poll() is None:
            written += 1
            scene.decisions.write("m_1")
            eventually(
                lambda done=written: (
                    dying.process.poll() is not None
                    or scene.value("SELECT max(delivered_sequence) FROM holdfast.lane") == done
                )
            )
        assert dying.ends() == -signal.SIGKILL, dying.text()
    assert scene.value(query) is routed
    scene.heal()
    assert set(scene.receiver.sequences("m_1")) == set(range(1, written + 1))


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(("point", "engine"), IN_ENGINES)
def test_dispatcher_killed_within_a_request_repeats_only_the_unknown(
    scene: Scene, point: str, engine: EngineName
) -> None:
    scene.endpoint()
    scene.decisions.write(*SUBJECTS * 3)
    _die(scene, point, engine)
    scene.heal(engine=engine)
    assert {name: set(scene.receiver.sequences(name)) for name in SUBJECTS} == ALL_THREE


@pytest.mark.rest
@pytest.mark.parametrize("engine", ["httpx", "asyncio"])
def test_dispatcher_killed_before_the_handshake_has_sent_nothing(
    scene: Scene, engine: EngineName
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = scene.folder / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    with webhooks.listening(context) as receiver:
        scene.endpoint(f"{receiver.url}/payouts")
        scene.decisions.write(*SUBJECTS)
        _die(scene, "D6=kill", engine, "--ca-file", str(file))
        assert receiver.seen == []
        scene.heal(receiver, engine=engine, ca_file=file)


@pytest.mark.rest
def test_dispatcher_killed_as_it_shows_that_it_lives_loses_nothing(scene: Scene) -> None:
    """The first sign of life comes before anything is sent, the second while requests run."""
    scene.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    scene.receiver.script = lambda _seen: gate
    scene.decisions.write(*SUBJECTS * 2)
    with scene.dispatch("dying", "--drain", failpoints="D12=kill@2") as dying:
        assert dying.ends() == -signal.SIGKILL, dying.text()
    gate.open()
    assert sorted(seen.subject for seen in scene.receiver.seen) == SUBJECTS
    scene.heal()
    assert scene.unknown() >= len(SUBJECTS)


@pytest.mark.rest
def test_rescuer_killed_before_its_commit_books_nothing_twice(scene: Scene) -> None:
    scene.endpoint()
    scene.decisions.write(*SUBJECTS * 3)
    _die(scene, "D8=kill@2")
    expire_leases(scene.db)
    _die(scene, "D13=kill")
    assert scene.unknown() == 0
    scene.heal()
    assert scene.unknown() > 0


@pytest.mark.rest
def test_dispatcher_killed_while_it_winds_down_loses_nothing(scene: Scene) -> None:
    scene.endpoint(total_timeout_ms=20_000)
    gate = Gate(answer(200))
    scene.receiver.script = lambda _seen: gate
    scene.decisions.write(*SUBJECTS * 3)
    with scene.dispatch("dying", "--stop-seconds", "10", failpoints="D14=kill") as dying:
        dying.until(lambda: len(scene.receiver.seen) == len(SUBJECTS))
        dying.terminate()
        assert dying.ends() == -signal.SIGKILL, dying.text()
    gate.open()
    scene.heal()


@pytest.mark.rest
@pytest.mark.parametrize("point", ["D11=kill", "D15=kill"])
def test_dispatcher_killed_as_it_sets_the_next_attempt_sets_none(scene: Scene, point: str) -> None:
    scene.endpoint(schedule_seconds=[3600] * 3)
    scene.receiver.script = lambda _seen: answer(503)
    scene.decisions.write(*SUBJECTS * 2)
    _die(scene, point)
    assert scene.value("SELECT count(*) FROM holdfast.attempt") == 0
    assert scene.value("SELECT count(*) FROM holdfast.lane WHERE token IS NULL") == 0
    scene.receiver.script = lambda _seen: answer(200)
    scene.heal()
