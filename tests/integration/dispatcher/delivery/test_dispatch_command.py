"""`holdfast dispatch` as a person runs it: how it ends, what it says, what signals do to it."""

import json
import secrets
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import verify
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, dispatching
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, secret_text
from tests.support.dispatch.webhooks import Behaviour, Gate, Seen, answer
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


def test_drain_delivers_everything_and_logs_each_attempt_once(world: World) -> None:
    world.add_endpoint()
    world.write("m_1", "m_2", "m_2")
    done = holdfast("dispatch", "--drain", dsn=world.dsn, environment={SECRET: secret_text()})
    assert done.returncode == ExitCode.OK, done.stderr
    assert world.receiver.sequences("m_2") == [1, 2]
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    logged = [line for line in lines if line["what"] == "attempt"]
    assert len(logged) == 3
    assert {(line["outcome"], line["status"], line["attempt"]) for line in logged} == {
        ("delivered", 200, 1)
    }
    assert secret_text() not in done.stderr
    assert "v1," not in done.stderr


def test_drain_says_which_endpoint_waits_and_why(world: World) -> None:
    world.add_endpoint(secret_refs=["env:HOLDFAST_SECRET_ABSENT"])
    world.write("m_1")
    done = world.holdfast("dispatch", "--drain", code=ExitCode.DEGRADED)
    assert "payouts" in done.stderr.splitlines()[-1]
    assert "HOLDFAST_SECRET_ABSENT" in done.stderr.splitlines()[-1]
    assert world.receiver.seen == []


def test_drain_says_what_is_left_at_a_410(world: World) -> None:
    world.add_endpoint(world.receiver.url, concurrency=1)
    world.receiver.script = lambda _: answer(410)
    world.write("m_1", "m_2", "m_3")
    for _ in range(2):
        done = holdfast("dispatch", "--drain", dsn=world.dsn, environment={SECRET: secret_text()})
        assert done.returncode == ExitCode.DEGRADED, done.stderr
        assert "payouts" in done.stderr.splitlines()[-1]
        assert "disabled" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--concurrency", "0"], "concurrency"),
        (["--lease-seconds", "soon"], "soon"),
        (["--lease-seconds", "1"], "lease"),
        (["--dsn", "nonsense"], "DSN"),
    ],
)
def test_senseless_option_is_one_line(dsn: str, arguments: list[str], complaint: str) -> None:
    done = holdfast("dispatch", *arguments, dsn=dsn, code=ExitCode.USAGE)
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_schema_that_is_missing_or_old_is_one_line(
    world: World, make_database: Callable[[str | None], str]
) -> None:
    world.db.execute("UPDATE holdfast.alembic_version SET version_num = '0001'")
    for database, complaint in ((make_database(None), "holdfast db upgrade"), (world.dsn, "0001")):
        done = holdfast("dispatch", dsn=database, code=ExitCode.FAILED)
        assert complaint in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_database_outage_is_one_line_without_a_password() -> None:
    done = holdfast("dispatch", dsn="postgresql://app:hunter2@127.0.0.1:1/x", code=ExitCode.FAILED)
    assert "cannot be used" in done.stderr
    assert "hunter2" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_sigterm_ends_in_flight_releases_the_rest(world: World) -> None:
    world.add_endpoint(world.receiver.url, total_timeout_ms=20_000)
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.write("m_1", "m_1", "m_2")
    with world.dispatching() as running:
        eventually(lambda: len(world.receiver.seen) == 2)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        world.write("m_3")
        gate.open()
        assert running.ends() == ExitCode.OK, running.text()
    assert world.receiver.sequences("m_1") == [1]
    lanes_by_subject = world.lanes()
    assert lanes_by_subject.keys() == {"m_1", "m_2"}
    assert lanes_by_subject["m_1"][:3] == (1, 2, 0)
    assert {lane.token for lane in lanes_by_subject.values()} == {None}
    assert [row.outcome for row in world.attempts()] == ["delivered", "delivered"]
    assert world.db.execute("SELECT count(*) FROM holdfast.dispatcher_instance").fetchone() == (0,)


def test_second_sigterm_books_in_flight_as_unknown(world: World) -> None:
    world.add_endpoint(world.receiver.url, total_timeout_ms=60_000)
    world.receiver.script = lambda _seen: webhooks.silence
    world.write("m_1")
    with world.dispatching() as running:
        eventually(lambda: world.receiver.seen)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
    assert [row.outcome for row in world.attempts()] == ["unknown"]
    assert world.lanes()["m_1"].token is None


@pytest.mark.usefixtures("secret_dir")
def test_endpoint_and_secret_are_picked_up_while_running(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    world.write("m_1")
    with world.dispatching() as running:
        running.says("dispatcher.started")
        world.add_endpoint(secret_refs=[f"file:{secret}"])
        running.says("endpoint.waiting")
        world.write("m_1")
        secret.write_text(secret_text())
        eventually(lambda: world.receiver.sequences("m_1") == [1, 2])
        running.says("endpoint.ready")
        assert world.db.execute("SELECT in_flight FROM holdfast.dispatcher_instance").fetchone()


MANY = [f"m_{n}" for n in range(500)]
BUSY = ("--concurrency", "500", "--claim-lanes", "500")


@pytest.mark.usefixtures("secret_dir")
def test_sighup_loads_at_once_and_says_so(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(secret_text())
    world.add_endpoint(secret_refs=[f"file:{secret}"])
    with world.dispatching() as running:
        running.says("dispatcher.started")
        for turn in (1, 2):
            running.send(signal.SIGHUP)
            eventually(lambda turn=turn: len(running.lines("reloaded")) == turn)  # type: ignore[misc]  # bound
        assert [line["endpoints"] for line in running.lines("reloaded")] == [1, 1]
        secret.unlink()
        running.send(signal.SIGHUP)
        eventually(lambda: len(running.lines("reloaded")) == 3)
        assert running.lines("reloaded")[-1]["endpoints"] == 0
        world.write("m_1")
        secret.write_text(secret_text())
        running.send(signal.SIGHUP)
        eventually(lambda: world.receiver.sequences("m_1") == [1])
        assert secret_text() not in running.text()


def test_sigterm_settles_all_500_in_flight(world: World) -> None:
    world.add_endpoint(
        world.receiver.url, concurrency=500, connect_timeout_ms=20_000, total_timeout_ms=60_000
    )
    gate = Gate(answer(200))
    world.receiver.script = lambda _seen: gate
    world.write(*MANY * 2)
    with world.dispatching(*BUSY) as running:
        eventually(lambda: len(world.receiver.seen) == 500)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        gate.open()
        assert running.ends() == ExitCode.OK, running.text()
    assert len(world.receiver.seen) == 500
    rows = world.attempts()
    assert Counter((row.sequence, row.number, row.outcome) for row in rows) == {
        (1, 1, "delivered"): 500
    }
    assert {(lane.delivered, lane.attempt, lane.token) for lane in world.lanes().values()} == {
        (1, 0, None)
    }


def test_second_sigterm_books_the_500_sent_only(world: World) -> None:
    world.add_endpoint(
        world.receiver.url, concurrency=500, connect_timeout_ms=20_000, total_timeout_ms=60_000
    )
    world.receiver.script = lambda _seen: webhooks.silence
    world.write(*MANY * 2)
    with world.dispatching(*BUSY) as running:
        eventually(lambda: len(world.receiver.seen) >= 400)
        running.send(signal.SIGTERM)
        running.says("dispatcher.stopping")
        running.send(signal.SIGTERM)
        assert running.ends() == ExitCode.OK, running.text()
    rows = world.attempts()
    assert {row.outcome for row in rows} == {"unknown"}
    assert {(row.sequence, row.number) for row in rows} == {(1, 1)}
    arrived = {seen.subject for seen in world.receiver.seen}
    recorded = {row.subject for row in rows}
    assert arrived <= recorded
    for subject, lane in world.lanes().items():
        assert lane.token is None
        assert (lane.delivered, lane.attempt) == (0, 1 if subject in recorded else 0)


def test_nothing_secret_is_in_the_log_whatever_goes_wrong(world: World, tmp_path: Path) -> None:
    """Bodies, answers, the secret, a signature that the receiver echoes, the DSN's password."""
    world.add_endpoint(world.receiver.url, order_policy="skip", schedule_seconds=[0, 0])
    world.add_endpoint("http://127.0.0.1:1/", name="down", schedule_seconds=[0])

    async def echo(seen: webhooks.Seen, wire: webhooks.Wire) -> None:
        output = seen.header("webhook-signature") + secret_text() + "canary_answer"
        await wire.send(webhooks.response(500, output.encode(), retry_after=output))

    world.receiver.script = lambda _seen: echo
    world.write("m_1", data={"merchant_id": "m_1", "exposure_minor": 777_888_999})
    name = f"holdfast_test_app_{secrets.token_hex(4)}"
    user = sql.Identifier(name)
    world.db.execute(sql.SQL("CREATE ROLE {} LOGIN NOINHERIT PASSWORD 'hunter2'").format(user))
    world.db.execute(sql.SQL("GRANT holdfast_dispatcher TO {}").format(user))
    secured = make_conninfo(world.dsn, user=name, password="hunter2")
    environment = {SECRET: secret_text()}
    try:
        with dispatching(secured, tmp_path / "log", "--drain", environment=environment) as running:
            assert running.ends() == ExitCode.OK, running.text()
    finally:
        world.db.execute(sql.SQL("DROP ROLE {}").format(user))
    text = running.text()
    assert running.lines("attempt")
    assert running.lines("dead_letter")
    for canary in ("777888999", "hunter2", "canary_answer", secret_text(), "whsec_", "v1,"):
        assert canary not in text, canary


def test_dispatcher_killed_in_a_heartbeat_leaves_no_heartbeat(world: World) -> None:
    with world.dispatching(failpoints="D12=kill") as running:
        assert running.ends() == -signal.SIGKILL
    assert world.db.execute("SELECT count(*) FROM holdfast.dispatcher_instance").fetchone() == (0,)


OLD, NEW = Secret(KEY_BYTES), Secret(OTHER_KEY_BYTES)


class Verifier:
    """A receiver's check with the secrets that it knows at the moment."""

    def __init__(self) -> None:
        self.known = [OLD]
        self.failures: list[str] = []
        self.signatures: set[int] = set()
        """How many signatures the deliveries had."""

    def __call__(self, seen: Seen) -> Behaviour:
        self.signatures.add(len(seen.header("webhook-signature").split(" ")))
        try:
            verify(dict(seen.headers), seen.body, self.known)
        except VerificationError as error:
            self.failures.append(str(error))
            return answer(401)
        return answer(200)


@pytest.mark.usefixtures("secret_dir")
def test_rotation_under_load_fails_no_verification(world: World, tmp_path: Path) -> None:
    for name, key in (("old", KEY_BYTES), ("new", OTHER_KEY_BYTES)):
        (tmp_path / name).write_text(secret_text(key))
        (tmp_path / name).chmod(0o600)
    old, new = (f"file:{tmp_path / name}" for name in ("old", "new"))
    world.add_endpoint(world.receiver.url, secret_refs=[old])
    verifier = Verifier()
    world.receiver.script = verifier
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            world.write(*[f"m_{number}" for number in range(20)])

    def rotate(*options: str) -> None:
        done = world.holdfast("endpoint", "rotate-secret", "payouts", *options, "--reason", "x")
        assert done.returncode == ExitCode.OK, done.stderr
        before = len(world.receiver.seen)
        # What was begun before is over, and much was begun since.
        eventually(lambda: len(world.receiver.seen) > before + 200)

    writer = threading.Thread(target=load)
    with world.dispatching() as running:
        writer.start()
        try:
            eventually(lambda: len(world.receiver.seen) > 200)
            rotate("--to", new)
            eventually(lambda: verifier.signatures == {1, 2})
            verifier.known = [OLD, NEW]
            before = len(world.receiver.seen)
            eventually(lambda: len(world.receiver.seen) > before + 200)
            verifier.known = [NEW]
            rotate("--finish")
            verifier.signatures.clear()
            eventually(lambda: 1 in verifier.signatures)
        finally:
            over.set()
            writer.join()
        assert running.process.poll() is None, running.text()
    assert verifier.failures == []
    refs = world.db.execute("SELECT secret_refs FROM holdfast.endpoint").fetchone()
    assert refs == ([new],)
