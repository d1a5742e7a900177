"""`holdfast endpoint`: settings that are added, shown, changed and refused."""

from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
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


def test_rotation_to_missing_secret_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_state_changes_for_a_reason_alone(dsn: str, db: psycopg.Connection) -> None:
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
