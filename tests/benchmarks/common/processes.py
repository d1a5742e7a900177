"""The processor time and the memory of a process and its descendants."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Any, Self

import psutil


def processor_seconds(pid: int | None = None) -> float:
    """Processor time so far of a process and all that it started: JVM and Python workers."""
    seconds = 0.0
    for each in _family(pid):
        with suppress(psutil.Error):
            # Those of children that have ended are counted by the parent that waited for them.
            seconds += sum(each.cpu_times()[:4])
    return seconds


class Peak:
    """While entered, looks at something again and again; `most` has the largest of each figure."""

    def __init__(self, look: Callable[[], Mapping[str, int]], every_s: float = 0.1) -> None:
        self._look = look
        self._every_s = every_s
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.most: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        over = False
        while not over:
            for name, value in self._look().items():
                self.most[name] = max(self.most.get(name, 0), value)
            over = self._stop.wait(self._every_s)


def memory_of(
    pid: int | None, *, shared_once: bool = False, name: str = "bytes"
) -> Callable[[], dict[str, int]]:
    """Return a look at the resident bytes of a process and all that it started.

    With `shared_once` a page that several of them share counts once (the proportional set size),
    where the system knows it.
    """

    def look() -> dict[str, int]:
        used = 0
        for each in _family(pid):
            with suppress(psutil.Error):
                used += _shared_once(each) if shared_once else each.memory_info().rss
        return {name: used}

    return look


def driver_memory() -> dict[str, int]:
    """Return the bytes of this process's JVM, of its Python workers, and of JVM and itself.

    Workers are forks that share pages: theirs is the proportional set size.
    """
    java, python = 0, 0
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "java" in each.name():
                java += each.memory_info().rss
            else:
                python += _shared_once(each)
    return {"java": java, "python": python, "driver": java + psutil.Process().memory_info().rss}


def _shared_once(process: Any) -> int:
    full = process.memory_full_info()
    return int(getattr(full, "pss", full.rss))


def _family(pid: int | None) -> Iterator[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        this = psutil.Process(pid)
        yield from (this, *this.children(recursive=True))
