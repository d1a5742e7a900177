"""Which references a dispatcher resolves: those below what it was started with, and no others.

Real: the command in a process of its own, the database, the receiver, the files and their links.
"""

from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.dispatching import add_endpoint, dispatching
from tests.support.dispatch.webhooks import WebhookReceiver
from tests.support.job.decisions import Decisions

pytestmark = pytest.mark.rest

CANARY = "c4n4ry-pa55"


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


def test_header_cannot_carry_secrets_of_the_dispatcher(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    (tmp_path / "pgpass").write_text(CANARY)
    references = [*REFUSED, f"file:{tmp_path / 'pgpass'}"]
    names = {f"payouts_{number}": each for number, each in enumerate(references)}
    for name, reference in names.items():
        add_endpoint(db, receiver.url, name=name, headers=Jsonb({"x-a": reference}))
    decisions.write("m_1")
    secrets = ("PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "AWS_SECRET")
    environment = dict.fromkeys(secrets, CANARY)
    with dispatching(dsn, tmp_path / "log", "--drain", environment=environment) as running:
        running.ends()
        lines = running.text().splitlines()
    assert receiver.seen == []
    for name in names:  # each is told what is allowed
        assert any(name in line and "HOLDFAST_SECRET_" in line for line in lines), lines
    assert not any(CANARY in line for line in lines)
    # Nothing is lost: the decision goes out when the endpoints are put right.
    sent(dsn, db, tmp_path / "log", {})
    assert receiver.sequences("m_1") == [1] * len(names)


def test_prefixes_and_folders_that_it_is_started_with_are_resolved(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("from a file")
    add_endpoint(db, receiver.url)
    headers = {"x-a": "env:PAYOUTS_TOKEN", "x-b": f"file:{tmp_path / 'token'}"}
    environment = {"PAYOUTS_TOKEN": "from the environment"}
    options = ("--secret-env-prefix", "PAYOUTS_", "--secret-env-prefix", "HOLDFAST_SECRET_")
    folder = ("--secret-dir", str(tmp_path))
    settings = {
        "HOLDFAST_ALLOW_SECRET_ENV_PREFIX": "PAYOUTS_:HOLDFAST_SECRET_",
        "HOLDFAST_ALLOW_SECRET_DIR": str(tmp_path),
    }
    for number, (words, more) in enumerate([((*options, *folder), {}), ((), settings)], start=1):
        decisions.write("m_1")
        sent(dsn, db, tmp_path / "log", headers, *words, environment=environment | more)
        assert len(receiver.seen) == number
        assert receiver.seen[-1].header("x-a") == "from the environment"
        assert receiver.seen[-1].header("x-b") == "from a file"


@pytest.mark.parametrize(
    "options", [("--secret-env-prefix", "HOLDFAST_"), ("--secret-dir", "/proc/self")]
)
def test_dispatcher_does_not_start_with_a_rule_that_reaches_itself(
    dsn: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with dispatching(dsn, tmp_path / "log", "--drain", *options) as running:
        assert running.ends() == ExitCode.USAGE
        assert options[1] in running.text()
