"""What a parent and its dispatcher processes tell each other."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from multiprocessing.connection import Connection

from holdfast.dispatcher.delivery.service import Dispatcher
from holdfast.sink.contract.exits import ExitCode


class Order(Enum):
    """From the parent to a process."""

    STOP = auto()
    ABORT = auto()
    """Stop at once: cancel what is still in flight."""
    RELOAD = auto()


@dataclass(frozen=True, slots=True)
class Ready:
    """From a process to its parent: the database answered, and it begins."""


@dataclass(frozen=True, slots=True)
class Failed:
    """From a process to its parent: the error with which it ends."""

    message: str
    exit_code: ExitCode
    code: str
    for_good: bool
    """Whether it would end again: the database does not serve this version."""


class Orders:
    """The orders of a process. It stops when its parent is gone, however that ended."""

    def __init__(self, connection: Connection) -> None:
        """`connection` leads to the parent, which alone has its other end."""
        self._connection = connection
        self._dispatcher: Dispatcher | None = None
        self._stopping = False

    def follow(self, dispatcher: Dispatcher) -> None:
        """Obey from now on, in the running event loop, and tell the parent so."""
        self._dispatcher = dispatcher
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._read)
        with suppress(OSError):  # a parent that is gone: the reader is told so, and stops
            self._connection.send(Ready())

    def stop(self) -> None:
        """Stop gracefully, however often it is asked for."""
        if self._dispatcher is not None and not self._stopping:
            self._stopping = True
            self._dispatcher.stop()

    def _read(self) -> None:
        try:
            order = self._connection.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            order = Order.STOP
        if order is Order.RELOAD and self._dispatcher is not None:
            self._dispatcher.reload()
            return
        self.stop()
        if order is Order.ABORT and self._dispatcher is not None:
            self._dispatcher.stop()
