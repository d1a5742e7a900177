"""What a request is made of: envelopes, headers of an operator, and their references."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.dispatching import SECRET, dispatching
from tests.support.dispatch.sender import KEY_BYTES, receipt, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, answer
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest

CANARY = "c4n4ry-t0ken"


def columns(db: psycopg.Connection, **values: Any) -> None:
    for name, value in values.items():
        db.execute(f"UPDATE holdfast.endpoint SET {name} = %s".encode(), [value])


def receipted(seen: Seen) -> Behaviour:
    says = {
        "key": seen.header("webhook-id"),
        "outcome": "applied",
        "applied_at": "2026-11-02T12:15:01Z",
    }
    return answer(200, json.dumps({**says, "receipt": receipt(says)}).encode())


def test_cloudevents_are_headers_around_the_same_bytes(world: World) -> None:
    world.add_endpoint(name="standard")
    events = world.add_endpoint(name="events")
    world.db.execute(
        "UPDATE holdfast.endpoint SET envelope = 'cloudevents' WHERE id = %s", [events]
    )
    world.receiver.script = receipted
    world.write("m_1", "m_1")
    world.drain()
    subject = world.db.execute("SELECT id FROM holdfast.subject").fetchone()
    assert subject is not None
    with_events = [seen for seen in world.receiver.seen if "ce-id" in dict(seen.headers)]
    assert len(with_events) == 2
    for seen in with_events:
        texts = {name: value for name, value in seen.headers if name.startswith("ce-")}
        assert texts == {
            "ce-specversion": "1.0",
            "ce-id": seen.content["key"],
            "ce-source": f"/holdfast/subjects/{subject[0]}",
            "ce-type": "payout_hold.block",
            "ce-time": seen.content["timestamp"],
            "ce-sequence": f"{seen.sequence:019}",
        }
        (other,) = (o for o in world.receiver.seen if o.body == seen.body and o is not seen)
        assert not any(name.startswith("ce-") for name, _ in other.headers)
        content = f"{seen.content['key']}.{seen.header('webhook-timestamp')}.".encode() + seen.body
        mac = hmac.new(KEY_BYTES, content, hashlib.sha256).digest()
        assert seen.header("webhook-signature") == "v1," + base64.b64encode(mac).decode()
    receipts = world.db.execute("SELECT count(*) FROM holdfast.attempt WHERE receipt IS NOT NULL")
    assert receipts.fetchone() == (4,)


@pytest.mark.usefixtures("secret_dir")
def test_operator_headers_arrive_and_tokens_are_reread(world: World) -> None:
    token = world.tmp_path / "token"
    token.write_text("Bearer one\n")
    token.chmod(0o600)
    world.add_endpoint()
    columns(world.db, headers=Jsonb({"authorization": f"file:{token}", "x-tenant": "eu 1"}))
    with world.dispatching() as running:
        world.write("m_1")
        eventually(lambda: world.receiver.seen or running.process.poll() is not None)
        first = world.receiver.seen[0]
        assert (first.header("authorization"), first.header("x-tenant")) == ("Bearer one", "eu 1")
        token.write_text("Bearer two\n")
        token.chmod(0o644)

        def warned() -> bool:
            lines = running.lines("endpoint.ready")  # one without, if it read a half-written file
            return any(f"file:{token}" in line.get("warning", "") for line in lines)

        eventually(warned)

        def arrived() -> bool:
            world.write("m_2")
            return world.receiver.seen[-1].header("authorization") == "Bearer two"

        eventually(arrived)
        assert "Bearer" not in running.text()


@pytest.mark.parametrize(
    "headers",
    [{"host": CANARY}, {"authorization": CANARY}, {"x-a": f"{CANARY}\r\nx-b: c"}, {"x-a": 5}],
)
def test_headers_that_nobody_checked_keep_the_endpoint_waiting(
    world: World, headers: dict[str, Any]
) -> None:
    world.add_endpoint()
    columns(world.db, headers=Jsonb(headers))
    world.write("m_1")
    report = world.drain()
    assert world.receiver.seen == []
    assert "header" in str(report)
    assert CANARY not in str(report)
    columns(world.db, headers=Jsonb({}))
    world.drain()
    assert world.receiver.sequences("m_1") == [1]


@pytest.mark.usefixtures("secret_dir")
def test_unreadable_certificate_keeps_the_endpoint_waiting(world: World) -> None:
    missing = f"file:{world.tmp_path / 'ca.pem'}"
    world.add_endpoint(ca_ref=missing)
    world.write("m_1")
    report = world.drain()
    assert missing in str(report)
    assert world.receiver.seen == []


def test_no_secret_or_token_is_ever_shown(world: World) -> None:
    world.add_endpoint(schedule_seconds=[0])
    columns(world.db, headers=Jsonb({"authorization": "env:HOLDFAST_SECRET_TOKEN"}))
    # The receiver repeats everything it got, as an error page might.
    world.receiver.script = lambda seen: answer(500, "\n".join(map(str, seen.headers)).encode())
    world.write("m_1")
    environment = {SECRET: secret_text(), "HOLDFAST_SECRET_TOKEN": f"Bearer {CANARY}"}
    log = world.tmp_path / "log"
    with dispatching(world.dsn, log, "--drain", environment=environment) as running:
        running.ends()
        text = running.text()
    assert [seen.header("authorization") for seen in world.receiver.seen] == [
        f"Bearer {CANARY}"
    ] * 2
    signature = world.receiver.seen[0].header("webhook-signature").removeprefix("v1,")
    stored = str(
        world.db.execute(
            "SELECT a.*, d.detail FROM holdfast.attempt a, holdfast.dead_letter d"
        ).fetchall()
    )
    for secret in (CANARY, secret_text(), secret_text().removeprefix("whsec_"), signature):
        assert secret not in text
        assert secret not in stored


CANARY_SECRET = "c4n4ry-pa55"


def sent(
    dsn: str,
    db: psycopg.Connection,
    log: Path,
    headers: Mapping[str, str],
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Drain to endpoint `payouts` with these headers; returns what the dispatcher wrote."""
    db.execute("UPDATE holdfast.endpoint SET headers = %s", [Jsonb(headers)])
    with dispatching(dsn, log, "--drain", *options, environment=environment) as running:
        running.ends()
        return running.text()


REFUSED = ("env:HOLDFAST_DSN", "env:PGPASSWORD", "env:OTEL_EXPORTER_OTLP_HEADERS", "env:AWS_SECRET")


def test_header_cannot_carry_secrets_of_the_dispatcher(world: World) -> None:
    (world.tmp_path / "pgpass").write_text(CANARY_SECRET)
    references = [*REFUSED, f"file:{world.tmp_path / 'pgpass'}"]
    names = {f"payouts_{number}": each for number, each in enumerate(references)}
    for name, reference in names.items():
        world.add_endpoint(name=name, headers=Jsonb({"x-a": reference}))
    world.write("m_1")
    secrets = ("PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET")
    environment = dict.fromkeys(secrets, CANARY_SECRET)
    with world.dispatching("--drain", environment=environment) as running:
        running.ends()
        lines = running.text().splitlines()
    assert world.receiver.seen == []
    for name in names:  # each is told what is allowed
        assert any(name in line and "HOLDFAST_SECRET_" in line for line in lines), lines
    assert not any(CANARY_SECRET in line for line in lines)
    # Nothing is lost: the decision goes out when the endpoints are put right.
    sent(world.dsn, world.db, world.tmp_path / "log", {})
    assert world.receiver.sequences("m_1") == [1] * len(names)


def test_prefixes_and_folders_that_it_is_started_with_are_resolved(world: World) -> None:
    (world.tmp_path / "token").write_text("from a file")
    world.add_endpoint()
    headers = {"x-a": "env:PAYOUTS_TOKEN", "x-b": f"file:{world.tmp_path / 'token'}"}
    environment = {"PAYOUTS_TOKEN": "from the environment"}
    options = ("--secret-env-prefix", "PAYOUTS_", "--secret-env-prefix", "HOLDFAST_SECRET_")
    folder = ("--secret-dir", str(world.tmp_path))
    settings = {
        "HOLDFAST_ALLOW_SECRET_ENV_PREFIX": "PAYOUTS_:HOLDFAST_SECRET_",
        "HOLDFAST_ALLOW_SECRET_DIR": str(world.tmp_path),
    }
    for number, (words, more) in enumerate([((*options, *folder), {}), ((), settings)], start=1):
        world.write("m_1")
        sent(
            world.dsn,
            world.db,
            world.tmp_path / "log",
            headers,
            *words,
            environment=environment | more,
        )
        assert len(world.receiver.seen) == number
        assert world.receiver.seen[-1].header("x-a") == "from the environment"
        assert world.receiver.seen[-1].header("x-b") == "from a file"


@pytest.mark.parametrize(
    "options", [("--secret-env-prefix", "HOLDFAST_"), ("--secret-dir", "/proc/self")]
)
def test_dispatcher_does_not_start_with_a_rule_that_reaches_itself(
    world: World, options: tuple[str, ...]
) -> None:
    with world.dispatching("--drain", *options) as running:
        assert running.ends() == ExitCode.USAGE
        assert options[1] in running.text()
