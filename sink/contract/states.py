"""Every enum of the database. A test compares each with its Postgres type."""

import re

from holdfast.sink.contract.compatibility import StrEnum


class Outcome(StrEnum):
    """The classified result of one attempt."""

    DELIVERED = "delivered"
    """2xx, whatever the body is, unless it names another key. The lane continues."""
    THROTTLED = "throttled"
    """429, or 503 with Retry-After. Retried when the receiver asks for it, without a step of the
    schedule if that is later than now; at last `exhausted` by the budget."""
    FAILED = "failed"
    """5xx, 3xx (never followed), 408, 409, or no connection: retried by the schedule, at last
    `exhausted`. 401, 403 and 407 refuse our credentials: retried within 5 min, without a step."""
    REJECTED = "rejected"
    """Any other 4xx. A dead letter at once: a person decides."""
    GONE = "gone"
    """410: the endpoint is disabled. Nothing is given up; its decisions wait."""
    UNKNOWN = "unknown"
    """Possibly sent and no status in time, or an answer that names another key. Retried under the
    same key, so a receiver that keeps keys acts once; at last `exhausted`."""
    REFUSED = "refused"
    """Our own guard sent nothing. An address or URL that is not allowed opens the breaker and is
    retried without a step; a key that the receiver may have forgotten, or a body that is not
    ours, is a dead letter at once."""


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
    """Every retry was used up, or the budget was over. Repair the receiver, then redeliver."""
    REJECTED = "rejected"
    """The receiver refused it for good (4xx). Ask its team why, then redeliver or dismiss."""
    REFUSED = "refused"
    """Our guard refused to send it: the receiver may have forgotten its key, or its body is not
    ours. Look at what the receiver has before you repeat it."""


class DeadResolution(StrEnum):
    REDELIVERED = "redelivered"
    REISSUED = "reissued"
    DISMISSED = "dismissed"


class QuarantineReason(StrEnum):
    """Why a row was quarantined: first the faults of a source row, then those of a decision."""

    MALFORMED = "malformed"
    """It is not a JSON object, or not of its Avro schema."""
    MISSING_EVENT_ID = "missing_event_id"
    """It has no `event_id`."""
    MISSING_MERCHANT = "missing_merchant"
    """It has no `merchant_id`."""
    MISSING_TYPE = "missing_type"
    """It has no `type`."""
    MISSING_AMOUNT = "missing_amount"
    """It has no `amount_minor`."""
    MISSING_TIME = "missing_time"
    """It has no `occurred_at`."""
    BAD_TEXT = "bad_text"
    """A text is too long, not UTF-8, or holds a control character."""
    BAD_AMOUNT = "bad_amount"
    """`amount_minor` is not an integer."""
    BAD_TIME = "bad_time"
    """`occurred_at` is not RFC 3339 with a zone."""
    AMOUNT_OUT_OF_RANGE = "amount_out_of_range"
    """`amount_minor` is beyond what the job adds up."""
    TIME_OUT_OF_RANGE = "time_out_of_range"
    """`occurred_at` is outside the years that the job accepts, or before the first policy."""
    WRONG_CURRENCY = "wrong_currency"
    """Its currency is missing, or not that of its merchant in the policy."""

    BAD_SUBJECT = "bad_subject"
    """The subject is missing, empty or too long."""
    BAD_KEY = "bad_key"
    """The key is missing, has too many parts, or a part that is empty or too long."""
    BAD_TYPE = "bad_type"
    """The type is not words of letters, digits and `_` with dots between."""
    BAD_DATA = "bad_data"
    """`data` is missing, or has a value that JSON cannot carry exactly."""
    KEY_CONFLICT = "key_conflict"
    """Its key is recorded with different content: two decisions share a key."""
    BODY_TOO_LARGE = "body_too_large"
    """The body exceeds 256 KiB."""
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
    """It arrived after its window was closed for good."""
    FUTURE_DATED = "future_dated"
    """It is dated further beyond the batch than `--future-tolerance`."""
    DUPLICATE = "duplicate"
    """Its id was applied in this window before."""
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
