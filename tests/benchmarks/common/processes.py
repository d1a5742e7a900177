"""The resource usage of a process and its descendants."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self

import psutil


def processor_seconds(pid: int | None = None) -> float:
    """Processor time so far of a process and all that it started: JVM and Python workers."""
    seconds = 0.0
    for each in _family(pid):
        with suppress(psutil.Error):
            # Those of children that have ended are counted by the parent that waited for them.
            seconds += sum(each.cpu_times()[:4])
    return seconds


class PeakMemory:
    """While entered, watches the memory of this process, of its JVM and of its Python workers.

    Peaks are in bytes; `driver` is that of this process and its JVM together. Workers are forks
    that share pages: theirs is the proportional set size, where the system knows it.
    """

    def __init__(self, every_s: float = 0.5) -> None:
        self._every_s = every_s
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.java = 0
        self.python = 0
        self.driver = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            java, python = 0, 0
            for each in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "java" in each.name():
                        java += each.memory_info().rss
                    else:
                        python += _shared_once(each)
            self.java, self.python = max(self.java, java), max(self.python, python)
            self.driver = max(self.driver, java + psutil.Process().memory_info().rss)


class PeakRss:
    """While entered, watches the resident memory of a process and all that it started, in bytes.

    With `shared_once`, a page that several of them share counts once (the proportional set size),
    where the system knows it.
    """

    def __init__(self, pid: int | None, every_s: float = 0.1, *, shared_once: bool = False) -> None:
        self._pid = pid
        self._every_s = every_s
        self._shared_once = shared_once
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._every_s):
            used = 0
            for each in _family(self._pid):
                with suppress(psutil.Error):
                    used += _shared_once(each) if self._shared_once else each.memory_info().rss
            self.bytes = max(self.bytes, used)


def driver_bytes() -> int:
    """The memory of this process and its JVM now."""
    size = psutil.Process().memory_info().rss
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "java" in each.name():
                size += each.memory_info().rss
    return int(size)


def _shared_once(process: psutil.Process) -> int:
    full = process.memory_full_info()
    return int(getattr(full, "pss", full.rss))


def _family(pid: int | None) -> Iterator[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        this = psutil.Process(pid)
        yield from (this, *this.children(recursive=True))
