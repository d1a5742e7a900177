"""A signing secret leaked: the page, followed under load, after somebody had used the secret."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.dispatch.sender import Sent
from tests.support.documents.runbook import Reader, Site, decided, rows
from tests.support.job.driver import Driver

pytestmark = pytest.mark.rest

MERCHANTS = ("m_482", "m_1", "m_2", "m_3")
PAUSE_SECONDS = 0.1

REFUSED = "SELECT count(*) FROM holdfast.attempt WHERE status BETWEEN 400 AND 499"
DELIVERED = "SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered'"


@contextmanager
def load(site: Site) -> Iterator[None]:
    """Blocks and releases, one batch after another, until the block ends."""
    over = threading.Event()
    spark = Driver(site.dsn)

    def write() -> None:
        batch_id = 0
        while not over.wait(PAUSE_SECONDS):
            action = ("block", "release")[batch_id % 2]
            decisions = (decided(each, batch_id + 1, action) for each in MERCHANTS)
            spark.tables(batch_id, rows(*decisions))
            batch_id += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
        spark.sink.close()


def test_secret_rotation_during_delivery_fails_no_verification(site: Site, reader: Reader) -> None:
    site.serve()
    site.endpoint()
    forged = Sent.of("m_forged", "block")
    assert httpx.post(site.url, content=forged.content, headers=forged.headers).is_success
    running = site.dispatch()
    new = site.folder / "new"
    reader.known |= {
        "OLD_FILE": str(site.secret_file),
        "NEW_FILE": str(new),
        "URL": site.url,
        "CIDR": "127.0.0.0/8",
    }

    def goes_on() -> None:
        before = site.value(DELIVERED)
        site.until(lambda: site.value(DELIVERED) > before + 20)

    def new_alone() -> None:
        # Ten seconds have gone by: it has both secrets, and what was begun before that is over.
        running.send(signal.SIGHUP)
        running.says("reloaded")
        goes_on()
        site.stop_serving()
        site.serve(new)
        goes_on()

    with load(site):
        goes_on()
        reader.follow("secret-leaked", {"the receiver accepts the new secret alone": new_alone})
        goes_on()
    site.delivered()
    assert site.value(REFUSED) == 0
    assert site.value("SELECT count(*) FROM holdfast.dead_letter") == 0
    assert running.process.poll() is None, running.text()
    assert {row[0] for row in site.applied()} == {*MERCHANTS, "m_forged"}
    assert {row[2] for row in site.applied()} == {"applied"}
