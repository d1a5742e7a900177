"""Commands over the empty batch with which a stream adopts a checkpoint by proof."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.entries import BLOCK, decision
from tests.support.job.driver import Driver


@pytest.fixture
def continued(dsn: str) -> Iterator[Driver]:
    """A new checkpoint that continued batch 3 of another one, and has written nothing since."""
    old = Driver(dsn, first_batch=3)
    old.batch(3, decision("m_1", 0, BLOCK))
    new = Driver(dsn)
    proof = old.sink.proof(old.query_id, 3)
    assert proof
    new.sink.continue_from(proof, new.query_id, 0)
    yield new
    for each in (old, new):
        each.sink.close()


def _json(dsn: str, *words: str) -> dict[str, Any]:
    done = holdfast(*words, "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_empty_batch_is_listed_and_shown_as_a_batch_without_rows(
    dsn: str, continued: Driver
) -> None:
    [listed] = _json(dsn, "batch", "list", "payouts")["batches"]
    assert (listed["batch_id"], listed["row_count"], listed["entry_count"]) == (0, 0, 0)
    shown = _json(dsn, "batch", "show", "payouts", "0")
    assert shown["query_id"] == str(continued.query_id)
    assert (shown["types"], shown["delivery"], shown["refused"], shown["divergences"]) == (
        *([],) * 4,
    )
    said = holdfast("batch", "show", "payouts", "0", dsn=dsn).stdout
    assert "0 rows = 0 entries + 0 duplicates + 0 suppressed + 0 quarantined" in said
    assert "None" not in said
    stream = _json(dsn, "stream", "show", "payouts")
    ranges = [(each["first_batch_id"], each["last_batch_id"]) for each in stream["checkpoints"]]
    assert ranges == [(0, 0), (3, 3)]


SECRET = "HOLDFAST_SECRET_CONTINUED"


def _add_endpoint(dsn: str, type_: str) -> None:
    done = holdfast(
        *("endpoint", "add", "payouts", "--url", "http://127.0.0.1:9/", "--type", type_),
        *("--secret-ref", f"env:{SECRET}", "--allow-cidr", "127.0.0.0/8", "--reason", "test"),
        dsn=dsn,
        environment={SECRET: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
    )
    assert done.returncode == ExitCode.OK, done.stderr


@pytest.mark.usefixtures("continued")
def test_decision_before_it_is_traced_to_its_own_batch_and_can_be_reissued(
    dsn: str, db: psycopg.Connection
) -> None:
    [key] = [each["key"] for each in _json(dsn, "entries", "list")["entries"]]
    assert _json(dsn, "trace", key)["batch"]["batch_id"] == 3
    _add_endpoint(dsn, BLOCK)
    done = holdfast("reissue", key, "--reason", "test", "--yes", dsn=dsn)
    assert done.returncode == ExitCode.OK, (done.stdout, done.stderr)
    empty = "SELECT query_id FROM holdfast.batch WHERE row_count = 0"
    assert len(db.execute(empty).fetchall()) == 1


@pytest.mark.usefixtures("continued")
def test_dispatcher_routes_it_and_every_invariant_holds(dsn: str, db: psycopg.Connection) -> None:
    _add_endpoint(dsn, "never.sent")
    drained = holdfast("dispatch", "--drain", dsn=dsn, process=True)
    assert drained.returncode == ExitCode.OK, drained.stderr
    unrouted = "SELECT batch_id FROM holdfast.batch WHERE routed_at IS NULL"
    assert db.execute(unrouted).fetchall() == []
    assert holdfast("check", dsn=dsn).returncode == ExitCode.OK
