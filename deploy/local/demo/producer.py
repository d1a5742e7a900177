"""The producer of a run: it writes the traffic into a topic, as far as it is allowed to."""

from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

from holdfast.deploy.local.kafka import topics

FLUSH_SECONDS = 300.0
PAUSE_LINES = 20
PAUSE_SECONDS = 0.01
"""About a thousand lines a second, so that a kill of the broker meets some on their way."""


class Producer:
    """Writes lines in order, each into the partition of its merchant; a thread of its own."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, lines: Sequence[str]
    ) -> None:
        self.lines = lines
        self.written = 0
        """Lines that were handed to the client; acknowledged are all of them when `done`."""
        self._address, self._topic, self._partitions = bootstrap_servers, topic, partitions
        self._allowed = 0
        self._go = Event()
        self._ending = False
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="producer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending = True
        self._go.set()
        self._thread.join()

    def allow(self, lines: int) -> None:
        """Let it write so many lines in all."""
        self._allowed = lines
        self._go.set()

    def flushed(self) -> bool:
        """Return whether the broker has acknowledged the lines that are allowed so far.

        Raises what the producer failed with.
        """
        if self._failure:
            raise self._failure
        return self.written >= min(self._allowed, len(self.lines)) and self._pending == 0

    def done(self) -> bool:
        """Return whether the broker has acknowledged all lines; raises as `flushed`."""
        return self.flushed() and self.written == len(self.lines)

    @property
    def _pending(self) -> int:
        return self._writer.pending if self._thread.is_alive() else 0

    def _run(self) -> None:
        try:
            self._writer = topics.Writer(self._address)
            while self.written < len(self.lines) and not self._ending:
                if self.written < self._allowed:
                    self._write()
                else:
                    self._writer.poll()
                    self._go.wait(PAUSE_SECONDS)
                    self._go.clear()
            if not self._ending:
                self._writer.flush(FLUSH_SECONDS)
        except BaseException as error:  # noqa: BLE001 - raised where the run waits for it
            self._failure = error

    def _write(self) -> None:
        for line in self.lines[self.written : min(self._allowed, self.written + PAUSE_LINES)]:
            partition = topics.partition_of(line, self._partitions)
            self._writer.write(self._topic, line, partition=partition)
            self.written += 1
        Event().wait(PAUSE_SECONDS)
