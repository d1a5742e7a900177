"""What a receiver repeats of an endpoint's headers and secrets is in no table, log or command."""

import html
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.dispatch.delivery import DELIVERED, applied
from tests.support.dispatch.dispatching import SECRET, add_endpoint
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer, listening, raw
from tests.support.job.decisions import Decisions
from tests.support.world import World

TOKEN, LITERAL = "c4n4ry/referenced+t0ken=", "c4n4ry-literal"
SIGNING = secret_text().removeprefix("whsec_")
CANARIES = (TOKEN, LITERAL, SIGNING)


def _said(seen: Seen) -> bytes:
    """Everything that the receiver knows, as servers write it."""
    values = [seen.header("authorization"), seen.header("x-jwt"), secret_text(), TOKEN, SIGNING]
    ways = [str, json.dumps, html.escape, quote, lambda value: value.replace("/", "\\/")]
    return "; ".join(write(value) for value in values for write in ways).encode()


def _echo(seen: Seen) -> Behaviour:
    text = _said(seen)
    if seen.subject == "m_no_http":
        return raw(text + b"\r\n\r\n")
    if seen.subject == "m_cut":
        begun = f"HTTP/1.1 400 Bad\r\ncontent-length: 999\r\n\r\nno {TOKEN}: {TOKEN[:-2]}"
        return raw(begun.encode())
    status = {"m_rejected": 400, "m_failed": 503}.get(seen.subject, 200)
    return answer(status, text)


@contextmanager
def _receiving(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WebhookReceiver]:
    monkeypatch.setenv(SECRET, secret_text())
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", f"Bearer {TOKEN}")
    headers = {"authorization": "env:HOLDFAST_SECRET_TOKEN", "x-jwt": LITERAL}
    with listening() as receiver:
        add_endpoint(db, receiver.url, headers=Jsonb(headers), schedule_seconds=[0])
        receiver.script = _echo
        yield receiver


def _hidden(where: str, everything: str) -> None:
    for canary in (*CANARIES, TOKEN[:-2], quote(TOKEN), TOKEN.replace("/", "\\/")):
        at = everything.find(canary)
        assert at < 0, (where, everything[max(0, at - 200) : at + 60])


def _stored(db: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """Every row of every table but the one in which the operator put the literal."""
    tables = db.execute(
        "SELECT table_name FROM information_schema.tables"
        " WHERE table_schema = 'holdfast' AND table_name <> 'endpoint'"
    ).fetchall()
    for (table,) in tables:
        for (row,) in db.execute(f"SELECT t::text FROM holdfast.{table} t".encode()):
            yield table, row.replace("\\\\", "\\")


def test_values_that_a_receiver_repeats_are_nowhere(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with _receiving(world.db, monkeypatch), Decisions(world.dsn, "test") as decisions:
        decisions.write("m_rejected", "m_failed", "m_no_http", "m_cut", "m_fine")
        world.drain()
        applied(world.dsn, DELIVERED)
        world.drain()
        rows = list(_stored(world.db))
        commands = [("dead", "list"), ("attempts", "list"), ("why", "m_rejected"), ("overview",)]
        shown = [world.holdfast(*each) for each in commands]
    for table, row in rows:
        _hidden(table, row)
    for command, each in zip(commands, shown, strict=True):
        _hidden(" ".join(command), each.stdout + each.stderr)
    _hidden("log", "".join(capfd.readouterr()))
    kept = world.db.execute(
        "SELECT count(response) FROM holdfast.attempt WHERE response ~ '[*]{3}'"
    )
    assert kept.fetchone() == (6,)


def test_repeated_values_are_in_no_json_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with _receiving(world.db, monkeypatch), Decisions(world.dsn, "test") as decisions:
        decisions.write("m_rejected", "m_no_http")
        with world.dispatching("--drain") as running:
            running.ends()
            assert '"rejected": 1' in running.text()
            _hidden("log", running.text())
