"""Values planted in an endpoint and its answers are in nothing that anybody is shown.

Planted are literal headers, stored as an earlier version stored them, an audit row of that version,
and the values of references. Looked through: every route of the API with every role, every page of
the console, the commands plain and as JSON, metrics, logs, the audit trail.
"""

import html
import importlib
import json
import logging
import pkgutil
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.dispatcher.api.console import routes
from tests.support.command import holdfast
from tests.support.console.admin_api import V1, Api, fill, key_text, logged_in, serving
from tests.support.dispatch.delivery import DELIVERED, applied
from tests.support.dispatch.dispatching import SECRET, add_endpoint, dispatching
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer, listening, raw
from tests.support.job.decisions import Decisions
from tests.support.servers.databases import copy_of
from tests.support.world import World

LITERAL, REFERENCED = "c4n4ry-literal", "c4n4ry-referenced"
NAMES = ("x-jwt", "x-pwd", "x-authtoken", "x-signature", "x-functions-code", "x-tenant")
HEADERS = {**dict.fromkeys(NAMES, LITERAL), "authorization": "env:HOLDFAST_SECRET_TOKEN"}
OLD = {"before": {"headers": {"x-jwt": LITERAL}}, "after": {"headers": HEADERS}}
KEY = key_text("m_1")
WHY = ("--reason", "a test")


@pytest.fixture(scope="module")
def planted(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Api, str]]:
    """A server on an outbox with the values in it, and the log of a dispatcher that sent them."""
    log = tmp_path_factory.mktemp("canaries") / "log"
    with pytest.MonkeyPatch.context() as environment, copy_of(server_dsn, template_database) as dsn:
        environment.setenv(SECRET, secret_text())
        environment.setenv("HOLDFAST_SECRET_TOKEN", REFERENCED)
        fill(dsn)
        with listening() as receiver, psycopg.connect(dsn, autocommit=True) as db:
            add_endpoint(db, receiver.url, name="canary", headers=Jsonb(HEADERS))
            for action, detail in (("endpoint.set", OLD), ("endpoint.add", OLD["after"])):
                db.execute(
                    "INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)"
                    " VALUES ('a', %s, 'canary', 'before the upgrade', %s)",
                    [action, Jsonb(detail)],
                )
            with Decisions(dsn, "other") as decisions:
                decisions.write("m_canary")
            with dispatching(dsn, log, "--drain") as running:
                running.ends()
            # What was stored before goes on being sent.
            got = [seen for seen in receiver.seen if seen.subject == "m_canary"]
            assert [seen.header("x-jwt") for seen in got] == [LITERAL]
            assert [seen.header("authorization") for seen in got] == [REFERENCED]
        with serving(dsn) as api:
            yield api, log.read_text()


def _filled(path: str, api: Api) -> str:
    """Return a route's path with names of what is there."""
    (replay,) = api.rows("SELECT id FROM holdfast.replay ORDER BY id LIMIT 1")
    values = {"key": KEY, "id": str(replay["id"]), "number": "1", "stream": "test", "batch_id": "0"}
    values |= {"name": "canary", "do": "pause", "replay_id": values["id"]}
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: values.get(match[1], "1"), path)


def _hidden(everything: str) -> None:
    for canary in (LITERAL, REFERENCED, secret_text()):
        at = everything.find(canary)
        assert at < 0, everything[max(0, at - 300) : at + 100]


@pytest.mark.rest
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_no_route_of_the_api_shows_them(planted: tuple[Api, str], role: str) -> None:
    api, _ = planted
    paths = api.client.get(f"{api.url}/openapi.json").json()["paths"]
    asked = [_filled(path, api).removeprefix(V1) for path, do in paths.items() if "get" in do]
    asked += ["/audit?target=canary", "/subjects/named?name=m_canary", "/entries?endpoint=canary"]
    texts = {path: api.ask("GET", path, role) for path in asked if path.startswith("/")}
    for path in ("/endpoints/canary", "/audit?target=canary", "/endpoints"):
        assert texts[path].status_code == 200
    assert "x-jwt" in texts["/endpoints/canary"].text
    assert "x-jwt" in texts["/audit?target=canary"].text
    _hidden("\n".join(each.text for each in texts.values()))


@pytest.mark.rest
@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_no_page_of_the_console_shows_them(planted: tuple[Api, str], role: str) -> None:
    api, _ = planted
    modules = [
        importlib.import_module(f"{routes.__name__}.{each.name}")
        for each in pkgutil.iter_modules(routes.__path__)
    ]
    paths = [_filled(each.path, api) for one in modules for each in one.router.routes]
    with logged_in(api, role) as browser:
        pages = {
            path: browser.get(path, follow_redirects=True).text
            for path in (*paths, "/audit?target=canary", f"/entries/{KEY}")
            if path != "/live"
        }
    assert "x-jwt" in pages["/endpoints/canary"]
    assert "x-jwt" in pages["/audit?target=canary"]
    _hidden("\n".join(pages.values()))


@pytest.mark.rest
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_no_command_shows_them(
    planted: tuple[Api, str], as_json: tuple[str, ...], tmp_path: Path
) -> None:
    api, _ = planted
    file = tmp_path / "endpoints.toml"
    file.write_text(
        '[endpoint.canary]\nurl = "https://x.example/"\nsecret_refs = ["env:HOLDFAST_SECRET_A"]\n'
    )
    commands = [
        *(("endpoint", "show", "canary"), ("endpoint", "list"), ("audit", "list")),
        *(("config", "show"), ("config", "check"), ("endpoint", "apply", str(file), "--check")),
        *(("why", "m_canary"), ("trace", KEY), ("overview",), ("status",), ("entry", "list")),
        ("endpoint", "set", "canary", "--header", "x-tenant=", *WHY),
        ("endpoint", "pause", "canary", *WHY),
        ("endpoint", "rotate-secret", "canary", "--to", "env:HOLDFAST_SECRET_B", *WHY),
    ]
    done = [holdfast(*command, *as_json, dsn=api.dsn) for command in commands]
    assert "x-jwt" in done[0].stdout
    assert "x-jwt" in done[2].stdout
    _hidden("\n".join(each.stdout + each.stderr for each in done))


@pytest.mark.rest
def test_no_log_and_no_metric_has_them(
    planted: tuple[Api, str], caplog: pytest.LogCaptureFixture
) -> None:
    api, log = planted
    caplog.set_level(logging.DEBUG)
    api.ask("GET", "/endpoints/canary")
    metrics = api.client.get(f"{api.url}/metrics").text
    assert log
    assert "holdfast_api_" in metrics
    _hidden(log + caplog.text + metrics)


@pytest.mark.rest
def test_audit_rows_that_are_written_have_no_literal(planted: tuple[Api, str]) -> None:
    api, _ = planted
    values = {"x-b": LITERAL}
    changed = api.ask(
        "PATCH", "/endpoints/canary", json={"headers_literal": values, "reason": "a test"}
    )
    assert changed.status_code == 200, changed.text
    settings = {"name": "added", "url": "https://b.example/", "secret_refs": [f"env:{SECRET}"]}
    added = api.ask(
        "POST", "/endpoints", json={**settings, "headers_literal": values, "reason": "a test"}
    )
    assert added.status_code == 201, added.text
    rows = api.rows(
        "SELECT detail FROM holdfast.operator_action WHERE reason <> 'before the upgrade'"
    )
    _hidden(changed.text + added.text + json.dumps([row["detail"] for row in rows]))


TOKEN = "c4n4ry/referenced+t0ken="

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


def _not_echoed(where: str, everything: str) -> None:
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
        commands = [
            ("dead-letter", "list"),
            ("attempt", "list"),
            ("why", "m_rejected"),
            ("overview",),
        ]
        shown = [world.holdfast(*each) for each in commands]
    for table, row in rows:
        _not_echoed(table, row)
    for command, each in zip(commands, shown, strict=True):
        _not_echoed(" ".join(command), each.stdout + each.stderr)
    _not_echoed("log", "".join(capfd.readouterr()))
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
            _not_echoed("log", running.text())
