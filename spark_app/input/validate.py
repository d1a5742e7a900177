"""Which rows are events, and the faults of the others.

The rules are those of the wire format and of the tables: an id fits a subject and a key, an amount
is far below 64 bits, a time is plausible for a payment. The sum of a window is checked by the step,
which raises ExposureOverflow beyond 64 bits. A row is refused for one reason, the first in the
order of `_checks`. A reason and its text are part of the batch's digest: they must not change.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import rfc3339, rfc3339_from_micros
from holdfast.sink.contract.states import QuarantineReason as Reason
from holdfast.sink.rows.evidence import detail_text, storable
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.input.events import REFUSED, Fault, Parsed
from holdfast.spark_app.input.text_bytes import all_visible_ascii

ID_CHARACTERS_MAX: Final = 256
TYPE_CHARACTERS_MAX: Final = 128
AMOUNT_MAX: Final = 10**15
"""In minor units, positive or negative: ten thousand billion dollars."""
TIME_MIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
TIME_END: Final = datetime(2100, 1, 1, tzinfo=UTC)

WINDOW_US: Final = Settings().window_us

_CONTROL = r"[\x00-\x1f]"

_TEXTS = (
    ("event_id", Reason.MISSING_EVENT_ID, ID_CHARACTERS_MAX),
    ("merchant_id", Reason.MISSING_MERCHANT, ID_CHARACTERS_MAX),
    ("type", Reason.MISSING_TYPE, TYPE_CHARACTERS_MAX),
)

Found = Iterator[tuple[int, Fault]]


def validate(parsed: Parsed, policy: Policy) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split rows into events (columns of EVENT, no nulls) and refused rows (columns of REFUSED)."""
    faults = dict(parsed.faults)
    for position, fault in _checks(parsed.events, policy):
        faults.setdefault(position, fault)
    refused = pa.RecordBatch.from_pylist(
        [
            {
                "reason": fault.reason.value,
                "detail": _detail(parsed, position, fault),
                "row": storable(parsed.text(position)),
            }
            for position, fault in sorted(faults.items())
        ],
        schema=REFUSED,
    )
    if not faults:
        return parsed.events, refused
    good = np.ones(parsed.events.num_rows, np.bool_)
    good[list(faults)] = False
    return parsed.events.filter(pa.array(good)), refused


def _detail(parsed: Parsed, position: int, fault: Fault) -> str:
    if parsed.place is None:
        return detail_text(fault.detail)
    return detail_text(f"{parsed.place(position)}: {fault.detail}")


def _checks(events: pa.RecordBatch, policy: Policy) -> Found:
    for name, missing, longest in _TEXTS:
        yield from _text(name, events.column(name), missing, longest)
    yield from _amount(events.column("amount_minor"))
    yield from _currency(events, policy)
    yield from _time(events.column("occurred_at"))
    yield from _policy(events, policy)


def _text(name: str, texts: pa.Array, missing: Reason, longest: int) -> Found:
    if all_visible_ascii(texts, longest):
        return  # as nearly every column: the searches below cost more than all other checks
    for position in _where(texts.is_null()):
        yield position, Fault(missing, f"{name} is missing")
    for position in _where(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)):
        yield position, Fault(missing, f"{name} is blank")
    for position in _where(pc.match_substring_regex(texts, _CONTROL)):
        yield position, Fault(Reason.BAD_TEXT, f"{name} holds a control character")
    lengths = pc.utf8_length(texts)
    for position in _where(pc.greater(lengths, longest)):
        detail = f"{name} is {lengths[position]} characters long, at most {longest} are accepted"
        yield position, Fault(Reason.BAD_TEXT, detail)


def _amount(amounts: pa.Array) -> Found:
    for position in _where(amounts.is_null()):
        yield position, Fault(Reason.MISSING_AMOUNT, "amount_minor is missing")
    beyond = pc.or_(pc.less(amounts, -AMOUNT_MAX), pc.greater(amounts, AMOUNT_MAX))
    for position in _where(beyond):
        detail = f"amount_minor is {amounts[position]}, beyond {AMOUNT_MAX} either way"
        yield position, Fault(Reason.AMOUNT_OUT_OF_RANGE, detail)


def _currency(events: pa.RecordBatch, policy: Policy) -> Found:
    merchants, currencies = events.column("merchant_id"), events.column("currency")
    expected = policy.currencies(merchants)
    same = pc.fill_null(pc.equal(currencies, expected), fill_value=False)
    for position in _where(pc.and_(pc.invert(same), merchants.is_valid())):
        given = currencies[position].as_py()
        found = "missing" if given is None else repr(given[:16])
        detail = f"currency is {found}, the merchant settles in {expected[position]}"
        yield position, Fault(Reason.WRONG_CURRENCY, detail)


def _time(times: pa.Array) -> Found:
    for position in _where(times.is_null()):
        yield position, Fault(Reason.MISSING_TIME, "occurred_at is missing")
    early = pc.less(times, pa.scalar(TIME_MIN, times.type))
    for position in _where(pc.or_(early, pc.greater_equal(times, pa.scalar(TIME_END, times.type)))):
        detail = (
            f"occurred_at is {_shown(times[position])}, outside {rfc3339(TIME_MIN)}"
            f" to {rfc3339(TIME_END)}"
        )
        yield position, Fault(Reason.TIME_OUT_OF_RANGE, detail)


def _policy(events: pa.RecordBatch, policy: Policy) -> Found:
    """Refuse events from before the first policy: they can never be judged."""
    merchants, times = events.column("merchant_id"), events.column("occurred_at").cast(pa.int64())
    micros = pc.fill_null(times, 0).to_numpy()
    ends = micros - micros % WINDOW_US + WINDOW_US
    if not len(ends) or policy.covers(pa.array([""]), ends.min(keepdims=True)).all():
        return  # the default is in force for all of them
    covered = policy.covers(merchants, ends)
    for position in _where(pc.and_(pa.array(~covered), merchants.is_valid())):
        detail = f"no limit of policy {policy.first_version} is in force when its window ends"
        yield position, Fault(Reason.TIME_OUT_OF_RANGE, detail)


def _where(mask: pa.Array) -> list[int]:
    """Return the positions at which a mask is true; null counts as false."""
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()
    return found


def _shown(time: pa.Scalar) -> str:
    micros = time.cast(pa.int64()).as_py()
    try:
        return rfc3339_from_micros(micros)
    except OverflowError:
        return f"{micros} microseconds after 1970"
