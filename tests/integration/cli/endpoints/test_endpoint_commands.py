"""`holdfast endpoint`: add, set and show, and `apply` of a file."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.file import parse, plan
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.command import holdfast
from tests.support.world import World

REF = "env:HOLDFAST_SECRET_S"
ABSENT = "env:HOLDFAST_SECRET_ABSENT"
NEXT = "env:HOLDFAST_SECRET_T"
THIRD = "env:HOLDFAST_SECRET_U"
HERE = "env:HOLDFAST_SECRET_HERE"
URL = "https://payouts.example/webhooks"
ADD = ("endpoint", "add", "payouts", "--url", URL, "--secret-ref", REF)
EVERYTHING = {
    "--header": f"authorization={REF}",
    "--header-literal": "x-tenant=eu=1",
    "--envelope": "cloudevents",
    "--ca": "file:/run/secrets/holdfast/ca.pem",
    "--client-cert": "file:/run/secrets/holdfast/cert.pem",
    "--client-key": "env:HOLDFAST_SECRET_KEY",
    "--rate": "50",
    "--budget": "12h",
    "--breaker-threshold": "0",
    "--slow-start": "5m",
    "--inquiry": "default",
    "--concurrency": "3",
    "--order-policy": "skip",
    "--schedule": "1,2",
    "--total-timeout": "3.5",
    "--type": "payout_hold.block",
    "--allow-cidr": "10.0.0.0/8",
}
SHOWN = {
    "headers": {"authorization": REF},
    "headers_literal": {"x-tenant": "***"},
    "envelope": "cloudevents",
    "ca_ref": "file:/run/secrets/holdfast/ca.pem",
    "client_cert_ref": "file:/run/secrets/holdfast/cert.pem",
    "client_key_ref": "env:HOLDFAST_SECRET_KEY",
    "rate_per_second": 50,
    "budget_seconds": 43_200,
    "breaker_threshold": 0,
    "slow_start_seconds": 300,
    "inquiry_path": "/holdfast/keys/",
    "concurrency": 3,
    "order_policy": "skip",
    "schedule_seconds": [1, 2],
    "total_timeout_ms": 3500,
    "connect_timeout_ms": 3500,
    "types": ["payout_hold.block"],
    "allow_cidrs": ["10.0.0.0/8"],
}


def flat(options: dict[str, str]) -> list[str]:
    return [word for option in options.items() for word in option]


def shown(dsn: str, name: str = "payouts") -> dict[str, Any]:
    return holdfast("endpoint", "show", name, "--json", dsn=dsn, code=ExitCode.OK).json


def audited(db: psycopg.Connection) -> list[tuple[str, Any]]:
    query = "SELECT action, detail FROM holdfast.operator_action ORDER BY id"
    return [(action, detail) for action, detail in db.execute(query).fetchall()]


def test_what_is_left_out_has_the_defaults_of_the_database(world: World) -> None:
    assert world.holdfast(*ADD).returncode == ExitCode.OK
    world.db.execute(
        "INSERT INTO holdfast.endpoint (name, url, secret_refs, starts_at)"
        " VALUES ('other', %s, '{env:HOLDFAST_SECRET_S}', now())",
        [URL],
    )
    one, other = shown(world.dsn), shown(world.dsn, "other")
    own = ("id", "name", "starts_at", "created_at", "updated_at", "breaker_since")
    assert {key: one[key] for key in one if key not in own} == {
        key: other[key] for key in other if key not in own
    }
    assert (one["breaker"], one["fault"]) == ("closed", None)


def test_every_setting_can_be_added_and_changed(dsn: str) -> None:
    added = holdfast(*ADD, *flat(EVERYTHING), dsn=dsn)
    assert added.returncode == ExitCode.OK, added.stderr
    assert {key: shown(dsn)[key] for key in SHOWN} == SHOWN
    assert holdfast("endpoint", "add", "two", *ADD[3:], dsn=dsn).returncode == ExitCode.OK
    options = {option: value for option, value in EVERYTHING.items() if option != "--type"}
    done = holdfast("endpoint", "set", "two", *flat(options), "--reason", "as one", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    row = shown(dsn, "two")
    assert {key: row[key] for key in SHOWN if key != "types"} == {
        key: value for key, value in SHOWN.items() if key != "types"
    }


def test_change_touches_what_is_named_and_is_audited_with_both_values(world: World) -> None:
    world.holdfast(*ADD, "--header", f"x-a={REF}", "--header-literal", "x-b=2")
    before = shown(world.dsn)
    change = (
        "--rate",
        "50",
        "--header",
        "x-a=",
        "--header-literal",
        "x-c=3",
        "--reason",
        "too fast",
    )
    done = world.holdfast("endpoint", "set", "payouts", *change, "--json", code=ExitCode.OK)
    texts = {
        "before": {
            "headers": {"x-a": REF},
            "headers_literal": {"x-b": "***"},
            "rate_per_second": None,
        },
        "after": {
            "headers": {},
            "headers_literal": {"x-b": "***", "x-c": "***"},
            "rate_per_second": 50,
        },
    }
    assert done.json == {"name": "payouts", **texts}
    after = shown(world.dsn)
    assert {key for key in before if before[key] != after[key]} == {
        *("headers", "headers_literal", "rate_per_second", "updated_at")
    }
    recorded = {**texts, "after": {**texts["after"], "rate_per_second": "50"}}
    assert audited(world.db)[1:] == [("endpoint.set", recorded)]
    again = world.holdfast("endpoint", "set", "payouts", "--rate", "50", "--reason", "x")
    assert (again.returncode, "already" in again.stdout) == (ExitCode.OK, True)
    back = world.holdfast("endpoint", "set", "payouts", "--rate", "0", "--reason", "x")
    assert "rate per second: 50 -> -" in back.stdout
    assert len(audited(world.db)) == 3


def test_add_and_set_refuse_alike_and_change_nothing(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, dsn=dsn)
    before = shown(dsn)
    options = ["--header", "authorization=Bearer hunter2"]
    add = [*ADD[:2], "bad", *ADD[3:], *options]
    for command in (add, ["endpoint", "set", "payouts", *options, "--reason", "x"]):
        done = holdfast(*command, dsn=dsn, code=ExitCode.USAGE)
        assert "env:VAR" in done.stderr
        assert "hunter2" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert shown(dsn) == before
    assert len(audited(db)) == 1


def test_scheme_in_capitals_is_stored_in_small_letters(dsn: str) -> None:
    done = holdfast(*ADD[:4], URL.replace("https", "HTTPS"), *ADD[5:], dsn=dsn)
    assert (done.returncode, shown(dsn)["url"]) == (ExitCode.OK, URL), done.stderr


def test_secret_is_rotated_in_two_steps(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, dsn=dsn)

    def rotate(*options: str) -> tuple[int, list[str]]:
        done = holdfast("endpoint", "rotate-secret", "payouts", *options, "--reason", "x", dsn=dsn)
        return done.returncode, shown(dsn)["secret_refs"]

    assert rotate("--finish") == (ExitCode.NOTHING_MATCHED, [REF])
    assert rotate() == (ExitCode.USAGE, [REF])
    assert rotate("--to", "whsec_hunter2") == (ExitCode.USAGE, [REF])
    assert rotate("--to", NEXT) == (ExitCode.OK, [REF, NEXT])
    assert rotate("--to", NEXT) == (ExitCode.OK, [REF, NEXT])
    assert rotate("--to", THIRD) == (ExitCode.FAILED, [REF, NEXT])
    assert rotate("--to", THIRD, "--finish") == (ExitCode.NOTHING_MATCHED, [REF, NEXT])
    assert rotate("--finish") == (ExitCode.OK, [NEXT])
    assert rotate("--to", THIRD) == (ExitCode.OK, [NEXT, THIRD])
    # Back again: what stays is named.
    assert rotate("--to", NEXT, "--finish") == (ExitCode.OK, [NEXT])
    actions = [detail for action, detail in audited(db) if action == "endpoint.rotate_secret"]
    assert actions[0] == {"before": [REF], "after": [REF, NEXT]}
    assert len(actions) == 4


def test_rotation_to_a_missing_secret_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_HERE", f"whsec_{'A' * 43}=")
    rotate = ("endpoint", "rotate-secret", "payouts", "--reason", "x")
    world.holdfast("endpoint", "add", "payouts", "--url", URL, "--secret-ref", HERE)
    done = world.holdfast(*rotate, "--to", ABSENT)
    assert (done.returncode, done.stdout) == (
        ExitCode.OK,
        f"endpoint payouts signs with {HERE} and {ABSENT}\n",
    )
    lacking = f"environment variable {ABSENT.removeprefix('env:')} is empty or not set"
    assert f"on this machine the {lacking}" in done.stderr
    assert "gives nothing up" in done.stderr
    assert world.holdfast(*rotate, "--to", HERE, "--finish").stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["set", "--rate", "1", "--reason", "x"],
        ["rotate-secret", "--finish", "--reason", "x"],
    ],
)
def test_unknown_endpoint_matches_nothing(dsn: str, command: list[str]) -> None:
    verb, *options = command
    done = holdfast("endpoint", verb, "nobody", *options, dsn=dsn, code=ExitCode.NOTHING_MATCHED)
    assert "nobody" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_state_changes_only_with_a_reason(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, dsn=dsn)
    before = shown(dsn)
    for verb in ("pause", "resume", "disable"):
        for reason in ("", " ", "\t\n", "x" * 2001):
            done = holdfast("endpoint", verb, "payouts", "--reason", reason, dsn=dsn)
            assert done.returncode == ExitCode.USAGE, done.stderr
            assert "--reason must be 1 to 2000 characters long" in done.stderr
    assert shown(dsn) == before
    assert len(audited(db)) == 1
    holdfast("endpoint", "pause", "payouts", "--reason", " moving house\n", dsn=dsn)
    assert shown(dsn)["state_reason"] == "moving house"


def test_changing_types_of_an_active_endpoint_asks_for_a_pause(dsn: str) -> None:
    holdfast(*ADD, dsn=dsn)
    done = holdfast("endpoint", "set", "payouts", "--type", "a.b", "--reason", "x", dsn=dsn)
    assert done.returncode == ExitCode.FAILED
    assert "`holdfast endpoint pause payouts --reason TEXT`" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--secret-ref", NEXT, "--secret-ref", NEXT], "two different"),
        (["--type", "a.b", "--type", "a.b"], "--type has a.b twice"),
        (["--allow-cidr", "fe80::1%eth0/128"], "zone"),
        (["--schedule", "5,1_0"], "--schedule must be whole seconds"),
        (["--concurrency", "+5"], "not a valid integer"),
        (["--total-timeout", "\u0663"], "not a valid number"),
    ],
)
def test_twice_named_or_unstorable_is_refused(world: World, options: list[str], words: str) -> None:
    secret = [] if "--secret-ref" in options else ADD[5:]
    done = world.holdfast(*ADD[:5], *secret, *options, code=ExitCode.USAGE)
    assert words in done.stderr
    assert audited(world.db) == []


def test_row_that_nobody_checked_is_shown_with_its_fault(dsn: str, db: psycopg.Connection) -> None:
    holdfast(*ADD, dsn=dsn)
    db.execute("""UPDATE holdfast.endpoint SET headers = '{"x-a": 5}'""")
    assert shown(dsn)["fault"] is not None
    text = holdfast("endpoint", "show", "payouts", dsn=dsn).stdout
    assert "the value of header x-a is not text" in text
    assert "breaker" in text


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


def audited_reasons(db: psycopg.Connection) -> list[tuple[str, str, str]]:
    query = "SELECT action, target, reason FROM holdfast.operator_action ORDER BY id"
    return [(action, target, reason) for action, target, reason in db.execute(query).fetchall()]


def test_applying_a_file_twice_changes_nothing_the_second_time(world: World, file: Path) -> None:
    other = ("--url", "https://x.example/", "--secret-ref", "env:HOLDFAST_SECRET_S")
    world.holdfast("endpoint", "add", "other", *other)
    planned = world.holdfast("endpoint", "apply", str(file), "--check", code=ExitCode.DEGRADED)
    assert "endpoint eu: add, for decisions from now on" in planned.stdout
    assert "  rate per second: 50" in planned.stdout
    assert "endpoint other: in no file, not changed" in planned.stdout
    assert len(audited_reasons(world.db)) == 1

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
    assert audited_reasons(world.db)[1:] == [
        ("endpoint.add", "eu", why),
        ("endpoint.add", "us", why),
    ]

    again = apply(world.dsn, file, "--json")
    assert (again.returncode, json.loads(again.stdout)["applied"]) == (ExitCode.OK, False)
    world.holdfast("endpoint", "apply", str(file), "--check", code=ExitCode.OK)
    assert len(audited_reasons(world.db)) == 3


def test_a_line_that_is_taken_out_of_the_file_is_taken_back(world: World, file: Path) -> None:
    apply(world.dsn, file)
    file.write_text(FILE.replace("rate_per_second = 50", "concurrency = 3"))
    done = apply(world.dsn, file, why="slower")
    assert done.returncode == ExitCode.OK, done.stderr
    assert "endpoint eu: change\n  concurrency: 64 -> 3\n" in done.stdout
    assert "  rate per second: 50 -> -\n" in done.stdout
    assert "endpoint us: unchanged" in done.stdout
    assert "1 endpoint applied" in done.stdout
    assert audited_reasons(world.db)[2:] == [("endpoint.set", "eu", "slower")]
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
    assert "[endpoint.us]: url is plain http://" in plain
    assert "not UTF-8" in refused(b"\xff", *why)
    assert "is missing" in refused(FILE)
    assert "--yes" in refused(FILE, "--reason", "x")
    second = tmp_path / "second.toml"
    second.write_text(FILE)
    assert "more than one of the files" in refused(FILE, str(second), *why)
    assert "cannot be read" in refused(FILE, str(tmp_path / "none.toml"), *why)
    assert (
        audited_reasons(world.db),
        world.db.execute("SELECT FROM holdfast.endpoint").fetchall(),
    ) == ([], [])


def test_a_change_in_between_is_not_overwritten(world: World, file: Path) -> None:
    apply(world.dsn, file)
    wanted = parse(FILE.replace("us.example", "b.example"))
    with Endpoints.connect(world.dsn) as store:
        rows, _ = store.by_name(tuple(wanted))
        world.db.execute("UPDATE holdfast.endpoint SET concurrency = 7 WHERE name = 'us'")
        with pytest.raises(CommandError, match="endpoint us was changed after the plan"):
            store.apply(plan(wanted, rows), wanted, rows, "x")
    row = shown(world.dsn, "us")
    assert (row["url"], row["concurrency"]) == ("https://us.example/webhooks", 7)
    assert len(audited_reasons(world.db)) == 2


def test_file_is_applied_completely_or_not_at_all(
    dsn: str, db: psycopg.Connection, file: Path
) -> None:
    """The second endpoint is refused by the database; the first one is taken back with its row."""
    wanted = parse(file.read_text())
    wanted["us"]["concurrency"] = 5000
    with (
        Endpoints.connect(dsn) as store,
        pytest.raises(CommandError, match="ck_endpoint_concurrency"),
    ):
        store.apply(plan(wanted, {}), wanted, {}, "x")
    assert (audited_reasons(db), db.execute("SELECT FROM holdfast.endpoint").fetchall()) == ([], [])


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
    assert audited_reasons(world.db) == []
