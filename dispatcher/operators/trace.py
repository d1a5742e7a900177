"""One decision from its batch through entry and attempts to receipts."""

import hashlib
import json
from typing import Any

from holdfast.dispatcher.operators.attempts.store import AttemptFilter
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.streams.store import with_offsets
from holdfast.dispatcher.operators.why.store import Why
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

ATTEMPTS_MAX = 500
"""Maximum number of attempts over all endpoints, the newest."""

DECISION = (
    "merchant_id",
    "action",
    "window_start",
    "window_end",
    "revision",
    "exposure_minor",
    "limit_minor",
    "release_level_minor",
    "currency",
    "policy_version",
)
"""The members of `data` that are shown although the body is withheld: what was decided."""


class Trace(Why):
    """Reads everything about one entry."""

    def trace(self, key: Key, *, body: bool) -> Row:
        """Return the batch, the entry, and for each endpoint the attempts and the verdict of `why`.

        The body and the receivers' answers are included only with `body`. Raises `CommandError`
        (nothing matched) for a key whose entry is not stored.
        """
        self.shows_answers = body
        entry = self.entry(key)
        ids = {name: entry["batch"][name] for name in ("stream", "query_id", "batch_id")}
        ledger = self._one("streams/batch_find", ids)
        explanation = self.explain_key(key, "")
        tried, older = self.of_key(key, AttemptFilter(), limit=ATTEMPTS_MAX)
        if not explanation.entry:
            raise CommandError(
                f"the entry of {key.text} was dropped just now. Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="entry_not_stored",
            )
        return {
            "key": key.text,
            "batch": with_offsets(ledger),
            "entry": _entry(entry, body=body),
            "endpoints": [
                {
                    "endpoint": each.endpoint,
                    "verdict": each.answer.verdict.value,
                    "sentence": each.answer.sentence,
                    "attempts": [
                        _attempt(row, body=body)
                        for row in reversed(tried)
                        if row["endpoint"] == each.endpoint
                    ],
                }
                for each in explanation.at_endpoints
            ],
            "older_attempts": older is not None,
        }


def _entry(entry: Row, *, body: bool) -> Row:
    names = ("subject", "sequence", "type", "occurred_at", "written_at", "priority", "traceparent")
    raw = entry["body"].encode()
    return {
        **{name: entry[name] for name in names},
        "decision": _decision(entry["body"]),
        "body_bytes": len(raw),
        "body_sha256": hashlib.sha256(raw).hexdigest(),
        "body": entry["body"] if body else None,
    }


def _decision(body: str) -> dict[str, Any]:
    data = json.loads(body).get("data")
    return {name: data[name] for name in DECISION if name in data} if isinstance(data, dict) else {}


def _attempt(row: Row, *, body: bool) -> Row:
    names = ("number", "finished_at", "outcome", "status", "duration_ms", "error", "receipt")
    answered = row["response"]
    return {
        **{name: row[name] for name in names},
        "retry_at": row["retry_at"],
        "response_bytes": 0 if answered is None else len(answered.encode()),
        "response": answered if body else None,
    }
