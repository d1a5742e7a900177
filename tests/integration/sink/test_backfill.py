"""History that new code recomputes: the commands of the page, and what each way sends.

Real: Postgres, the commands, the dispatcher, HTTP. Doubled: Spark.
"""

import shlex
from string import Template
from typing import Any

import pytest

from holdfast.sink import UnadoptedCheckpoint
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.sender import BLOCK, RELEASE, decision, secret_text
from tests.support.documents.pages import blocks_of
from tests.support.job.driver import Driver
from tests.support.world import World

PAGE = "docs/spark/backfill.md"
NEW_KEYS = "payout-hold/v2"

OLD = [decision("m_1", 2), decision("m_2", 1), decision("m_2", 3, RELEASE)]
NEW = [
    decision("m_1", 2, minor=1),
    decision("m_1", 4, RELEASE),
    decision("m_2", 1),
    decision("m_2", 2, RELEASE),
    decision("m_2", 5, RELEASE),
    decision("m_3", 1),
]
"""One with other content, one older than the newest, one that repeats it, and two that are new."""


def _follow(world: World, number: int, *more: str, **variables: str) -> list[str]:
    """Run a shell block of the page, and return what each command prints."""
    block = Template(blocks_of(PAGE, "sh")[number]).substitute(variables)
    lines = [shlex.split(line)[1:] for line in block.splitlines()]
    return [world.holdfast(*words, *more, code=ExitCode.OK).stdout for words in lines]


def _with_keys(version: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "key": [version, *row["key"][1:]]} for row in rows]


def _old_code(world: World) -> Driver:
    world.endpoint()
    old = world.driver()
    for batch_id, row in enumerate(OLD):
        old.batch(batch_id, row)
    world.drain()
    assert _seen(world, "payouts") == [("m_1", 1), ("m_2", 1), ("m_2", 2)]
    return old


def _seen(world: World, endpoint: str) -> list[tuple[str, int]]:
    seen = [each for each in world.receiver.seen if each.target.endswith(endpoint)]
    return sorted((each.subject, each.sequence) for each in seen)


def test_planned_stream_is_compared_and_reaches_its_own_receiver(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_DEV", secret_text())
    old = _old_code(world)
    _follow(world, 0)
    second = world.driver(stream="payouts-v2")
    assert second.batch(0, *_with_keys(NEW_KEYS, NEW)).counts.entries == 5
    old.batch(3, decision("m_9", 9))
    world.drain()
    # The receiver of the first stream got what that one decides, and nothing of the plan.
    assert _seen(world, "payouts")[3:] == [("m_9", 1)]

    [compares] = blocks_of(PAGE, "sql")
    assert [(code, subject, type_) for code, subject, type_, _ in world.db.execute(compares)] == [
        ("new", "m_3", BLOCK),
        ("data differs", "m_1", BLOCK),
        ("new", "m_2", RELEASE),
        ("old", "m_2", RELEASE),
        ("new", "m_1", RELEASE),
        ("old", "m_9", BLOCK),
    ]

    # The receivers of the tests have no TLS.
    _follow(world, 4, "--allow-cidr", "127.0.0.1/32", URL=f"{world.receiver.url}/payouts-v2")
    world.drain()
    assert _seen(world, "payouts-v2") == [
        *(("m_1", 2), ("m_1", 3), ("m_2", 3), ("m_2", 4), ("m_3", 1)),
    ]
    shown, _ = _follow(world, 5)
    assert "payouts-v2" in shown


def test_adopted_recomputation_sends_what_is_new_once(world: World) -> None:
    _old_code(world)
    new = world.driver()
    with pytest.raises(UnadoptedCheckpoint):
        new.batch(0, *NEW)
    _follow(world, 1, QUERY_ID=str(new.query_id))
    counts = new.batch(0, *NEW).counts
    assert (counts.entries, counts.duplicates, counts.differing, counts.suppressed) == (2, 2, 1, 2)
    world.drain()
    assert _seen(world, "payouts")[-2:] == [("m_2", 2), ("m_3", 1)]
    assert ("m_1", 2) in _seen(world, "payouts")
    suppressed, stream = _follow(world, 2)
    assert suppressed.count("m_2") == 2
    assert "1 duplicate with other content" in stream


def test_rows_set_aside_before_an_adoption_are_closed(world: World) -> None:
    old, new = world.driver(), world.driver()
    refused = decision("m_1") | {"key": []}
    old.batch(0, decision("m_2"), refused, decision(""))
    _follow(world, 1, QUERY_ID=str(new.query_id))
    assert new.batch(0, decision("m_2"), refused, decision("m_3")).counts.quarantined == 1
    adopted_at = world.holdfast("stream", "show", "payouts", "--json").json["adopted_at"]
    [shown] = _follow(world, 3, "--yes", ADOPTED_AT=adopted_at)
    assert "2 rows dismissed" in shown
    [left] = world.holdfast("quarantine", "list", "--json").json["rows"]
    assert (left["query_id"], left["reason"]) == (str(new.query_id), "bad_key")


def test_second_stream_of_the_same_keys_takes_them_from_the_first(world: World) -> None:
    """Why the page has a second stream with keys of its own."""
    old = world.driver()
    old.batch(0, decision("m_1", 1, BLOCK))
    second = world.driver(stream="payouts-v2")
    assert second.batch(0, decision("m_1", 2, BLOCK)).counts.entries == 1
    assert old.batch(1, decision("m_1", 2, BLOCK)).counts.duplicates == 1


def test_page_has_no_other_commands() -> None:
    assert len(blocks_of(PAGE, "sh")) == 6
