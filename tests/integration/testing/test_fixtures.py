"""The kit's fixtures in a project of its own: an outbox for each test, and a server that ends."""

import subprocess
import sys
from pathlib import Path

from tests.support.servers.databases import processes_on

PROJECT = """\
from pathlib import Path

import psycopg
import pytest

from holdfast.sink import OutboxSink


@pytest.mark.parametrize("time", [1, 2])
def test_outbox_is_empty(embedded_outbox, time):
    sink = OutboxSink(embedded_outbox, stream="payouts")
    sink.check()
    sink.close()
    with psycopg.connect(embedded_outbox) as db:
        assert db.execute("SELECT count(*) FROM holdfast.stream").fetchone() == (0,)
        db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts')")
        Path("data.txt").write_text(db.execute("SHOW data_directory").fetchone()[0])


def test_outboxes_are_apart(make_outbox):
    assert make_outbox() != make_outbox()
"""


def test_each_test_has_an_outbox_and_the_server_ends(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["holdfast.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    data = Path((tmp_path / "data.txt").read_text())
    assert processes_on(data) == []
    assert not data.exists()
