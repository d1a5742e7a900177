"""`holdfast endpoint test`: one request to a real receiver, and how far it came."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.deploy.local.ports import free_port
from holdfast.deploy.payouts.order import HoldOrder
from holdfast.receiver import Delivery, Problem, Refused, Secret, VerificationError, verify
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET, add_endpoint
from tests.support.dispatch.listening import listening
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, secret_text
from tests.support.receivers.sound import serving
from tests.support.servers.certificates import Authority
from tests.support.servers.databases import copy_of
from tests.support.world import World

Told = tuple[int, bytes]


@dataclass
class Receiver:
    """Verifies by the kit and reads orders as the payouts service does, or says what it is told."""

    url: str = ""
    told: Told | None = None
    seen: list[Delivery] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        status, content = self.told or self.answer(scope["headers"], body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": content})

    def answer(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Told:
        try:
            delivery = verify(headers, body, [Secret(KEY_BYTES)])
        except VerificationError as error:
            return error.status, Problem(error.status, error.reason, "").answer().body
        self.seen.append(delivery)
        try:
            HoldOrder.of(delivery.body)
        except Refused as refused:
            return refused.problem.status, refused.problem.answer().body
        return 200, b""


@pytest.fixture(scope="module")
def running() -> Iterator[Receiver]:
    receiver = Receiver()
    with serving(receiver) as url:
        receiver.url = f"{url}/webhooks"
        yield receiver


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    running.told = None
    running.seen.clear()
    return running


@pytest.fixture(scope="module")
def dsn(server_dsn: str, template_database: str) -> Iterator[str]:
    """One database for all: a test of an endpoint changes nothing that another one reads."""
    with copy_of(server_dsn, template_database) as dsn:
        yield dsn


@pytest.fixture
def db(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE holdfast.endpoint, holdfast.operator_action CASCADE")
        yield connection


def probed(dsn: str, *options: str, key: bytes = KEY_BYTES) -> tuple[int, dict[str, Any]]:
    done = holdfast(
        *("endpoint", "test", "payouts", "--yes", "--json", *options),
        dsn=dsn,
        environment={SECRET: secret_text(key)},
    )
    assert done.stdout, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, content


def steps(content: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["step"], step["end"]) for step in content["steps"]]


def test_conforming_receiver_accepts_the_signature_and_does_nothing(
    dsn: str, db: psycopg.Connection, receiver: Receiver
) -> None:
    add_endpoint(db, receiver.url, state="paused")
    for engine in ("httpx", "asyncio"):
        code, content = probed(dsn, "--engine", engine)
        assert (code, content["verdict"]) == (ExitCode.OK, "verified")
        assert (content["request"]["status"], content["request"]["reason"]) == (400, "unknown_type")
        assert (content["state"], content["advice"]) == ("paused", "")
        assert steps(content) == [("dns", "done"), ("address", "done"), ("connect", "done")]
    assert content["steps"][2]["ms"] >= 0
    keys = [delivery.key for delivery in receiver.seen]
    assert keys == [content["key"]] * 2
    assert receiver.seen[0].raw == receiver.seen[1].raw
    assert receiver.seen[0].body.text("merchant_id") == "holdfast_test"
    actions = db.execute("SELECT action, target, reason, detail FROM holdfast.operator_action")
    assert (
        actions.fetchall()
        == [
            (
                *("endpoint.test", "payouts", "tested by command"),
                {"url": receiver.url, "key": content["key"]},
            )
        ]
        * 2
    )
    assert db.execute("SELECT FROM holdfast.attempt").fetchall() == []


def test_people_see_each_step_and_its_meaning(world: World, receiver: Receiver) -> None:
    world.add_endpoint(receiver.url)
    done = holdfast(
        "endpoint", "test", "payouts", "--yes", dsn=world.dsn, environment={SECRET: secret_text()}
    )
    assert done.returncode == ExitCode.OK, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"endpoint payouts (active): POST {receiver.url}"
    assert [line.split()[0] for line in lines[1:6]] == [
        *("name", "address", "connection", "answer", "receipt")
    ]
    assert "400 unknown_type (" in lines[4]
    assert lines[6].startswith("verified: it accepts our signature")


@pytest.mark.parametrize(
    ("told", "word", "code"),
    [
        ((200, b""), "taken", ExitCode.OK),
        (
            (200, b'{"key":"x","outcome":"applied","applied_at":"x","receipt":"v1,x"}'),
            *("receipt_forged", ExitCode.DEGRADED),
        ),
        ((503, b"\x1b[2J"), "failing", ExitCode.FAILED),
    ],
)
def test_other_answers_have_a_verdict_and_an_advice(
    world: World, receiver: Receiver, told: Told, word: str, code: ExitCode
) -> None:
    receiver.told = told
    world.add_endpoint(receiver.url)
    ended, content = probed(world.dsn)
    assert (ended, content["verdict"]) == (code, word)
    assert content["advice"]
    assert "\x1b" not in str(content["request"]["response"])


def test_wrong_secret_differs_from_every_other_refusal(world: World, receiver: Receiver) -> None:
    world.add_endpoint(receiver.url)
    code, content = probed(world.dsn, key=OTHER_KEY_BYTES)
    assert (code, content["verdict"]) == (ExitCode.FAILED, "secret_differs")
    assert receiver.seen == []


def test_what_is_not_reached_says_where_the_way_ends(dsn: str, db: psycopg.Connection) -> None:
    add_endpoint(db, f"http://127.0.0.1:{free_port()}/")
    code, content = probed(dsn)
    assert (code, content["verdict"], content["request"]) == (
        *(ExitCode.FAILED, "no_connection"),
        None,
    )
    assert steps(content)[-1] == ("connect", "failed")
    db.execute("UPDATE holdfast.endpoint SET allow_cidrs = '{10.0.0.0/8}'")
    code, content = probed(dsn)
    assert (code, content["verdict"]) == (ExitCode.FAILED, "address_refused")
    assert steps(content) == [("dns", "done"), ("address", "failed")]
    db.execute("UPDATE holdfast.endpoint SET url = 'https://nowhere.invalid/'")
    code, content = probed(dsn)
    assert (code, content["verdict"]) == (ExitCode.FAILED, "name_unknown")


def test_receiver_that_accepts_everything_is_proved_by_its_receipt(world: World) -> None:
    with listening() as everything:
        world.add_endpoint(everything.url, envelope="cloudevents")
        code, content = probed(world.dsn)
    assert (code, content["verdict"]) == (ExitCode.OK, "taken")
    assert (content["request"]["receipt"], content["request"]["receipt_outcome"]) == (
        *("genuine", "applied"),
    )
    assert everything.heard[0].type == "holdfast.test"


@pytest.mark.parametrize("engine", ["httpx", "asyncio"])
def test_certificate_is_judged_as_the_engine_judges_it(
    world: World, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ALLOW_SECRET_DIR", str(world.tmp_path))
    authority = Authority()
    with serving(Receiver(), authority.server()) as url:
        world.add_endpoint(url, connect_timeout_ms=20_000, total_timeout_ms=20_000)
        code, content = probed(world.dsn, "--engine", engine)
        assert (code, content["verdict"]) == (ExitCode.FAILED, "tls_failed")
        assert steps(content)[-1] == ("tls", "failed")
        assert content["request"]["status"] is None
        ca = authority.file(world.tmp_path)
        world.db.execute("UPDATE holdfast.endpoint SET ca_ref = %s", [f"file:{ca}"])
        code, content = probed(world.dsn, "--engine", engine)
        assert (code, content["verdict"]) == (ExitCode.OK, "verified")
        assert steps(content)[-1] == ("tls", "done")
        assert content["steps"][-1]["detail"].startswith("TLSv1.3, certificate until ")


def test_nothing_is_sent_without_confirmation_or_secret(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET, raising=False)
    world.add_endpoint(receiver.url)
    settings = {SECRET: secret_text()}
    unasked = holdfast("endpoint", "test", "payouts", dsn=world.dsn, environment=settings)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (ExitCode.USAGE, True)
    blind = world.holdfast("endpoint", "test", "payouts", "--yes")
    assert (blind.returncode, "Nothing was sent" in blind.stderr) == (ExitCode.FAILED, True)
    missing = holdfast("endpoint", "test", "nobody", "--yes", dsn=world.dsn, environment=settings)
    assert missing.returncode == ExitCode.NOTHING_MATCHED
    assert receiver.seen == []
    assert world.db.execute("SELECT FROM holdfast.operator_action").fetchall() == []


def test_answer_is_shown_without_echoed_headers_and_secrets(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, secret_text())
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "Bearer c4n4ry-t0ken")
    key = secret_text().removeprefix("whsec_")
    receiver.told = 401, f"no c4n4ry-t0ken, no {key}".encode()
    with psycopg.connect(world.dsn, autocommit=True) as db:
        headers = Jsonb({"authorization": "env:HOLDFAST_SECRET_TOKEN"})
        add_endpoint(db, receiver.url, name="echoing", headers=headers)
    command = ("endpoint", "test", "echoing", "--reason", "a test", "--yes", "--json")
    tested = world.holdfast(*command)
    assert json.loads(tested.stdout)["request"]["response"] == "no ***, no ***"
    assert "c4n4ry" not in tested.stdout + tested.stderr
