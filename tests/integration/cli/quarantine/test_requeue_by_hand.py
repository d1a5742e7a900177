"""`holdfast quarantine requeue --row`: what is not the kept row's own decision needs two people."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.dispatcher.operators.quarantine.store import Quarantine
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key
from tests.support.command import holdfast
from tests.support.dispatch.sender import BLOCK, RELEASE, decision
from tests.support.job.driver import Driver, set_aside
from tests.support.job.job_outcome import contents, sequences
from tests.support.refusal import raises_code
from tests.support.world import World

GOOD: dict[str, Any] = {
    "subject": "m_9",
    "type": BLOCK,
    "key": ["payout-hold/v1", "m_9", "2026-11-02T12:15:00Z", "block", "1"],
    "occurred_at": "2026-11-02T12:15:00Z",
    "data": {"merchant_id": "m_9", "exposure_minor": 1},
}
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
    world: World, tmp_path: Path, change: dict[str, Any], member: str
) -> None:
    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    code, told, error = _requeue(world.dsn, number, "--row", _file(tmp_path, GOOD | change))
    assert contents(world.db)["entry"] == []
    assert code == ExitCode.DEGRADED, error
    assert told["requeued"] == []
    [proposed] = told["proposed"]
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
    world: World, tmp_path: Path, reason: str, kept: str
) -> None:
    [number] = set_aside(world.dsn, (reason, kept))
    code, told, error = _requeue(world.dsn, number, "--row", _file(tmp_path, GOOD))
    assert (code, told.get("requeued")) == (ExitCode.DEGRADED, []), error
    assert contents(world.db)["entry"] == []


def test_unreadable_number_and_time_are_corrected_alone(world: World, tmp_path: Path) -> None:
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
    _, told, _ = _requeue(world.dsn, number, "--row", file)
    [proposed] = told["proposed"]
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
    code, told, error = _requeue(world.dsn, number, "--proposal", id_)
    assert (code, [row["id"] for row in told["requeued"]]) == (ExitCode.OK, [number]), error
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
        code, told, error = _requeue(world.dsn, number, "--row", file, "--into", into)
        message = "currency" in change
        assert (code, len(told["requeued"])) == (
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
    world: World, tmp_path: Path, reason: str, frees: str
) -> None:
    kept = {"event_id": "e1", "merchant_id": "m_1", "type": "payout_submitted"}
    kept |= {"amount_minor": 100, "currency": "EUR", "occurred_at": "2026-11-02T12:01:00Z"}
    other = {"type": "chargeback", "amount_minor": -(10**14), "currency": "USD"}
    into = tmp_path / "in"
    into.mkdir()
    for number, name in zip(
        set_aside(world.dsn, *((reason, json.dumps(kept)),) * 3), sorted(other), strict=True
    ):
        file = _file(tmp_path, kept | {frees: other[frees], name: other[name]})
        code, told, error = _requeue(world.dsn, number, "--row", file, "--into", into)
        differs = [each["member"] for row in told["proposed"] for each in row["differs"]]
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
    tmp_path: Path,
    reason: str,
    kept: dict[str, Any],
    corrected: dict[str, Any],
    options: list[str],
    stream: str,
) -> None:
    [number] = set_aside(world.dsn, (reason, json.dumps(kept)))
    _decide(world.dsn, world.db, stream, 1, LATER)
    file = _file(tmp_path, corrected)
    code, told, error = _requeue(world.dsn, number, "--row", file, *options)
    assert sequences(world.db, "m_9") == [1], "the decision of one person is not the last"
    assert (code, told["requeued"]) == (ExitCode.DEGRADED, []), error
    [proposed] = told["proposed"]
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
    _, told, _ = _requeue(world.dsn, number, "--row", file, "--keep-repeats")
    id_ = told["proposed"][0]["proposal"]
    with acting_as("second"):
        assert world.holdfast("proposal", "approve", id_, *WHY).returncode == ExitCode.OK
    _decide(world.dsn, world.db, "payouts", 2, decision("m_9", 10))
    code, _, error = _requeue(world.dsn, number, "--proposal", id_)
    assert (code, "have changed since proposal" in " ".join(error.split())) == (1, True), error
    assert sequences(world.db, "m_9") == [1, 2]


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
    from holdfast.dispatcher.operators.quarantine.actions import open_among, put_entries

    [number] = set_aside(world.dsn, ("bad_data", json.dumps(GOOD)))
    text = json.dumps(GOOD | change)
    with Quarantine.connect(world.dsn) as store:
        rows, _ = open_among(store, [number])
        with raises_code("second_person_required"):
            put_entries(world.dsn, store, rows, {number: text}, "x", suppress_repeats=True)
    assert contents(world.db)["entry"] == []
