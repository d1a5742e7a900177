"""The counting receiver as a process: `counting_receiver.py` on the interpreter of the peers."""

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.common import counting_receiver
from tests.benchmarks.dispatch.installed import python


@dataclass(frozen=True, slots=True)
class Receiver:
    """The counting receiver of a run."""

    port: int

    @property
    def url(self) -> str:
        """Where webhooks go."""
        return f"http://127.0.0.1:{self.port}/webhooks"

    def figures(self) -> dict[str, Any]:
        """What it has counted so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/")
            figures: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return figures


@contextmanager
def receiver(*options: str) -> Iterator[Receiver]:
    """Run a receiver; it is gone when the block ends."""
    words = [str(python()), counting_receiver.__file__, *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or not (line := process.stdout.readline()):
            raise RuntimeError("the receiver did not start")
        yield Receiver(int(line))
    finally:
        process.kill()
        process.wait()
