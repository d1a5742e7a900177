"""Lines of delivered attempts, written many at once.

They are nearly all of the log, and hold numbers and one name: nothing in them has to be searched
for secrets again and again. Everything else goes the way of `dispatcher.delivery.telemetry.log`.
"""

import json
from functools import lru_cache
from typing import Any

import structlog

from dispatcher.delivery.rules.values import Settlement
from dispatcher.outbound.request import key_text
from dispatcher.shared.text import redact
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
    # Only the last of a lane can be other than delivered, and only then is there a retry.
    if not attempts or attempts[-1].outcome is not Outcome.DELIVERED:
        return None
    name, subject, final = _quoted(endpoint), settlement.subject_id, len(attempts) - 1
    lane = f', "lane": "{settlement.move}"'
    return [
        _LINE
        % (
            name,
            subject,
            each.sequence,
            key_text(each.key),
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


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(redact(name))
