"""What a receiver answers is on record as it was, whatever characters it holds."""

import psycopg
import pytest

from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions

AWKWARD = "tab\t, line\n, back\\slash, \\N, \\., \\t, ünï, \U0001f4b8"


@pytest.mark.parametrize("body", [AWKWARD, "\\N", "\\.", "\\", "a\\"])
def test_answer_with_characters_that_mean_something_to_copy_is_stored_as_it_was(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver, body: str
) -> None:
    add_endpoint(db, receiver.url)
    receiver.script = lambda _seen: (
        answer(500, body.encode()) if len(receiver.seen) == 1 else answer()
    )
    decisions.write("m_1")
    drain(dsn)
    rows = db.execute(
        "SELECT number, outcome::text, status, error, response, receipt, retry_at IS NOT NULL"
        " FROM holdfast.attempt ORDER BY number"
    ).fetchall()
    assert rows == [
        (1, "failed", 500, None, body, None, True),
        (2, "delivered", 200, None, None, None, False),
    ]
