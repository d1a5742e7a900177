"""Wall time and CPU time of each batch, of client and server together."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.benchmarks.common.processes import processor_seconds

SERVER_PID = "HOLDFAST_BENCH_SERVER"
"""The environment variable with the server's process, where it runs on this machine."""


class Lap(NamedTuple):
    """One batch."""

    seconds: float
    cpu_s: float


class Stopwatch:
    """Takes a lap for each batch."""

    def __init__(self) -> None:
        self.laps: list[Lap] = []
        pid = os.environ.get(SERVER_PID)
        self._server = int(pid) if pid else None

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time a block."""
        cpu, began = self._cpu(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.laps.append(Lap(seconds, self._cpu() - cpu))

    def _cpu(self) -> float:
        server = 0.0 if self._server is None else processor_seconds(self._server)
        return processor_seconds() + server
