"""`holdfast attempt list` and `holdfast entry tail`: what was tried, and what comes."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, alternating, decision
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.world import World

ATTEMPTS = """
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    VALUES ('a', 'https://a.example/', '{env:S}'), ('b', 'https://b.example/', '{env:S}');
    INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
        outcome, status, error)
    SELECT p.id, e.subject_id, e.sequence, n, now() + n * interval '1 second', gen_random_uuid(),
        CASE n WHEN 2 THEN 'delivered' ELSE 'unknown' END::holdfast.outcome,
        CASE n WHEN 2 THEN 200 END, E'no answer\\x1b[2J'
    FROM holdfast.endpoint p, holdfast.entry e, generate_series(1, 2) n
"""


def _json(dsn: str, *arguments: str) -> dict[str, Any]:
    return holdfast("attempt", "list", *arguments, "--json", dsn=dsn, code=ExitCode.OK).json


def _listed(dsn: str, *arguments: str) -> list[tuple[str, int, int]]:
    """Endpoint, sequence and number of all attempts, page by page."""
    results: list[tuple[str, int, int]] = []
    page = _json(dsn, *arguments)
    while True:
        results += [(row["endpoint"], row["sequence"], row["number"]) for row in page["attempts"]]
        if page["next_before"] is None:
            return results
        page = _json(dsn, *arguments, "--before", page["next_before"])


def test_attempts_are_listed_page_by_page_the_newest_sequence_first(world: World) -> None:
    with Decisions(world.dsn) as decisions:
        rows = [decisions.row("m_1") for _ in range(3)]
        decisions.write_rows([*rows, decisions.row("m_2")])
    world.db.execute(ATTEMPTS)
    everything = [(p, s, n) for s in (3, 2, 1) for n in (2, 1) for p in ("b", "a")]
    for few in ("2", "5"):
        assert _listed(world.dsn, "--subject", "m_1", "--limit", few) == everything
    second = Key.of(rows[1]["key"]).text
    assert _listed(world.dsn, second) == [each for each in everything if each[1] == 2]
    assert _listed(world.dsn, "--subject", "m_1", "--sequence", "2") == _listed(world.dsn, second)
    assert _listed(world.dsn, second, "--endpoint", "a") == [("a", 2, 2), ("a", 2, 1)]
    assert _listed(world.dsn, second, "--outcome", "delivered") == [("b", 2, 2), ("a", 2, 2)]
    moment = _json(world.dsn, second)["attempts"][0]["finished_at"]
    assert _listed(world.dsn, second, "--since", moment) == [("b", 2, 2), ("a", 2, 2)]
    assert _listed(world.dsn, second, "--until", moment) == [("b", 2, 1), ("a", 2, 1)]
    text = world.holdfast("attempt", "list", second, "--limit", "1").stdout
    assert "older rows: --before 2.2.2" in text
    assert r"no answer\x1b[2J" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("code", "complaint", "arguments"),
    [
        (ExitCode.USAGE, "exclude each other", ["hf_1", "--subject", "m_1"]),
        (ExitCode.USAGE, "--sequence needs --subject", [Key.of(["x"]).text, "--sequence", "1"]),
        (ExitCode.USAGE, "is not a key", ["hf_1"]),
        (ExitCode.USAGE, "next_before", ["--subject", "m_1", "--before", "1;2"]),
        (ExitCode.USAGE, "next_before", ["--before", "3.1.1"]),
        (ExitCode.USAGE, "with a zone", ["--subject", "m_1", "--since", "tomorrow"]),
        (ExitCode.USAGE, "outcome", ["--subject", "m_1", "--outcome", "lost"]),
    ],
)
def test_attempts_without_a_key_are_a_usage_error(
    code: int, complaint: str, arguments: list[str]
) -> None:
    done = holdfast("attempt", "list", *arguments, dsn="postgresql://nobody@127.0.0.1:9/x")
    assert done.returncode == code, done.stderr
    assert complaint in done.stderr


def test_unknown_attempts_are_exit_code_3(dsn: str) -> None:
    with Decisions(dsn) as decisions:
        decisions.write("m_1")
    for complaint, *arguments in (
        ("no subject is called", "--subject", "m_9"),
        ("no endpoint is called", "--subject", "m_1", "--endpoint", "nobody"),
        ("no attempt matches", "--subject", "m_1"),
        ("none ever had", Key.of(["x"]).text),
    ):
        done = holdfast("attempt", "list", *arguments, dsn=dsn, code=ExitCode.NOTHING_MATCHED)
        assert complaint in done.stderr


def test_tail_prints_the_newest_entries_with_the_newest_last(dsn: str) -> None:
    spark = Driver(dsn, suppress_repeats=False)
    with closing(spark.sink):
        spark.batch(0, *alternating("m_1", range(1, 4)), decision("m_2"))
    with Decisions(dsn, stream="other") as decisions:
        decisions.write("m_3", type_=RELEASE)

    def tailed(*options: str) -> list[tuple[str, int]]:
        done = holdfast("entry", "tail", "--json", *options, dsn=dsn, code=ExitCode.OK)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [(line["subject"], line["sequence"]) for line in lines]

    everything = [("m_1", 1), ("m_1", 2), ("m_1", 3), ("m_2", 1), ("m_3", 1)]
    assert tailed() == everything
    assert tailed("-n", "2") == everything[-2:]
    assert tailed("-n", "0") == []
    assert tailed("--subject", "m_1", "-n", "2") == [("m_1", 2), ("m_1", 3)]
    assert tailed("--stream", "other") == [("m_3", 1)]
    assert tailed("--type", BLOCK) == [("m_1", 1), ("m_1", 3), ("m_2", 1)]
    (line,) = holdfast("entry", "tail", "-n", "1", dsn=dsn).stdout.splitlines()
    assert line.endswith("payout_hold.release  m_3 1  other batch 1")
    holdfast("entry", "tail", "--stream", "nobody", dsn=dsn, code=ExitCode.NOTHING_MATCHED)


def test_tail_follows_batches_out_of_order(dsn: str, db: psycopg.Connection) -> None:
    with Decisions(dsn) as first, Decisions(dsn, stream="other") as second:
        first.write("m_0")
        command = [
            sys.executable,
            "-m",
            "holdfast.dispatcher.cli.main",
            "entries",
            "tail",
            "-f",
            "--json",
        ]
        following = subprocess.Popen(
            command, env={**os.environ, "HOLDFAST_DSN": dsn}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert following.stdout is not None

            def comes() -> tuple[str, str]:
                line = json.loads(following.stdout.readline())
                return line["stream"], line["subject"]

            assert comes() == ("test", "m_0")
            first.write("m_1")
            assert comes() == ("test", "m_1")
            # A batch takes its number, and commits after one with a higher number.
            (number,) = db.execute("SELECT nextval('holdfast.batch_batch_no_seq')").fetchone() or (
                0,
            )
            second.write("m_2")
            assert comes() == ("other", "m_2")
            with db.transaction():
                db.execute(
                    "INSERT INTO holdfast.batch OVERRIDING SYSTEM VALUE SELECT (b).* FROM ("
                    " SELECT jsonb_populate_record(b, jsonb_build_object('batch_no', %s::bigint,"
                    " 'batch_id', 99)) AS b FROM holdfast.batch b WHERE stream = 'test' LIMIT 1"
                    ") late",
                    [number],
                )
                db.execute(
                    "INSERT INTO holdfast.entry SELECT (e).* FROM ("
                    " SELECT jsonb_populate_record(e, jsonb_build_object('batch_no', %s::bigint,"
                    " 'sequence', 9, 'key', gen_random_uuid())) AS e"
                    " FROM holdfast.entry e JOIN holdfast.subject s ON s.id = e.subject_id"
                    " WHERE s.name = 'm_0') late",
                    [number],
                )
            assert comes() == ("test", "m_0")
            following.send_signal(signal.SIGINT)
            assert following.wait(60) == ExitCode.OK
        finally:
            following.kill()
            following.wait()
            if following.stdout is not None:
                following.stdout.close()
