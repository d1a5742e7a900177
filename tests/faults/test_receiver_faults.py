"""The receiver dies at each of its points, and the sender sends again.

Real: the service as a process, SIGKILL, Postgres, HTTP. Doubled: the sender, with its own signer.
Asserted: the answers, and the rows of the service's own tables.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL

import httpx
import pytest

from tests.support.dispatch.payouts import Payouts, empty_database, payouts
from tests.support.dispatch.sender import Sent, key_of, receipt

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def healthy(server_dsn: str) -> Iterator[Payouts]:
    """An instance that nothing happens to, on the same database as the one that dies."""
    with empty_database(server_dsn) as dsn, payouts(dsn) as running:
        yield running


@pytest.mark.guarantee(10)
@pytest.mark.parametrize(
    ("point", "outcome", "arrivals"),
    [("R1", "applied", 1), ("R2", "applied", 1), ("R3", "applied", 1), ("R4", "duplicate", 2)],
)
def test_receiver_killed_at_a_point_holds_exactly_once(
    healthy: Payouts, point: str, outcome: str, arrivals: int
) -> None:
    sent = Sent.of(point, "block", 1)
    with payouts(healthy.dsn, failpoints=f"{point}=kill") as dying:
        with pytest.raises(httpx.TransportError):
            dying.send(sent)
        assert dying.wait() == -SIGKILL
    # Asking is enough where it was committed: the sender need not repeat itself to know.
    inquiry = healthy.ask(key_of(point, 1))
    assert inquiry.status_code == (200 if outcome == "duplicate" else 404)
    # The server may take a moment to notice that the client of the open transaction is dead.
    while (answer := healthy.send(sent)).status_code == 409:
        pass
    assert (answer.status_code, answer.json()["outcome"]) == (200, outcome)
    known = healthy.ask(key_of(point, 1)).json()
    assert (known["outcome"], known["applied_at"]) == ("applied", answer.json()["applied_at"])
    assert known["receipt"] == receipt(known)
    assert answer.json()["receipt"] == receipt(answer.json())
    history = "SELECT sequence, effect FROM payouts.hold_history WHERE merchant_id = %s"
    assert healthy.rows(history, point) == [(1, "applied")]
    held = "SELECT held, sequence FROM payouts.hold WHERE merchant_id = %s"
    assert healthy.rows(held, point) == [(True, 1)]
    logged = (
        "SELECT count(*) FROM payouts.delivery_log WHERE subject = %s AND outcome <> 'in_progress'"
    )
    assert healthy.rows(logged, point) == [(arrivals,)]


def test_second_instance_does_not_wait_for_one_hung_before_commit(
    healthy: Payouts, tmp_path: Path
) -> None:
    sent = Sent.of("m_482", "block", 1)
    marker = tmp_path / "paused"
    with (
        payouts(healthy.dsn, failpoints=f"R3=pause:{marker}") as hanging,
        ThreadPoolExecutor() as threads,
    ):
        unanswered = threads.submit(hanging.send, sent)
        while not marker.exists():
            assert hanging.process.poll() is None
        waiting = healthy.send(sent)
        assert (waiting.status_code, waiting.headers["retry-after"]) == (409, "1")
        assert waiting.json()["outcome"] == "in_progress"
        hanging.process.kill()
        with pytest.raises(httpx.TransportError):
            unanswered.result()
        while (answer := healthy.send(sent)).status_code == 409:
            pass
    assert answer.json()["outcome"] == "applied"
    history = "SELECT count(*) FROM payouts.hold_history WHERE merchant_id = %s"
    assert healthy.rows(history, "m_482") == [(1,)]
