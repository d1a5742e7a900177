"""Lines of delivered attempts, written many at once.

They are nearly all of the log, and hold numbers and one name: nothing in them has to be searched
for secrets again and again. Everything else goes the way of `dispatcher.telemetry`.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import structlog

from dispatcher.core.text import redact
from dispatcher.core.values import Attempt, Settlement
from sink.contract.key import Key
from sink.contract.states import Outcome

_LINE = (
    '{"endpoint": %s, "subject": %d, "sequence": %d, "key": "%s", "attempt": %d,'
    ' "outcome": "delivered", "status": %d, "ms": %d%s, "level": "info", "time": "%s",'
    ' "what": "attempt"}'
)


def delivered_lines(endpoint: str, settlement: Settlement, time: str) -> list[str] | None:
    """Return a JSON line for each attempt, or None when one of them was not delivered.

    `time` is what the lines say of when they were written, in ISO 8601.
    """
    attempts = settlement.attempts
    if not attempts or not _is_plain(attempts):
        return None
    name, subject, final = _quoted(endpoint), settlement.subject_id, len(attempts) - 1
    lane = f', "lane": "{settlement.move}"'
    return [
        _LINE
        % (
            name,
            subject,
            each.sequence,
            Key(each.key).text,
            each.number,
            each.status,
            each.duration_ms,
            lane if place == final else "",
            time,
        )
        for place, each in enumerate(attempts)
    ]


def json_logger() -> Any | None:
    """Return what writes text to the log, where the log is JSON lines; else None."""
    config = structlog.get_config()
    if isinstance(config["processors"][-1], structlog.processors.JSONRenderer):
        return config["logger_factory"]()
    return None


def _is_plain(attempts: Sequence[Attempt]) -> bool:
    # Only the last of a lane can be other than delivered, and only then is there a retry.
    last = attempts[-1]
    return last.outcome is Outcome.DELIVERED and all(
        each.status is not None and each.error is None for each in attempts
    )


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(redact(name))
