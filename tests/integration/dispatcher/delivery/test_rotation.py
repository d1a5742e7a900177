"""A secret is rotated while deliveries go on: every one of them can be verified all the time."""

import threading
from pathlib import Path

import psycopg
import pytest

from holdfast.receiver.errors import VerificationError
from holdfast.receiver.message.secret import Secret
from holdfast.receiver.message.verify import verify
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import add_endpoint, dispatching
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, secret_text
from tests.support.dispatch.webhooks import Behaviour, Seen, WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually

pytestmark = pytest.mark.rest

OLD, NEW = Secret(KEY_BYTES), Secret(OTHER_KEY_BYTES)


class Verifier:
    """A receiver's check with the secrets that it knows at the moment."""

    def __init__(self) -> None:
        self.known = [OLD]
        self.failures: list[str] = []
        self.signatures: set[int] = set()
        """How many signatures the deliveries had."""

    def __call__(self, seen: Seen) -> Behaviour:
        self.signatures.add(len(seen.header("webhook-signature").split(" ")))
        try:
            verify(dict(seen.headers), seen.body, self.known)
        except VerificationError as error:
            self.failures.append(str(error))
            return answer(401)
        return answer(200)


@pytest.mark.usefixtures("secret_dir")
def test_rotation_under_load_fails_no_verification(
    dsn: str,
    db: psycopg.Connection,
    decisions: Decisions,
    receiver: WebhookReceiver,
    tmp_path: Path,
) -> None:
    for name, key in (("old", KEY_BYTES), ("new", OTHER_KEY_BYTES)):
        (tmp_path / name).write_text(secret_text(key))
        (tmp_path / name).chmod(0o600)
    old, new = (f"file:{tmp_path / name}" for name in ("old", "new"))
    add_endpoint(db, receiver.url, secret_refs=[old])
    verifier = Verifier()
    receiver.script = verifier
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            decisions.write(*[f"m_{number}" for number in range(20)])

    def rotate(*options: str) -> None:
        done = holdfast("endpoint", "rotate-secret", "payouts", *options, "--reason", "x", dsn=dsn)
        assert done.returncode == ExitCode.OK, done.stderr
        before = len(receiver.seen)
        # What was begun before is over, and much was begun since.
        eventually(lambda: len(receiver.seen) > before + 200)

    writer = threading.Thread(target=load)
    with dispatching(dsn, tmp_path / "log") as running:
        writer.start()
        try:
            eventually(lambda: len(receiver.seen) > 200)
            rotate("--to", new)
            eventually(lambda: verifier.signatures == {1, 2})
            verifier.known = [OLD, NEW]
            before = len(receiver.seen)
            eventually(lambda: len(receiver.seen) > before + 200)
            verifier.known = [NEW]
            rotate("--finish")
            verifier.signatures.clear()
            eventually(lambda: 1 in verifier.signatures)
        finally:
            over.set()
            writer.join()
        assert running.process.poll() is None, running.text()
    assert verifier.failures == []
    refs = db.execute("SELECT secret_refs FROM holdfast.endpoint").fetchone()
    assert refs == ([new],)
