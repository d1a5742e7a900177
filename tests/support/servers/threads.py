"""Servers of the standard library in threads of this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread

POLL_SECONDS = 0.01


@contextmanager
def in_threads(*servers: BaseServer) -> Iterator[None]:
    """Serve until the block ends; then every server is stopped and closed, and its thread over."""
    threads = [Thread(target=each.serve_forever, args=(POLL_SECONDS,)) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
