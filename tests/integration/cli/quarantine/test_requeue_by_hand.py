"""Rows that an operator puts back by hand, also while others resolve them."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast.dispatcher.cli.quarantine.row_files import write_lines
from holdfast.dispatcher.operators.common.session import Row, acting_as
from holdfast.dispatcher.operators.quarantine import actions
from holdfast.dispatcher.operators.quarantine.actions import open_among, put_entries, put_lines
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.requeue import writer
from holdfast.sink.contract.states import QuarantineResolution
from holdfast.sink.requeue import requeue
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, GOOD, RELEASE, decision
from tests.support.job.driver import Driver, set_aside
from tests.support.job.job_stream import contents, sequences
from tests.support.refusal import raises_code
from tests.support.waiting import eventually
from tests.support.world import World

FUTURE = ["payout-hold/v1", "m_9", "2026-11-02T12:30:00Z", "block", "1"]
CUT = json.dumps({"cut": True, "bytes": 70_000, "beginning": "{"})
WHY = ("--reason", "mended")

AUDIT = "SELECT action, target, actor, detail FROM holdfast.operator_action ORDER BY id"
OPEN = "SELECT id FROM holdfast.quarantine WHERE resolution IS NULL ORDER BY id"


def _requeue(dsn: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    done = holdfast("quarantine", "requeue", *map(str, arguments), *WHY, "--json", dsn=dsn)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def _file(directory: Path, row: object) -> Path:
    path = directory / "row.json"
    path.write_text(row if isinstance(row, str) else json.dumps(row))
    return path


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"subject": "m_1"}, "subject"),
        ({"type": RELEASE}, "type"),
        ({"key": FUTURE}, "key"),
        ({"occurred_at": "2026-11-02T12:30:00Z"}, "occurred_at"),
        ({"data": {"merchant_id": "m_1", "exposure_minor": 1}}, "data.merchant_id"),
        ({"data": GOOD["data"] | {"action": "release"}}, "data.action"),
        ({"data": {"merchant_id": "m_9"}}, "data.exposure_minor"),
        ({"data": GOOD["data"] | {"exposure_minor": 1.5}}, "data.exposure_minor"),
        ({"data": GOOD["data"] | {"exposure_minor": [[0] * 9] * 9}}, "data.exposure_minor"),
        ({"data": None}, "data"),
    ],
    ids=[
        *("subject", "type", "key", "occurred_at"),
        *("data", "data added", "data removed", "data unfit", "data nested", "no data"),
    ],
)
def test_requeue_writes_only_the_stored_decision(
    world: World, change: dict[str, Any], member: str
) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    code, reply, error = _requeue(world.dsn, number, "--row", _file(world.tmp_path, GOOD | change))
    assert contents(world.db)["entry"] == []
    assert code == ExitCode.DEGRADED, error
    assert reply["requeued"] == []
    [proposed] = reply["proposed"]
    assert (proposed["id"], [each["member"] for each in proposed["differs"]]) == (number, [member])
    assert world.db.execute(OPEN).fetchall() == [(number,)]


def test_future_block_is_not_used_up(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    forged = GOOD | {"key": decision("m_1", 1)["key"], "subject": "m_1"}
    _requeue(world.dsn, number, "--row", _file(tmp_path, forged))
    spark = Driver(world.dsn, stream="other")
    spark.batch(0, decision("m_1", 1))
    spark.sink.close()
    assert [row[0] for row in contents(world.db)["entry"]] == ["m_1"]
    assert [row[-2] for row in contents(world.db)["entry"]] == [0]


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("bad_data", CUT),
        ("bad_data", json.dumps({k: v for k, v in GOOD.items() if k != "subject"})),
        ("bad_key", json.dumps(GOOD | {"key": "k"})),
        ("bad_key", json.dumps(GOOD | {"key": [None]})),
        ("bad_type", json.dumps(GOOD | {"type": "a b"})),
        ("bad_subject", json.dumps(GOOD | {"subject": "m_\\xff"})),
        ("bad_data", "{"),
        ("bad_data", '{"subject": "m_9", ' + json.dumps(GOOD)[1:]),
    ],
    ids=["cut", "absent", "no list", "null in it", "bad type", "bytes", "no JSON", "twice"],
)
def test_what_cannot_be_read_in_the_kept_row_is_decided_by_two(
    world: World, reason: str, kept: str
) -> None:
    [number] = set_aside(world.dsn, (reason, kept))
    code, reply, error = _requeue(world.dsn, number, "--row", _file(world.tmp_path, GOOD))
    assert (code, reply.get("requeued")) == (ExitCode.DEGRADED, []), error
    assert contents(world.db)["entry"] == []


def test_unreadable_number_and_time_are_corrected_by_one_person(
    world: World, tmp_path: Path
) -> None:
    numbers = set_aside(
        world.dsn,
        ("bad_data", json.dumps(GOOD | {"data": GOOD["data"] | {"exposure_minor": 1.5}})),
        ("bad_data", json.dumps(GOOD | {"subject": "m_8", "key": ["8"], "occurred_at": None})),
    )
    assert _requeue(world.dsn, numbers[0], "--row", _file(tmp_path, GOOD))[0] == ExitCode.OK
    mended = GOOD | {"subject": "m_8", "key": ["8"]}
    assert _requeue(world.dsn, numbers[1], "--row", _file(tmp_path, mended))[0] == ExitCode.OK
    assert sequences(world.db, "m_8") == sequences(world.db, "m_9") == [1]
    audited = [detail for *_, detail in world.db.execute(AUDIT)]
    assert [each["kept"]["subject"] for each in audited] == ["m_9", "m_8"]
    assert [each["written"]["subject"] for each in audited] == ["m_9", "m_8"]


def test_same_instant_in_another_zone_is_the_same_time(dsn: str, tmp_path: Path) -> None:
    [number] = set_aside(dsn, ("bad_data", json.dumps(GOOD)))
    moved = GOOD | {"occurred_at": "2026-11-02T13:15:00+01:00"}
    assert _requeue(dsn, number, "--row", _file(tmp_path, moved))[0] == ExitCode.OK


def test_second_person_approves_exact_text_once(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_type", json.dumps(GOOD | {"type": "a b"})))
    file = _file(tmp_path, GOOD)
    _, reply, _ = _requeue(world.dsn, number, "--row", file)
    [proposed] = reply["proposed"]
    id_ = proposed["proposal"]
    again = _requeue(world.dsn, number, "--row", file)[1]["proposed"]
    assert [each["proposal"] for each in again] == [id_]

    early = _requeue(world.dsn, number, "--proposal", id_)
    assert (early[0], "second person" in early[2]) == (ExitCode.FAILED, True)
    done = world.holdfast("proposal", "approve", id_[:8], *WHY)
    assert (done.returncode, "that is you" in done.stderr) == (ExitCode.FAILED, True)
    shown = world.holdfast("proposal", "show", id_[:8], "--json").json
    text = file.read_text()
    assert shown["detail"]["text"] == text
    assert shown["detail"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    with acting_as("second"):
        world.holdfast("proposal", "approve", id_[:8], *WHY, code=ExitCode.OK)

    other = GOOD | {"subject": "m_1"}
    swapped = _requeue(world.dsn, number, "--proposal", id_, "--row", _file(tmp_path, other))
    assert swapped[0] == ExitCode.USAGE
    assert contents(world.db)["entry"] == []
    code, reply, error = _requeue(world.dsn, number, "--proposal", id_)
    assert (code, [row["id"] for row in reply["requeued"]]) == (ExitCode.OK, [number]), error
    assert sequences(world.db, "m_9") == [1]
    assert _requeue(world.dsn, number, "--proposal", id_)[0] == ExitCode.NOTHING_MATCHED
    actions = [row[0] for row in world.db.execute(AUDIT)]
    assert actions == ["proposal.add", "proposal.approve", "quarantine.requeue"]
    detail = world.db.execute(AUDIT).fetchall()[-1][3]
    kept = json.dumps(GOOD | {"type": "a b"})
    assert detail["kept"] == {
        "subject": "m_9",
        "type": "a b",
        "key": GOOD["key"],
        "occurred_at": GOOD["occurred_at"],
        "sha256": hashlib.sha256(kept.encode()).hexdigest(),
    }
    assert (detail["written"]["type"], detail["written"]["key"]) == (BLOCK, GOOD["key"])
    assert detail["written"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert (detail["proposal"], detail["approved_by"]) == (id_, "second")
    assert [row[2] for row in contents(world.db)["entry"]] == [Key.of(GOOD["key"]).digest]


def test_text_is_compared_again_where_it_is_written(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_type", json.dumps(GOOD | {"type": "a b"})))
    id_ = _requeue(world.dsn, number, "--row", _file(tmp_path, GOOD))[1]["proposed"][0]["proposal"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", id_, *WHY).returncode == ExitCode.OK
    forged = json.dumps(json.dumps(GOOD | {"subject": "m_1"}))
    world.db.execute(
        "UPDATE holdfast.proposal SET detail = jsonb_set(detail, '{text}', %s::jsonb)", [forged]
    )
    code, _, error = _requeue(world.dsn, number, "--proposal", id_)
    assert (code, "SHA-256 differs" in error) == (ExitCode.FAILED, True), error
    assert contents(world.db)["entry"] == []


def test_proposal_serves_its_own_row_until_cancelled(world: World, tmp_path: Path) -> None:
    first, second = set_aside(
        world.dsn,
        ("bad_type", json.dumps(GOOD | {"type": "a b"})),
        ("bad_type", json.dumps(GOOD | {"type": "a b"})),
    )
    id_ = _requeue(world.dsn, first, "--row", _file(tmp_path, GOOD))[1]["proposed"][0]["proposal"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", id_, *WHY).returncode == ExitCode.OK
    assert _requeue(world.dsn, second, "--proposal", id_)[0] == ExitCode.FAILED
    assert world.holdfast("proposal", "cancel", id_, *WHY).returncode == ExitCode.OK
    code, _, error = _requeue(world.dsn, first, "--proposal", id_)
    assert (code, "cancelled" in error) == (ExitCode.FAILED, True)
    assert contents(world.db)["entry"] == []
    listed = json.loads(world.holdfast("proposal", "list", "--all", "--json").stdout)
    assert [row["state"] for row in listed["proposals"]] == ["cancelled"]


def test_two_who_apply_one_proposal_at_once_write_it_once(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_type", json.dumps(GOOD | {"type": "a b"})))
    id_ = _requeue(world.dsn, number, "--row", _file(tmp_path, GOOD))[1]["proposed"][0]["proposal"]
    with acting_as("second"):
        world.holdfast("proposal", "approve", id_, *WHY)

    def apply(_: int) -> int:
        arguments = ("quarantine", "requeue", str(number), "--proposal", id_, *WHY)
        return holdfast(*arguments, dsn=world.dsn, process=True).returncode

    with ThreadPoolExecutor(2) as pool:
        codes = sorted(pool.map(apply, range(2)))
    assert codes == [ExitCode.OK, ExitCode.NOTHING_MATCHED]
    assert sequences(world.db, "m_9") == [1]


def test_other_merchant_or_event_needs_second_person(world: World, tmp_path: Path) -> None:
    kept = {"event_id": "e1", "merchant_id": "m_1", "currency": "EUR", "amount_minor": 1}
    numbers = set_aside(world.dsn, *(("wrong_currency", json.dumps(kept)),) * 3, ("malformed", "{"))
    into = tmp_path / "in"
    into.mkdir()
    for number, change in zip(
        numbers, ({"merchant_id": "m_2"}, {"event_id": "e2"}, {"currency": "USD"}, {}), strict=True
    ):
        file = _file(tmp_path, kept | change)
        code, reply, error = _requeue(world.dsn, number, "--row", file, "--into", into)
        message = "currency" in change
        assert (code, len(reply["requeued"])) == (
            (ExitCode.OK, 1) if message else (ExitCode.DEGRADED, 0)
        ), error
    assert len(list(into.iterdir())) == 1
    [first, *_] = json.loads(world.holdfast("proposal", "list", "--json").stdout)["proposals"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", first["id"], *WHY).returncode == 0
    target = first["target"].removeprefix("quarantine ")
    assert _requeue(world.dsn, target, "--proposal", first["id"])[0] == ExitCode.OK
    assert len(list(into.iterdir())) == 2


@pytest.mark.parametrize(
    ("reason", "frees"),
    [("wrong_currency", "currency"), ("bad_amount", "amount_minor"), ("missing_type", "type")],
)
def test_changed_amount_currency_or_type_needs_a_second_person(
    world: World, reason: str, frees: str
) -> None:
    kept = {"event_id": "e1", "merchant_id": "m_1", "type": "payout_submitted"}
    kept |= {"amount_minor": 100, "currency": "EUR", "occurred_at": "2026-11-02T12:01:00Z"}
    other = {"type": "chargeback", "amount_minor": -(10**14), "currency": "USD"}
    into = world.tmp_path / "in"
    into.mkdir()
    for number, name in zip(
        set_aside(world.dsn, *((reason, json.dumps(kept)),) * 3), sorted(other), strict=True
    ):
        file = _file(world.tmp_path, kept | {frees: other[frees], name: other[name]})
        code, reply, error = _requeue(world.dsn, number, "--row", file, "--into", into)
        differs = [each["member"] for row in reply["proposed"] for each in row["differs"]]
        assert (code, differs) == (
            (ExitCode.OK, []) if name == frees else (ExitCode.DEGRADED, [name])
        ), error
    [path] = into.iterdir()
    assert json.loads(path.read_text()) == kept | {frees: other[frees]}


LATER = decision("m_9", 9, RELEASE)
SAME_TIME = {"occurred_at": "2026-11-02T14:15:00Z"}
AHEAD = GOOD | {"occurred_at": "2222-11-02T12:15:00Z"}
UNREADABLE = GOOD | {"occurred_at": None}
NEWEST = GOOD | {"occurred_at": "2026-11-03T00:00:00Z"}
UNFIT = GOOD | {"data": GOOD["data"] | {"exposure_minor": 1.5}}


@pytest.mark.guarantee(11)
@pytest.mark.parametrize(
    ("reason", "kept", "corrected", "options", "stream"),
    [
        ("bad_data", UNFIT, GOOD, ["--keep-repeats"], "payouts"),
        ("bad_data", UNFIT, GOOD, [], "other"),
        ("bad_data", UNFIT | SAME_TIME, GOOD | SAME_TIME, [], "payouts"),
        ("future_dated", AHEAD, GOOD, ["--keep-repeats"], "payouts"),
        ("future_dated", AHEAD, NEWEST, [], "payouts"),
        ("bad_data", UNREADABLE, NEWEST, [], "payouts"),
    ],
    ids=[
        "older",
        "of another stream",
        "of the same time",
        "dated back",
        "dated as the newest",
        "dated by hand",
    ],
)
def test_one_person_makes_no_older_decision_the_last(
    world: World,
    reason: str,
    kept: dict[str, Any],
    corrected: dict[str, Any],
    options: list[str],
    stream: str,
) -> None:
    [number] = set_aside(world.dsn, (reason, json.dumps(kept)))
    _decide(world.dsn, world.db, stream, 1, LATER)
    file = _file(world.tmp_path, corrected)
    code, reply, error = _requeue(world.dsn, number, "--row", file, *options)
    assert sequences(world.db, "m_9") == [1], "the decision of one person is not the last"
    assert (code, reply["requeued"]) == (ExitCode.DEGRADED, []), error
    [proposed] = reply["proposed"]
    expected = {"stream": stream, "type": RELEASE, "sequence": 1, "last_sequence": 1}
    expected |= {"occurred_at": "2026-11-02T14:15:00Z", "key": Key.of(LATER["key"]).text}
    assert proposed["overtakes"] == expected
    shown = json.loads(world.holdfast("proposal", "show", proposed["proposal"], "--json").stdout)
    assert shown["detail"]["overtakes"] == expected
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", proposed["proposal"], *WHY).returncode == 0
    assert _requeue(world.dsn, number, "--proposal", proposed["proposal"])[0] == ExitCode.OK
    assert sequences(world.db, "m_9") == [1, 2]
    assert world.db.execute(AUDIT).fetchall()[-1][3]["overtakes"]["key"] == expected["key"]


def test_row_approved_over_one_decision_overtakes_no_other(world: World, tmp_path: Path) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(UNFIT)))
    _decide(world.dsn, world.db, "payouts", 1, LATER)
    file = _file(tmp_path, GOOD)
    _, reply, _ = _requeue(world.dsn, number, "--row", file, "--keep-repeats")
    id_ = reply["proposed"][0]["proposal"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", id_, *WHY).returncode == ExitCode.OK
    _decide(world.dsn, world.db, "payouts", 2, decision("m_9", 10))
    code, _, error = _requeue(world.dsn, number, "--proposal", id_)
    assert (code, "have changed since proposal" in " ".join(error.split())) == (1, True), error
    assert sequences(world.db, "m_9") == [1, 2]


@pytest.mark.parametrize(
    ("kept", "corrected"),
    [(UNFIT | SAME_TIME, GOOD | SAME_TIME), (UNREADABLE, NEWEST)],
    ids=["of the same time", "dated by hand"],
)
def test_decision_written_while_one_person_compares_is_not_overtaken(
    world: World, monkeypatch: pytest.MonkeyPatch, kept: dict[str, Any], corrected: dict[str, Any]
) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(kept)))
    write = writer()

    def later(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        _decide(world.dsn, world.db, "payouts", 1, LATER)
        return write(*arguments, **options)

    monkeypatch.setattr(actions, "writer", lambda: later)
    file = _file(world.tmp_path, corrected)
    code, reply, error = _requeue(world.dsn, number, "--row", file)
    assert sequences(world.db, "m_9") == [1], "the decision of one person is not the last"
    assert (code, reply["requeued"]) == (ExitCode.FAILED, []), error
    assert "while this one was compared" in reply["refused"][0]["detail"]
    [proposed] = _requeue(world.dsn, number, "--row", file)[1]["proposed"]
    assert proposed["overtakes"]["key"] == Key.of(LATER["key"]).text


def _decide(
    dsn: str, db: psycopg.Connection, stream: str, batch_id: int, row: dict[str, Any]
) -> None:
    """Write a decision of the job, in its next batch."""
    known = db.execute("SELECT query_id FROM holdfast.stream WHERE name = %s", [stream]).fetchone()
    spark = Driver(dsn, stream=stream, query_id=known[0] if known else None)
    spark.batch(batch_id if known else 0, row)
    spark.sink.close()


@pytest.mark.parametrize("change", [{"subject": "m_1"}, {"data": {"merchant_id": "m_1"}}])
def test_store_writes_nothing_without_proposal(world: World, change: dict[str, Any]) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    text = json.dumps(GOOD | change)
    with Quarantine.connect(world.dsn) as store:
        rows, _ = open_among(store, [number])
        with raises_code("second_person_required"):
            put_entries(world.dsn, store, rows, {number: text}, "x", suppress_repeats=True)
    assert contents(world.db)["entry"] == []


RESOLVED = "SELECT id, resolution::text FROM holdfast.quarantine ORDER BY id"
WRITTEN = "SELECT batch_id FROM holdfast.batch WHERE stream LIKE '%.requeue' ORDER BY batch_id"

AUDITED = "SELECT action, target FROM holdfast.operator_action ORDER BY id"

WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
UNBOOKED = """
    UPDATE holdfast.quarantine SET resolution = NULL, resolved_at = NULL, resolved_by = NULL
"""


def _entry(number: int, type_: str = BLOCK) -> str:
    return json.dumps(
        {
            "subject": f"m_{number}",
            "type": type_,
            "key": [f"k_{number}"],
            "occurred_at": "2026-11-02T12:15:00Z",
            "data": {"exposure_minor": 1},
        }
    )


def _kept(dsn: str, *texts: str, reason: str = "bad_data", stream: str = "payouts") -> list[int]:
    return set_aside(dsn, *((reason, text) for text in texts), stream=stream)


def _put_back(dsn: str, ids: list[int], before: list[Row]) -> tuple[list[int], list[int]]:
    """Return the numbers that were put back, and those that were refused."""
    with Quarantine.connect(dsn) as store:
        rows, _ = open_among(store, ids)
        texts = {row["id"]: row["row"] for row in rows}
        done, refused = put_entries(
            dsn, store, rows, texts, "mended", suppress_repeats=True, before=before
        )
    return [row["id"] for row in done], [row["id"] for row in refused]


def _dismiss(dsn: str, number: int) -> list[int]:
    with Quarantine.connect(dsn) as store:
        return store.resolve([number], QuarantineResolution.DISMISSED, "never")


@contextmanager
def _stopped_at(
    db: psycopg.Connection, dsn: str, number: int, work: Callable[[], Any]
) -> Iterator[Future[Any]]:
    """Run `work` in a thread; in the block it waits for the row `number`, and goes on after it."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as other:
        other.execute("SELECT FROM holdfast.quarantine WHERE id = %s FOR UPDATE", [number])
        future = pool.submit(work)
        eventually(lambda: db.execute(WAITING).fetchall() or future.done())
        yield future


def _entries_of(dsn: str, rows: Mapping[int, str]) -> Iterator[bool]:
    for outcome in requeue(dsn, "payouts", rows, suppress_repeats=True):
        yield outcome.written


def test_row_dismissed_during_a_requeue_is_not_written(world: World) -> None:
    first, second, third = _kept(world.dsn, *map(_entry, range(3)))
    before: list[Row] = []
    work = partial(_put_back, world.dsn, [first, second, third], before)
    with _stopped_at(world.db, world.dsn, second, work) as future:
        assert _dismiss(world.dsn, third) == [third]
    assert future.result() == ([first, second], [])
    assert [(row["id"], row["resolution"], row["resolution_reason"]) for row in before] == [
        (third, "dismissed", "never")
    ]
    assert world.db.execute(WRITTEN).fetchall() == [(first,), (second,)]
    assert world.db.execute(RESOLVED).fetchall() == [
        (first, "requeued"),
        (second, "requeued"),
        (third, "dismissed"),
    ]


def test_rows_resolved_concurrently_are_reported_as_not_done(world: World) -> None:
    [number] = _kept(world.dsn, _entry(0))
    with Quarantine.connect(world.dsn) as store:
        rows, _ = open_among(store, [number])
        _dismiss(world.dsn, number)
        with pytest.raises(CommandError, match="dismissed already, on") as raised:
            put_entries(
                world.dsn, store, rows, {number: _entry(0)}, "x", suppress_repeats=True, before=[]
            )
    assert raised.value.exit_code == ExitCode.NOTHING_MATCHED
    assert world.db.execute(WRITTEN).fetchall() == []


def test_row_dismissed_meanwhile_is_reported_as_resolved_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _kept(world.dsn, _entry(0), _entry(1))
    resolve = Quarantine.resolve

    def resolve_late(store: Quarantine, *arguments: Any) -> list[int]:
        monkeypatch.undo()
        assert _dismiss(world.dsn, second) == [second]
        return resolve(store, *arguments)

    monkeypatch.setattr(Quarantine, "resolve", resolve_late)
    words = ("quarantine", "dismiss", str(first), str(second), "--reason", "x", "--json")
    result = holdfast(*words, dsn=world.dsn, code=ExitCode.OK).json
    assert result["dismissed"] == [first]
    assert [row["id"] for row in result["resolved_before"]] == [second]


def test_dismissed_source_line_does_not_go_to_the_job(world: World, tmp_path: Path) -> None:
    first, second = _kept(world.dsn, "{", "[", reason="malformed")
    before: list[Row] = []

    def work() -> dict[int, Path]:
        with Quarantine.connect(world.dsn) as store:
            return put_lines(
                store, {first: "{", second: "["}, tmp_path, "mended", before, write_lines
            )

    with _stopped_at(world.db, world.dsn, first, work) as future:
        assert _dismiss(world.dsn, second) == [second]
    [path] = tmp_path.iterdir()
    assert future.result() == {first: path}
    assert [row["id"] for row in before] == [second]
    assert world.db.execute(RESOLVED).fetchall() == [(first, "requeued"), (second, "dismissed")]


def test_two_requeues_of_one_stream_take_turns(dsn: str, db: psycopg.Connection) -> None:
    numbers = _kept(dsn, *map(_entry, range(4)))
    first = _entries_of(dsn, {numbers[0]: _entry(0), numbers[1]: _entry(1)})
    assert next(first)
    assert list(_entries_of(dsn, {numbers[2]: _entry(2), numbers[3]: _entry(3)})) == [True, True]
    assert list(first) == [True]
    assert [number for (number,) in db.execute(WRITTEN).fetchall()] == numbers


def test_cut_off_requeue_says_what_it_did(dsn: str, db: psycopg.Connection) -> None:
    first, second, third = numbers = _kept(dsn, *map(_entry, range(3)))
    with _stopped_at(db, dsn, second, partial(_put_back, dsn, numbers, [])) as future:
        db.execute(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) w")
        eventually(future.done)
    reply = str(future.exception())
    assert isinstance(future.exception(), CommandError)
    assert f"1 row was put back before it (row {first})" in reply
    assert f"row {second} " in reply
    assert "changed nothing" not in reply
    done = holdfast("quarantine", "requeue", *map(str, numbers), "--reason", "x", "--json", dsn=dsn)
    assert done.returncode == ExitCode.OK, done.stderr
    assert [row["id"] for row in json.loads(done.stdout)["requeued"]] == [second, third]
    assert [row["id"] for row in json.loads(done.stdout)["resolved_before"]] == [first]
    assert [number for (number,) in db.execute(WRITTEN).fetchall()] == numbers


@pytest.mark.parametrize(
    ("stream", "kept"), [("payouts", CUT), ("s" * 55, _entry(0, "a b")), ("s" * 56, CUT)]
)
def test_row_already_in_outbox_is_booked(world: World, stream: str, kept: str) -> None:
    """The kept row is of no use; whoever put the corrected one back died before it was booked."""
    first, second = _kept(world.dsn, kept, _entry(1, "a b"), stream=stream)
    assert [
        each.written
        for each in requeue(world.dsn, stream, {first: _entry(0)}, suppress_repeats=True)
    ]
    arguments = ("--reason", "x", "--json")
    dismissed = world.holdfast("quarantine", "dismiss", str(second), str(first), *arguments)
    assert dismissed.returncode == ExitCode.FAILED
    assert f"row {first} was put back already" in dismissed.stderr
    assert f"row {second}" not in dismissed.stderr
    assert f"`holdfast quarantine requeue {first} --reason TEXT`" in dismissed.stderr
    assert world.db.execute(RESOLVED).fetchall() == [(first, None), (second, None)]

    booked = world.holdfast("quarantine", "requeue", str(first), *arguments)
    assert booked.returncode == ExitCode.OK, booked.stderr
    assert "written before" in json.loads(booked.stdout)["requeued"][0]["detail"]
    assert world.db.execute(WRITTEN).fetchall() == [(first,)]
    assert world.holdfast("quarantine", "dismiss", str(second), *arguments).returncode == 0
    assert world.db.execute(RESOLVED).fetchall() == [(first, "requeued"), (second, "dismissed")]
    assert world.db.execute(AUDITED).fetchall() == [
        ("quarantine.requeue", f"quarantine {first}"),
        ("quarantine.dismiss", f"quarantine {second}"),
    ]


def test_batch_of_a_job_is_not_taken_for_a_requeue(dsn: str, db: psycopg.Connection) -> None:
    [number] = _kept(dsn, _entry(1))
    own = uuid4()
    db.execute("INSERT INTO holdfast.stream (name, query_id) VALUES ('payouts.requeue', %s)", [own])
    job = Driver(dsn, stream="payouts.requeue", query_id=own, first_batch=number)
    job.batch(number, decision("m_9"))
    job.sink.close()
    with Quarantine.connect(dsn) as store:
        [row], _ = open_among(store, [number])
    assert not row["put_back"]
