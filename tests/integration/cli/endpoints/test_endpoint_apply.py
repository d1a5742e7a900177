"""`holdfast endpoint apply`: endpoints as a file says, all of them or none."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.file import parse, plan
from holdfast.dispatcher.operators.endpoints.store import DEFAULTS, Endpoints
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.world import World

FILE = """
[endpoint.eu]
url = "https://eu.example/webhooks"
secret_refs = ["env:HOLDFAST_SECRET_EU"]
types = ["payout_hold.block"]
rate_per_second = 50
headers_literal = {x-tenant = "eu"}
allow_cidrs = ["10.0.0.0/8"]

[endpoint.us]
url = "https://us.example/webhooks"
secret_refs = ["env:HOLDFAST_SECRET_US"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.toml"
    path.write_text(FILE)
    return path


def apply(dsn: str, file: Path, *options: str, why: str = "from the file") -> Any:
    return holdfast("endpoint", "apply", str(file), "--reason", why, "--yes", *options, dsn=dsn)


def shown(dsn: str, name: str) -> dict[str, Any]:
    return holdfast("endpoint", "show", name, "--json", dsn=dsn).json


def audited(db: psycopg.Connection) -> list[tuple[str, str, str]]:
    query = "SELECT action, target, reason FROM holdfast.operator_action ORDER BY id"
    return [(action, target, reason) for action, target, reason in db.execute(query).fetchall()]


def test_applying_a_file_twice_changes_nothing_the_second_time(world: World, file: Path) -> None:
    other = ("--url", "https://x.example/", "--secret-ref", "env:HOLDFAST_SECRET_S")
    world.holdfast("endpoint", "add", "other", *other)
    planned = world.holdfast("endpoint", "apply", str(file), "--check", code=ExitCode.DEGRADED)
    assert "endpoint eu: add, for decisions from now on" in planned.stdout
    assert "  rate per second: 50" in planned.stdout
    assert "endpoint other: in no file, not changed" in planned.stdout
    assert len(audited(world.db)) == 1

    done = apply(world.dsn, file, "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    content = json.loads(done.stdout)
    assert [(each["name"], each["action"]) for each in content["endpoints"]] == [
        *(("eu", "add"), ("us", "add"))
    ]
    assert (content["left_alone"], content["applied"]) == (["other"], True)
    row = shown(world.dsn, "eu")
    assert (row["url"], row["rate_per_second"]) == ("https://eu.example/webhooks", 50)
    assert (row["types"], row["allow_cidrs"]) == (["payout_hold.block"], ["10.0.0.0/8"])
    assert row["starts_at"] is not None
    why = "from the file"
    assert audited(world.db)[1:] == [("endpoint.add", "eu", why), ("endpoint.add", "us", why)]

    again = apply(world.dsn, file, "--json")
    assert (again.returncode, json.loads(again.stdout)["applied"]) == (ExitCode.OK, False)
    world.holdfast("endpoint", "apply", str(file), "--check", code=ExitCode.OK)
    assert len(audited(world.db)) == 3


def test_a_line_that_is_taken_out_of_the_file_is_taken_back(world: World, file: Path) -> None:
    apply(world.dsn, file)
    file.write_text(FILE.replace("rate_per_second = 50", "concurrency = 3"))
    done = apply(world.dsn, file, why="slower")
    assert done.returncode == ExitCode.OK, done.stderr
    assert "endpoint eu: change\n  concurrency: 64 -> 3\n" in done.stdout
    assert "  rate per second: 50 -> -\n" in done.stdout
    assert "endpoint us: unchanged" in done.stdout
    assert "1 endpoint applied" in done.stdout
    assert audited(world.db)[2:] == [("endpoint.set", "eu", "slower")]
    assert shown(world.dsn, "eu")["concurrency"] == 3


def test_other_types_need_a_pause_before_anything(world: World, file: Path) -> None:
    apply(world.dsn, file)
    file.write_text(FILE.replace('["payout_hold.block"]', "[]").replace("us.example", "b.example"))
    done = apply(world.dsn, file)
    assert done.returncode == ExitCode.FAILED
    assert "first: its types" in done.stdout
    assert "holdfast endpoint pause eu" in done.stdout
    assert "1 endpoint cannot be changed yet. Nothing was changed." in done.stderr
    assert shown(world.dsn, "us")["url"] == "https://us.example/webhooks"
    world.holdfast("endpoint", "pause", "eu", "--reason", "new types")
    assert apply(world.dsn, file).returncode == ExitCode.OK
    assert shown(world.dsn, "eu")["types"] == []
    assert shown(world.dsn, "us")["url"] == "https://b.example/webhooks"
    assert shown(world.dsn, "eu")["state"] == "paused"


def test_unusable_file_changes_nothing(world: World, file: Path, tmp_path: Path) -> None:
    def refused(text: str | bytes, *options: str) -> str:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = world.holdfast("endpoint", "apply", str(file), *options, code=ExitCode.USAGE)
        assert len(done.stderr.strip().splitlines()) == 1
        return str(done.stderr)

    why = ("--reason", "x", "--yes")
    assert "did you mean rate_per_second?" in refused(FILE.replace("rate_per", "rates_per"), *why)
    assert "hunter2" not in refused(FILE.replace("env:HOLDFAST_SECRET_EU", "whsec_hunter2"), *why)
    plain = refused(FILE.replace("https://us", "http://us"), *why)
    assert "[endpoint.us]: --url is plain http://" in plain
    assert "not UTF-8" in refused(b"\xff", *why)
    assert "is missing" in refused(FILE)
    assert "--yes" in refused(FILE, "--reason", "x")
    second = tmp_path / "second.toml"
    second.write_text(FILE)
    assert "more than one of the files" in refused(FILE, str(second), *why)
    assert "cannot be read" in refused(FILE, str(tmp_path / "none.toml"), *why)
    assert (audited(world.db), world.db.execute("SELECT FROM holdfast.endpoint").fetchall()) == (
        [],
        [],
    )


def test_a_change_in_between_is_not_overwritten(world: World, file: Path) -> None:
    apply(world.dsn, file)
    wanted = parse(FILE.replace("us.example", "b.example"), DEFAULTS)
    with Endpoints.connect(world.dsn) as store:
        rows, _ = store.there(tuple(wanted))
        world.db.execute("UPDATE holdfast.endpoint SET concurrency = 7 WHERE name = 'us'")
        with pytest.raises(CommandError, match="endpoint us was changed after the plan"):
            store.apply(plan(wanted, rows), wanted, rows, "x")
    row = shown(world.dsn, "us")
    assert (row["url"], row["concurrency"]) == ("https://us.example/webhooks", 7)
    assert len(audited(world.db)) == 2


def test_file_is_applied_whole_or_not(dsn: str, db: psycopg.Connection, file: Path) -> None:
    """The second endpoint is refused by the database; the first one is taken back with its row."""
    wanted = parse(file.read_text(), DEFAULTS)
    wanted["us"]["concurrency"] = 5000
    with (
        Endpoints.connect(dsn) as store,
        pytest.raises(CommandError, match="ck_endpoint_concurrency"),
    ):
        store.apply(plan(wanted, {}), wanted, {}, "x")
    assert (audited(db), db.execute("SELECT FROM holdfast.endpoint").fetchall()) == ([], [])


def test_masked_literal_is_not_applied(world: World, file: Path) -> None:
    assert apply(world.dsn, file).returncode == ExitCode.OK
    row = shown(world.dsn, "eu")
    assert (row["headers"], row["headers_literal"]) == ({}, {"x-tenant": "***"})
    file.write_text(
        FILE.replace('x-tenant = "eu"', f'x-tenant = "{row["headers_literal"]["x-tenant"]}"')
    )
    refused = apply(world.dsn, file)
    assert refused.returncode == ExitCode.USAGE
    assert "[endpoint.eu]: headers_literal has ***" in refused.stderr
    stored = "SELECT headers FROM holdfast.endpoint WHERE name = 'eu'"
    assert world.db.execute(stored).fetchone() == ({"x-tenant": "eu"},)
    # Another value is applied, and neither is shown.
    file.write_text(FILE.replace('x-tenant = "eu"', 'x-tenant = "canary"'))
    done = apply(world.dsn, file)
    assert "headers literal: x-tenant=*** -> x-tenant=***" in done.stdout
    assert "canary" not in done.stdout + apply(world.dsn, file, "--json").stdout
    assert world.db.execute(stored).fetchone() == ({"x-tenant": "canary"},)


@pytest.mark.parametrize("reference", ["env:HOLDFAST_DSN", "env:PAYOUTS", "file:/etc/passwd"])
def test_refused_reference_changes_nothing(world: World, file: Path, reference: str) -> None:
    file.write_text(FILE.replace("env:HOLDFAST_SECRET_US", reference))
    refused = apply(world.dsn, file)
    assert refused.returncode == ExitCode.USAGE
    assert f"[endpoint.us]: {reference} is not allowed" in refused.stderr
    assert audited(world.db) == []
