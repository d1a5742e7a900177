"""Attempts as rows of COPY's text format, for all of a transaction at once.

A row is written by one template: the driver's way, value by value, takes longer than the request
took to be built.
"""

from datetime import datetime

from dispatcher.delivery.rules.values import Settlement

_ROW = "%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n"
_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def attempt_rows(settlement: Settlement, settled_at: str, due_at: datetime | None) -> str:
    """Return the rows of a settlement's attempts, in the order of columns of `attempt_copy`.

    `settled_at` is in ISO 8601.
    """
    retried = settlement.delay_us is not None and due_at is not None
    token, final = settlement.token.hex, len(settlement.attempts) - 1
    return "".join(
        [
            _ROW
            % (
                settlement.endpoint_id,
                settlement.subject_id,
                each.sequence,
                each.number,
                settled_at,
                token,
                each.outcome.value,
                _NULL if each.status is None else each.status,
                each.duration_ms,
                _text(each.error),
                _text(each.response),
                _text(each.receipt),
                due_at.isoformat() if due_at and retried and place == final else _NULL,
            )
            for place, each in enumerate(settlement.attempts)
        ]
    )


def _text(value: str | None) -> str:
    return _NULL if value is None else value.translate(_ESCAPES)
