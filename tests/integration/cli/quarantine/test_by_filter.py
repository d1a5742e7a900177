"""Quarantined rows that a filter finds: previewed, bounded, put back once or by two people."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast.dispatcher.cli.quarantine.row_files import write_lines
from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.quarantine import many
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import QuarantineResolution
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver, set_aside
from tests.support.job.job_stream import contents, sequences
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

WHY = ("--reason", "the rule was wrong")
OPEN = "SELECT id FROM holdfast.quarantine WHERE resolution IS NULL ORDER BY id"
AUDIT = "SELECT action, target, detail FROM holdfast.operator_action ORDER BY id"
WRITTEN = "SELECT batch_id FROM holdfast.batch WHERE stream LIKE '%.requeue' ORDER BY batch_id"
WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})


def _entry(number: int, type_: str = BLOCK, **other: Any) -> str:
    row = {
        "subject": f"m_{number}",
        "type": type_,
        "key": [f"k_{number}"],
        "occurred_at": "2026-11-02T12:15:00Z",
        "data": {"exposure_minor": 1},
    }
    return json.dumps(row | other)


def _kept(dsn: str, *texts: str, reason: str = "bad_data", stream: str = "payouts") -> list[int]:
    return set_aside(dsn, *((reason, text) for text in texts), stream=stream)


def _run(dsn: str, *options: str, verb: str = "requeue", **other: Any) -> tuple[int, Any, str]:
    done = holdfast("quarantine", verb, *options, *WHY, "--json", dsn=dsn, **other)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def _by_reason(dsn: str, *options: str, **other: Any) -> tuple[int, Any, str]:
    return _run(dsn, "--reason-is", "bad_data", "--yes", *options, **other)


def _approve(world: World, id_: str) -> None:
    with acting_as("second"):
        world.holdfast("proposal", "approve", id_, *WHY, code=ExitCode.OK)


def _open(db: psycopg.Connection) -> list[int]:
    return [number for (number,) in db.execute(OPEN).fetchall()]


def test_preview_tells_what_becomes_of_each_row(world: World) -> None:
    spark = Driver(world.dsn, stream="other")
    spark.batch(0, decision("m_5", 9, RELEASE), decision("m_6"))
    spark.sink.close()
    taken = decision("m_6")
    same_key = {"subject": "m_6", "key": taken["key"]}
    numbers = _kept(
        world.dsn,
        _entry(0),
        _entry(1, data={"exposure_minor": 1.5}),
        CUT,
        _entry(5),
        _entry(5, key=["k_5b"]),
        _entry(6, **same_key),
        _entry(7, occurred_at="2222-11-02T12:15:00Z"),
    )
    before = contents(world.db)
    code, reply, error = _by_reason(world.dsn, "--dry-run")
    assert code == ExitCode.OK, error
    preview = reply["preview"]
    assert preview["fates"] == {
        "ready": 1,
        "unfit": 1,
        "overtakes": 1,
        "behind": 1,
        "key_conflict": 1,
        "future_dated": 1,
        "not_as_kept": 1,
    }
    [reason] = preview["reasons"]
    assert (reason["reason"], reason["rows"]) == ("bad_data", len(numbers))
    assert reason["subjects"][0] == "m_0"
    assert (contents(world.db), world.db.execute(AUDIT).fetchall()) == (before, [])
    text = world.holdfast("quarantine", "requeue", "--reason-is", "bad_data", "--dry-run", *WHY)
    assert "7 open rows match" in text.stdout
    assert "as row" in text.stdout


def test_filter_puts_back_what_it_found_and_leaves_the_rest(world: World) -> None:
    first, second, unfit, other = set_aside(
        world.dsn,
        ("bad_data", _entry(0)),
        ("bad_data", _entry(1)),
        ("bad_data", _entry(2, data={"exposure_minor": 1.5})),
        ("bad_key", _entry(3)),
    )
    code, reply, error = _by_reason(world.dsn)
    assert code == ExitCode.DEGRADED, error
    assert [row["id"] for row in reply["requeued"]] == [first, second]
    assert _open(world.db) == [unfit, other]
    assert world.db.execute(WRITTEN).fetchall() == [(first,), (second,)]
    begun, *each = world.db.execute(AUDIT).fetchall()
    assert begun[:2] == ("quarantine.requeue", "quarantine")
    assert (begun[2]["rows"], begun[2]["ids"]) == ("2", f"{first}-{second}")
    assert [target for _, target, _ in each] == [f"quarantine {n}" for n in (first, second)]
    code, reply, _ = _by_reason(world.dsn)
    assert (code, reply["requeued"]) == (ExitCode.FAILED, [])
    none = _run(world.dsn, "--reason-is", "bad_subject", "--yes")
    assert none[0] == ExitCode.NOTHING_MATCHED


def test_filter_takes_the_rule_of_a_job(world: World) -> None:
    first, second = _kept(world.dsn, _entry(0), _entry(1), reason="bad_data")
    for number, rule in ((first, "no_such_order"), (second, "other_currency")):
        world.db.execute(
            "UPDATE holdfast.quarantine SET reason = 'rejected', rule = %s WHERE id = %s",
            [rule, number],
        )
    code, reply, error = _run(world.dsn, "--reason-is", "no_such_order", "--yes")
    assert code == ExitCode.OK, error
    assert [row["id"] for row in reply["requeued"]] == [first]
    assert _open(world.db) == [second]


def test_time_and_stream_and_limit_bound_the_filter(world: World) -> None:
    early = _kept(world.dsn, _entry(0), _entry(1))
    late = _kept(world.dsn, _entry(2), _entry(3), stream="other")[2:]
    world.db.execute(
        "UPDATE holdfast.quarantine SET quarantined_at = '2026-11-01T12:00Z' WHERE id = ANY (%s)",
        [early],
    )
    until = ("--until", "2026-11-01T12:00:01Z")
    code, reply, error = _run(world.dsn, *until, "--limit", "1", "--yes")
    assert code == ExitCode.OK, error
    assert (reply["preview"]["matching"], reply["preview"]["taken"]) == (2, 1)
    assert [row["id"] for row in reply["requeued"]] == early[:1]
    listed = holdfast("quarantine", "list", *until, "--json", dsn=world.dsn).json["rows"]
    assert [row["id"] for row in listed] == early[1:]
    assert _run(world.dsn, "--stream", "other", "--dry-run")[1]["preview"]["taken"] == 2
    assert _open(world.db) == [*early[1:], *late]


def test_more_rows_than_the_limit_need_a_second_person(world: World) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(5)))
    before = contents(world.db)
    code, reply, error = _by_reason(world.dsn, "--alone", "4")
    assert (code, reply["requeued"]) == (ExitCode.DEGRADED, []), error
    proposal = reply["proposal"]
    assert (proposal["rows"], proposal["ids"]) == (5, f"{numbers[0]}-{numbers[-1]}")
    assert contents(world.db) == before
    late = set_aside(world.dsn, ("bad_data", _entry(9)), stream="other")[-1]
    early = _run(world.dsn, "--proposal", proposal["id"])
    assert (early[0], "second person" in early[2]) == (ExitCode.FAILED, True)
    mine = world.holdfast("proposal", "approve", proposal["id"], *WHY)
    assert (mine.returncode, "that is you" in mine.stderr) == (ExitCode.FAILED, True)
    assert contents(world.db)["entry"] == []

    _approve(world, proposal["id"])
    shown = world.holdfast("proposal", "show", proposal["id"]).stdout
    apply_ = f"holdfast quarantine requeue --proposal {proposal['id'][:8]} --reason TEXT"
    assert apply_ in shown.splitlines()[-1]
    code, reply, error = _run(world.dsn, "--proposal", proposal["id"])
    assert (code, [row["id"] for row in reply["requeued"]]) == (ExitCode.OK, numbers), error
    assert _open(world.db) == [late]
    detail = world.db.execute(AUDIT).fetchall()[-1][2]
    assert (detail["proposal"], detail["approved_by"]) == (proposal["id"], "second")
    again = _run(world.dsn, "--proposal", proposal["id"])
    assert (again[0], "is applied" in again[2]) == (ExitCode.FAILED, True)


def test_rows_of_a_day_count_together_for_one_person(world: World) -> None:
    _kept(world.dsn, *map(_entry, range(3)))
    assert _by_reason(world.dsn, "--alone", "3", "--limit", "2")[0] == ExitCode.OK
    _kept(world.dsn, _entry(4), stream="other")
    code, reply, _ = _by_reason(world.dsn, "--alone", "3")
    assert (code, reply["proposal"]["rows"]) == (ExitCode.DEGRADED, 2)
    with acting_as("second"):
        assert _by_reason(world.dsn, "--alone", "3")[0] == ExitCode.OK
    assert _open(world.db) == []


def test_limit_of_one_person_cannot_be_raised(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "ALONE_ROWS_MAX", 1)
    _kept(world.dsn, _entry(0), _entry(1))
    assert _by_reason(world.dsn, "--alone", "2")[1]["requeued"] == []
    for option in (("--alone", "101"), ("--limit", "10001")):
        assert holdfast("quarantine", "requeue", *option, *WHY, dsn=world.dsn).returncode == 2
    assert contents(world.db)["entry"] == []


def test_plan_of_altered_rows_is_not_done(world: World) -> None:
    first, _ = _kept(world.dsn, _entry(0), _entry(1))
    id_ = _by_reason(world.dsn, "--alone", "0")[1]["proposal"]["id"]
    _approve(world, id_)
    world.db.execute("UPDATE holdfast.quarantine SET row = %s WHERE id = %s", [_entry(8), first])
    code, _, error = _run(world.dsn, "--proposal", id_)
    assert (code, "not those that were approved" in error) == (ExitCode.FAILED, True)
    assert contents(world.db)["entry"] == []


def test_many_rows_overtake_only_what_two_people_saw(world: World) -> None:
    spark = Driver(world.dsn, stream="other")
    spark.batch(0, decision("m_0", 9, RELEASE), decision("m_1", 9, RELEASE))
    numbers = _kept(world.dsn, *map(_entry, range(3)))
    code, reply, _ = _by_reason(world.dsn)
    assert (code, [row["id"] for row in reply["requeued"]]) == (ExitCode.DEGRADED, numbers[2:])
    id_ = reply["proposal"]["id"]
    assert sequences(world.db, "m_0") == [1]
    _approve(world, id_)
    spark.batch(1, decision("m_1", 10))
    spark.sink.close()
    code, reply, error = _run(world.dsn, "--proposal", id_)
    assert code == ExitCode.DEGRADED, error
    assert [row["id"] for row in reply["requeued"]] == numbers[:1]
    assert [row["id"] for row in reply["refused"]] == numbers[1:2]
    assert "have changed since" in reply["refused"][0]["detail"]
    assert (sequences(world.db, "m_0"), sequences(world.db, "m_1")) == ([1, 2], [1, 2])


def test_rows_of_a_subject_are_written_in_their_order(world: World) -> None:
    later, earlier = _kept(
        world.dsn,
        _entry(0, RELEASE, key=["b"], occurred_at="2026-11-02T12:30:00Z"),
        _entry(0, BLOCK, key=["a"]),
    )
    id_ = _by_reason(world.dsn, "--alone", "0")[1]["proposal"]["id"]
    _approve(world, id_)
    code, reply, error = _run(world.dsn, "--proposal", id_)
    assert code == ExitCode.OK, error
    assert [row["id"] for row in reply["requeued"]] == [earlier, later]
    assert sequences(world.db, "m_0") == [1, 2]


def test_killed_in_the_middle_continues_and_writes_nothing_twice(world: World) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(4)))
    id_ = _by_reason(world.dsn, "--alone", "0")[1]["proposal"]["id"]
    _approve(world, id_)
    armed = {"HOLDFAST_FAILPOINTS": "S8=kill@3"}
    options = ("requeue", "--proposal", id_, *WHY)
    killed = holdfast("quarantine", *options, dsn=world.dsn, process=True, environment=armed)
    assert killed.returncode == -signal.SIGKILL
    assert world.db.execute(WRITTEN).fetchall() == [(n,) for n in numbers[:3]]
    assert _open(world.db) == numbers[2:]
    code, reply, error = _run(world.dsn, "--proposal", id_)
    assert (code, [row["id"] for row in reply["requeued"]]) == (ExitCode.OK, numbers[2:]), error
    assert "written before" in reply["requeued"][0]["detail"]
    assert len(contents(world.db)["entry"]) == len(numbers)
    assert _open(world.db) == []


@pytest.mark.rest
@pytest.mark.parametrize("approved", [False, True], ids=["alone", "of a proposal"])
def test_two_who_put_the_same_rows_back_write_each_once(world: World, approved: bool) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(12)))
    options = ["--reason-is", "bad_data", "--yes"]
    if approved:
        id_ = _by_reason(world.dsn, "--alone", "0")[1]["proposal"]["id"]
        _approve(world, id_)
        options = ["--proposal", id_]

    def put_back(_: int) -> list[int]:
        _, reply, error = _run(world.dsn, *options, process=True)
        return [row["id"] for row in reply["requeued"]] if reply else [] if error else [-1]

    with ThreadPoolExecutor(2) as pool:
        done = sorted(n for each in pool.map(put_back, range(2)) for n in each)
    assert done == numbers
    assert _open(world.db) == []
    assert len(contents(world.db)["entry"]) == len(numbers)


def test_two_at_once_do_not_both_fit_the_limit(world: World) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(4)))
    with ThreadPoolExecutor(1) as pool, Quarantine.connect(world.dsn) as store:
        with store._transaction():
            assert store.begin_alone("quarantine.requeue", "x", {"rows": 4}, limit=5)
            second = pool.submit(_by_reason, world.dsn, "--alone", "5", process=True)
            eventually(lambda: world.db.execute(WAITING).fetchall() or second.done())
        code, reply, error = second.result()
    assert (code, reply["requeued"]) == (ExitCode.DEGRADED, []), error
    assert _open(world.db) == numbers


def test_cancelled_plan_ends_before_its_next_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(3)))
    monkeypatch.setattr(many, "CHUNK", 1)
    for verb in ("requeue", "dismiss"):
        id_ = UUID(_by_reason(world.dsn, "--alone", "0", verb=verb)[1]["proposal"]["id"])
        _approve(world, str(id_))
        with Quarantine.connect(world.dsn) as store:
            done = QuarantineResolution("requeued" if verb == "requeue" else "dismissed")
            plan, task = many.approved(store, id_, done)
            parts = many.resolve(
                *(store, world.dsn, plan["ids"], task, "x"), write_lines=write_lines, plan=plan
            )
            assert [row["id"] for row in next(parts).done] == [numbers.pop(0)]
            store.cancel(id_, "x")
            with raises_code("proposal_not_open"):
                next(parts)
    assert _open(world.db) == numbers


def test_source_lines_go_back_to_the_job_by_filter(world: World) -> None:
    lines = ['{"event_id": "e1"}', "{\n", '{"event_id": "e2"}']
    numbers = _kept(world.dsn, *lines, reason="malformed")
    set_aside(world.dsn, ("bad_data", _entry(0)), stream="other")
    into = world.tmp_path / "in"
    into.mkdir()
    options = ("--since", "1d", "--into", str(into), "--yes")
    code, reply, error = _run(world.dsn, *options)
    assert code == ExitCode.DEGRADED, error
    assert [row["id"] for row in reply["requeued"]] == [numbers[0], numbers[2]]
    assert sorted(path.read_text() for path in into.iterdir()) == [
        f"{lines[0]}\n",
        f"{lines[2]}\n",
    ]
    assert len(_open(world.db)) == 2


def test_rows_are_dismissed_by_filter_within_the_limit(world: World) -> None:
    numbers = _kept(world.dsn, *map(_entry, range(3)))
    code, reply, error = _by_reason(world.dsn, "--alone", "2", verb="dismiss")
    assert (code, reply["dismissed"]) == (ExitCode.DEGRADED, []), error
    id_ = reply["proposal"]["id"]
    assert _run(world.dsn, "--proposal", id_)[0] == ExitCode.FAILED, "it is of another verb"
    _approve(world, id_)
    code, reply, error = _run(world.dsn, "--proposal", id_, verb="dismiss")
    assert (code, [row["id"] for row in reply["dismissed"]]) == (ExitCode.OK, numbers), error
    assert contents(world.db)["entry"] == []
    assert _by_reason(world.dsn, verb="dismiss")[0] == ExitCode.NOTHING_MATCHED


def test_filter_that_makes_no_sense_changes_nothing(world: World) -> None:
    [number] = _kept(world.dsn, _entry(0))
    for options in (
        ["--yes"],
        [str(number), "--reason-is", "bad_data"],
        [str(number), "--dry-run"],
        ["--reason-is", "bad_data"],
        ["--reason-is", "bad_data", "--row", str(__file__), "--yes"],
        ["--reason-is", "bad_data", "--proposal", "12345678"],
        ["--since", "soon", "--yes"],
        ["--since", "1h", "--into", "/nowhere", "--yes"],
    ):
        code, _, error = _run(world.dsn, *options)
        assert (code, "Traceback" in error) == (ExitCode.USAGE, False), options
    assert _open(world.db) == [number]
