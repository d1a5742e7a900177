"""How a check counts, and what a comparison with the receiver says about keys."""

import json
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from holdfast.dispatcher.operators.check import actions as checking
from holdfast.dispatcher.operators.check.rules import (
    INVARIANT,
    MEANING,
    OF_RECEIPTS,
    Checked,
    Rule,
    Violation,
    next_width,
    unbroken_since,
)
from holdfast.dispatcher.operators.check.store import Checks, Range, TooMuchAtOnceError
from holdfast.dispatcher.operators.receipts.rules import (
    IN_FLIGHT,
    NEEDS_A_PERSON,
    Finding,
    Proof,
    SentEntry,
    Tally,
    compare,
)
from holdfast.dispatcher.operators.receipts.rules import MEANING as RECEIPT_MEANING
from holdfast.dispatcher.outbound.inquiry_answer import (
    InquiryError,
    ReceiverRecord,
    asked_seconds,
    judged,
    may_pass,
)
from holdfast.dispatcher.shared.outcome import NoAnswer, Refused, Response
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.sender import OTHER_KEY_BYTES, key_of, receipt, secret_text
from tests.support.refusal import raises_code

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
RANGE = Range(
    since=NOON,
    until=NOON + timedelta(hours=1),
    entries_since=NOON,
    attempts_since=NOON,
    delivery_since=NOON,
    suppressed_since=NOON,
    attempts_kept=NOON,
    dropped=False,
    endpoints=(),
    endpoint="payouts",
    stream=None,
    batches=0,
    first_batch_no=0,
    last_batch_no=0,
    last_subject=10_000,
)


def test_every_rule_is_of_an_invariant_and_says_what_to_do() -> None:
    assert set(INVARIANT) == set(MEANING) == set(Rule)
    assert all(meaning.endswith(".") and meaning.count(".") >= 2 for meaning in MEANING.values())


def test_receiver_differences_for_a_person_violate_a_rule() -> None:
    assert set(OF_RECEIPTS) == NEEDS_A_PERSON


def test_pieces_are_added_up_and_only_the_first_rows_are_kept() -> None:
    full = Checked(limit=2)
    for name in ("a", "b", "c"):
        piece = Checked(limit=2)
        piece.count("lanes_due", 5, NOON + timedelta(minutes=ord("c") - ord(name)))
        piece.add_violations(Rule.LANE_STATE, 3, [Violation(Rule.LANE_STATE, name)])
        full.add(piece)
    assert full.counted["lanes_due"] == 15
    assert full.oldest["lanes_due"] == NOON
    assert full.violated[Rule.LANE_STATE] == 9
    assert [row.detail for row in full.kept[Rule.LANE_STATE]] == ["a", "b"]
    assert not full.holds


def test_contiguous_days_begin_after_the_last_dropped_day() -> None:
    kept_for_something = date(2026, 10, 1)
    days = [kept_for_something, *(date(2026, 11, day) for day in (3, 4, 5))]
    assert unbroken_since(days) == datetime(2026, 11, 3, tzinfo=UTC)
    assert unbroken_since(days[:1]) == datetime(2026, 10, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "wanted"), [(0.0, 400), (1.0, 100), (3.0, 33), (1000.0, 1)], ids=str
)
def test_next_piece_takes_as_long_as_wanted(seconds: float, wanted: int) -> None:
    assert next_width(100, seconds, 1.0) == wanted


class Slow(Checks):
    """Statements that take too long for more than so many subjects."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.done: list[tuple[int, int]] = []

    def subjects(self, range_: Range, first: int, last: int, checked: Checked) -> None:
        assert range_ is RANGE
        assert checked.holds
        if last - first + 1 > self.most:
            raise TooMuchAtOnceError
        self.done.append((first, last))

    def rest(self, range_: Range, checked: Checked) -> None:
        """Check nothing."""


def test_slow_piece_is_retried_in_smaller_pieces() -> None:
    store = Slow(500)
    checking.check([store], RANGE, Checked(20), lambda _what, _done, _total: None)
    begins = [first for first, _ in store.done]
    ends = [last for _, last in store.done]
    assert begins == [1, *(last + 1 for last in ends[:-1])], "no subject is left out, none twice"
    assert ends[-1] >= RANGE.last_subject


def test_database_too_slow_for_the_smallest_piece_is_reported() -> None:
    with raises_code("database_timeout"):
        checking.check([Slow(0)], RANGE, Checked(20), lambda _what, _done, _total: None)


KEY = key_of("m_482", 1)
AT, LATER = "2026-11-02T12:15:01.250000Z", "2026-11-02T12:16:00Z"
APPLIED, DUPLICATE, STALE = (ReceiptOutcome.APPLIED, ReceiptOutcome.DUPLICATE, ReceiptOutcome.STALE)
SECRETS = [Secret.parse(secret_text())]


def entry(*, delivered: bool = True, **changes: Any) -> SentEntry:
    values = {
        "key": KEY,
        "last": "delivered" if delivered else "unknown",
        "proof": Proof(APPLIED, AT) if delivered else None,
        "body_sha256": b"a",
    }
    return SentEntry(subject="m_482", sequence=1, delivered=delivered, **values | changes)


def record(
    outcome: ReceiptOutcome = APPLIED, at: str = AT, body: bytes | None = b"a"
) -> ReceiverRecord:
    return ReceiverRecord(KEY, outcome, at, body)


@pytest.mark.parametrize(
    ("ours", "theirs", "finding"),
    [
        (entry(), record(), Finding.AGREED),
        (entry(proof=Proof(DUPLICATE, AT)), record(), Finding.AGREED),
        (entry(proof=Proof(STALE, AT)), record(STALE), Finding.STALE_THERE),
        (entry(proof=None), record(STALE), Finding.STALE_THERE),
        (entry(proof=Proof(STALE, AT)), record(STALE, body=b"b"), Finding.OTHER_BODY),
        (entry(proof=Proof(STALE, AT)), record(STALE, LATER), Finding.OTHER_TIME),
        (entry(), record(body=None), Finding.AGREED),
        (entry(body_sha256=None), record(), Finding.AGREED),
        (entry(), None, Finding.MISSING_THERE),
        (entry(proof=None), None, Finding.MISSING_THERE),
        (entry(), record(body=b"b"), Finding.OTHER_BODY),
        (entry(proof=None), record(body=b"b"), Finding.OTHER_BODY),
        (entry(delivered=False), record(body=b"b"), Finding.OTHER_BODY),
        (entry(), record(STALE), Finding.OTHER_OUTCOME),
        (entry(proof=Proof(DUPLICATE, AT)), record(STALE), Finding.OTHER_OUTCOME),
        (entry(proof=Proof(STALE, AT)), record(), Finding.OTHER_OUTCOME),
        (entry(), record(at=LATER), Finding.OTHER_TIME),
        (entry(proof=None), record(), Finding.NO_RECEIPT),
        (entry(delivered=False), record(), Finding.UNDELIVERED_HERE),
        (entry(delivered=False, last=IN_FLIGHT), record(STALE), Finding.UNDELIVERED_HERE),
        (entry(delivered=False), None, Finding.NEITHER),
        (entry(key=None, proof=None, body_sha256=None), None, Finding.PRUNED_HERE),
    ],
)
def test_both_sides_give_one_finding(
    ours: SentEntry, theirs: ReceiverRecord | None, finding: Finding
) -> None:
    assert compare(ours, theirs) is finding


def test_stale_entry_behind_a_sent_one_is_overtaken() -> None:
    for proof in (None, Proof(STALE, AT)):
        assert compare(entry(proof=proof), record(STALE), overtaken=True) is Finding.OVERTAKEN
    assert compare(entry(), record(), overtaken=True) is Finding.AGREED


def test_only_keys_applied_with_identical_bodies_agree() -> None:
    """Over everything that the two sides can say about a key."""
    proofs = [
        None,
        *(Proof(*fields) for fields in product((APPLIED, DUPLICATE, STALE), (AT, LATER))),
    ]
    tables = [
        None,
        *(record(*fields) for fields in product((APPLIED, STALE), (AT, LATER), (b"a", b"b", None))),
    ]
    for delivered, proof, table in product((True, False), proofs, tables):
        finding = compare(entry(delivered=delivered, proof=proof), table)
        assert (finding is Finding.AGREED) == (
            delivered
            and proof is not None
            and table is not None
            and table.body_sha256 in (b"a", None)
            and proof.applied_at == table.applied_at
            and STALE not in (proof.outcome, table.outcome)
        )


def test_every_finding_has_a_sentence_and_five_need_a_person() -> None:
    assert RECEIPT_MEANING.keys() == set(Finding)
    assert {each.value for each in NEEDS_A_PERSON} == {
        *("missing_there", "other_body", "other_outcome", "other_time", "stale_there")
    }


def test_tally_counts_all_and_keeps_the_first_of_each_kind() -> None:
    tally = Tally(limit=2)
    assert tally.empty
    for _ in range(3):
        tally.count(entry())
        tally.add(Finding.AGREED, entry(), record())
        tally.add(Finding.NO_RECEIPT, entry(proof=None), record())
    assert not tally.needs_a_person
    tally.add(Finding.ONLY_THERE, None, record())
    tally.add(Finding.MISSING_THERE, entry(), None)
    assert tally.needs_a_person
    assert not tally.empty
    assert tally.findings[Finding.NO_RECEIPT] == tally.receipts[APPLIED] == tally.delivered == 3
    shown = [(each.finding, each.key) for each in tally.differences]
    assert shown == [
        (Finding.MISSING_THERE, KEY),
        *[(Finding.NO_RECEIPT, KEY)] * 2,
        (Finding.ONLY_THERE, KEY),
    ]


def _answer(status: int = 200, **changes: Any) -> Response:
    content = {"key": KEY, "outcome": "applied", "applied_at": AT, **changes}
    content.setdefault("receipt", receipt(content))
    return Response(status, body=json.dumps(content).encode())


def test_answer_that_proves_itself_is_believed() -> None:
    body = bytes(range(32))
    assert judged(_answer(body_sha256=body.hex()), KEY, SECRETS) == record(body=body)
    assert judged(_answer(outcome="stale"), KEY, SECRETS) == record(STALE, body=None)
    assert judged(_answer(body_sha256="xyz"), KEY, SECRETS) == record(body=None)


def test_key_is_unknown_only_where_the_protocol_says_so() -> None:
    unknown = Response(404, body=b'{"reason":"unknown_key"}')
    assert judged(unknown, KEY, SECRETS) is None
    with pytest.raises(InquiryError, match="404"):
        judged(Response(404, body=b"Not Found"), KEY, SECRETS)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (_answer(receipt="v1,x"), "no receipt"),
        (_answer(receipt=None), "no receipt"),
        (_answer(key=key_of("m_482", 2)), "no receipt"),
        (_answer(outcome="duplicate"), "not final"),
        (Response(401, body=b'{"reason":"too_\\u001bold"}'), r"401 \(too_�old\)"),
        (Response(200, body=b"[" * 16_000), "no receipt"),
        (Response(200, body=b"\xff"), "no receipt"),
        (Response(302), "302"),
        (NoAnswer("no answer within 2 s"), "within 2 s"),
        (Refused("10.0.0.1 is a private address"), "private"),
    ],
)
def test_answer_that_proves_nothing_ends_the_asking(
    answer: Response | NoAnswer | Refused, complaint: str
) -> None:
    with pytest.raises(InquiryError, match=complaint):
        judged(answer, KEY, SECRETS)


def test_receipt_of_another_secret_is_not_believed() -> None:
    with pytest.raises(InquiryError, match="no receipt"):
        judged(_answer(), KEY, [Secret(OTHER_KEY_BYTES)])


def test_question_is_repeated_only_if_the_answer_may_change() -> None:
    assert all(map(may_pass, (Response(503), Response(429), Response(500), NoAnswer("x"))))
    assert not any(map(may_pass, (Response(200), Response(404), Response(401), Refused("x"))))
    assert asked_seconds(Response(503, ("3",))) == 3
    assert asked_seconds(Response(503, ("86400",))) == 10
    assert asked_seconds(NoAnswer("x")) == 0
