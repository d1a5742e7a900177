"""Another policy on one checkpoint: it counts from its moment on and changes nothing before."""

import json
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.exposure.policy import Policy
from tests.support.job.job_stream import contents
from tests.support.job.jobs import Play, at, event, forget_commit, micros

LIMITS = "limit_minor = {0}\nrelease_level_minor = {0}\n"
V1 = 'version = "v1"\n[[default]]\n' + LIMITS.format(5_000_000)
V2 = f"{V1}[[default]]\n{LIMITS.format(40_000)}effective_from = 2024-11-04T12:30:00Z\n".replace(
    "v1", "v2"
)


def _run(play: Play, policy: str, **changed: Any) -> None:
    play.command(policy=Policy.parse(policy), **changed)


def _claim(play: Play, policy: str) -> Policy:
    """Do what a start does before the query."""
    from holdfast.spark_app.checkpoint.journal import claim

    job = play.job(policy=Policy.parse(policy))
    with closing(play.sink(job)) as sink:
        return claim(play.files(), job, sink).policy


def _kept(play: Play) -> list[tuple[str, int | None]]:
    text = (play.checkpoint / "holdfast-policy.json").read_text()
    return [(entry["version"], entry["since_us"]) for entry in json.loads(text)["policies"]]


def test_new_policy_applies_from_its_time_and_not_to_repeated_batches(
    play: Play, db: psycopg.Connection
) -> None:
    play.put(
        [event("e1", "12:01", 6_000_000)],
        [event("e2", "12:20", 50_000), event("e3", "12:20", 9, "m_2")],
    )
    _run(play, V1)
    before = contents(db)
    assert [row[3] for row in before["entry"]] == ["payout_hold.block"]

    # Spark forgets the batch that published the window until 12:15, at a watermark of 12:19:30.
    forget_commit(play.checkpoint, 2)
    _run(play, V2)
    assert contents(db) == before
    assert _kept(play) == [("v1", None), ("v2", micros(at("12:19:30")))]

    play.put([event("e4", "12:50", 1)], first=2)
    _run(play, V2)
    windows = db.execute("""
        SELECT merchant_id, window_end, exposure_minor, policy_version
        FROM holdfast.exposure_window ORDER BY 2, 1
    """)
    assert windows.fetchall() == [
        ("m_1", at("12:15"), 6_000_000, "v1"),
        ("m_1", at("12:30"), 50_000, "v2"),
        ("m_2", at("12:30"), 9, "v2"),
        ("m_1", at("12:45"), 0, "v2"),
    ]
    decided = db.execute("""
        SELECT type, data ->> 'window_end', data ->> 'limit_minor', data ->> 'policy_version'
        FROM holdfast.entry, LATERAL (SELECT convert_from(body, 'UTF8')::jsonb -> 'data' AS data) b
        ORDER BY sequence
    """)
    assert decided.fetchall() == [
        ("payout_hold.block", "2024-11-04T12:15:00Z", "5000000", "v1"),
        # 50,000 is above the new limit: under the old one it would have been a release.
        ("payout_hold.release", "2024-11-04T12:45:00Z", "40000", "v2"),
    ]

    with pytest.raises(
        CommandError, match="from 2024-11-04T12:30:00Z on, but the windows that end"
    ):
        _claim(play, V1.replace("v1", "v3"))
    with pytest.raises(CommandError, match="its version is v2 as before"):
        _claim(play, V2.replace("40000", "30000"))
    with pytest.raises(CommandError, match="lets the default settle in EUR"):
        _claim(play, 'currency = "EUR"\n' + V2.replace("v2", "v3"))
    assert len(_kept(play)) == 2


@pytest.mark.rest
def test_older_checkpoint_keeps_what_later_batches_published(play: Play, dsn: str) -> None:
    """Else the stream keeps a block that the state does not know, and nothing releases it."""
    clocks = enumerate(("12:01", "12:20", "12:25"))
    play.put(*([event(f"e{number}", clock, 6_000_000)] for number, clock in clocks))
    _run(play, V1)
    restored(Folder(str(play.checkpoint)), 0, dsn, dry_run=False)
    early = V2.replace("12:30", "12:10").replace("40000", "9000000")
    with pytest.raises(CommandError, match="that end up to 2024-11-04T12:15:00Z are decided"):
        _claim(play, early)
    assert _kept(play) == [("v1", None)]
    _claim(play, V2)
    assert _kept(play) == [("v1", None), ("v2", micros(at("12:15")))]


@pytest.mark.rest
def test_until_the_first_batch_any_policy_may_be_the_first(play: Play) -> None:
    """As after a crash between writing the policy down and the first batch."""
    assert _claim(play, V1).version == "v1"
    other = V1.replace("v1", "v0").replace("5000000", "7")
    assert _claim(play, other).versions_at(_ends("12:15")).to_pylist() == ["v0"]
    assert _kept(play) == [("v0", None)]
    assert _claim(play, other) == _claim(play, other)
    assert _kept(play) == [("v0", None)]


def _ends(*clocks: str) -> Any:
    import numpy as np

    return np.array([micros(at(clock)) for clock in clocks])
