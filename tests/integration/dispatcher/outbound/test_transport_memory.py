"""How much memory answers can take, measured from outside the process: every engine."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.console.flooded import REQUESTS
from tests.support.dispatch.transports import ENGINES
from tests.support.dispatch.webhooks import Seen, WebhookReceiver, Wire

GIGABYTE = 1 << 30
CHUNK = b"100000\r\n" + b"z" * 0x100000 + b"\r\n"
RSS_MAX = 300 << 20


async def gigabyte(_seen: Seen, wire: Wire) -> None:
    """Answer with a gigabyte in chunks, as long as anybody reads."""
    await wire.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(GIGABYTE // len(CHUNK)):
        await wire.send(CHUNK)


@pytest.mark.parametrize("engine", ENGINES.keys())
def test_200_answers_of_a_gigabyte_at_once_stay_below_300_mib(
    receiver: WebhookReceiver, engine: str
) -> None:
    receiver.script = lambda _seen: gigabyte
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.console.flooded", engine, str(receiver.port)],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rss, cut = map(int, done.stdout.split())
    assert cut == REQUESTS
    assert rss < RSS_MAX
