"""How far a figure rises while something runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

EVERY_SECONDS = 0.02


@contextmanager
def peak_of(read: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Sample `read()` while the block runs; the function it yields says how far it rose."""
    before = highest = read()
    done = Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(EVERY_SECONDS):
            highest = max(highest, read())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield lambda: highest - before
    finally:
        done.set()
        watcher.join()
