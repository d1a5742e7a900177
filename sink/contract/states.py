"""Every enum of the database. A test compares each with its Postgres type."""

import re

from holdfast.sink.contract.compatibility import StrEnum


class Outcome(StrEnum):
    """The classified result of one attempt."""

    DELIVERED = "delivered"
    THROTTLED = "throttled"
    FAILED = "failed"
    REJECTED = "rejected"
    GONE = "gone"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class EndpointState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


class OrderPolicy(StrEnum):
    """What a lane does when its head is a dead letter: wait for a person, or continue."""

    STOP = "stop"
    SKIP = "skip"


class EnvelopeStyle(StrEnum):
    """Which headers a request carries: those of Standard Webhooks, or CloudEvents' as well."""

    STANDARD = "standard"
    CLOUDEVENTS = "cloudevents"


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    SLOW_START = "slow_start"


class DeadReason(StrEnum):
    EXHAUSTED = "exhausted"
    REJECTED = "rejected"
    REFUSED = "refused"


class DeadResolution(StrEnum):
    REDELIVERED = "redelivered"
    REISSUED = "reissued"
    DISMISSED = "dismissed"


class QuarantineReason(StrEnum):
    """Why a row was quarantined: first the faults of a source row, then those of a decision."""

    MALFORMED = "malformed"
    MISSING_EVENT_ID = "missing_event_id"
    MISSING_MERCHANT = "missing_merchant"
    MISSING_TYPE = "missing_type"
    MISSING_AMOUNT = "missing_amount"
    MISSING_TIME = "missing_time"
    BAD_TEXT = "bad_text"
    BAD_AMOUNT = "bad_amount"
    BAD_TIME = "bad_time"
    AMOUNT_OUT_OF_RANGE = "amount_out_of_range"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    WRONG_CURRENCY = "wrong_currency"

    BAD_SUBJECT = "bad_subject"
    BAD_KEY = "bad_key"
    BAD_TYPE = "bad_type"
    BAD_DATA = "bad_data"
    KEY_CONFLICT = "key_conflict"
    BODY_TOO_LARGE = "body_too_large"
    FUTURE_DATED = "future_dated"
    """Dated later than the database's clock plus the sink's tolerance."""

    REJECTED = "rejected"
    """Rejected by a rule of the job, whose name is beside it."""


RULE_FORM = "a-z, then at most 63 of a-z 0-9 _, and not one of the sink's own reasons"


def is_rule(text: str) -> bool:
    """Return whether a text can name a rule of a job, by which it rejects rows."""
    return _RULE.fullmatch(text) is not None and text not in _REASONS


_RULE = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
"""As ck_quarantine_rule_name."""

_REASONS = frozenset(reason.value for reason in QuarantineReason)


class QuarantineResolution(StrEnum):
    """How a quarantined row was resolved."""

    REQUEUED = "requeued"
    DISMISSED = "dismissed"


class SuppressedCause(StrEnum):
    """Why a decision was recorded and not written."""

    REPEATED = "repeated"
    """Its subject already had this type."""

    OVERTAKEN = "overtaken"
    """It occurred before the newest decision of its subject."""


class DivergenceSide(StrEnum):
    """How a key of a diverged replay differs from the batch."""

    ONLY_IN_LEDGER = "only_in_ledger"
    ONLY_IN_REPLAY = "only_in_replay"
    CHANGED = "changed"


class LateReason(StrEnum):
    """Why a valid event was not applied."""

    LATE = "late"
    FUTURE_DATED = "future_dated"
    DUPLICATE = "duplicate"
    SETTLED = "settled"
    """Its window was published before this checkpoint began, which has no event ids of it."""


class ReplayVerb(StrEnum):
    """`redeliver` keeps the key and is safe; `reissue` takes a new key: the action is repeated."""

    REDELIVER = "redeliver"
    REISSUE = "reissue"


class ReplayState(StrEnum):
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    CANCELLED = "cancelled"


class ReplayKind(StrEnum):
    """What a replay does to an entry at an endpoint, depending on the entry's state there."""

    RELEASE = "release"
    """A dead letter blocks its lane: it is resolved, and the lane has a full schedule again."""

    HASTEN = "hasten"
    """The head of a lane waits for a retry: it becomes due now."""

    RESEND = "resend"
    """The lane has passed it: it is sent again outside the lane, same key, same bytes."""

    NOTHING = "nothing"
    """It is sent anyway; a plan counts it and has no item for it."""

    REISSUE = "reissue"
    """A new entry with a new key: the business action is repeated."""


class AccessRole(StrEnum):
    """What the holder of a token may do; each role includes the one before."""

    VIEWER = "viewer"
    """Read, except bodies and receivers' answers."""

    OPERATOR = "operator"
    """Read bodies, pause, resume, redeliver, replay, dismiss."""

    ADMIN = "admin"
    """Change endpoints, adopt checkpoints, repeat business actions, issue tokens."""
