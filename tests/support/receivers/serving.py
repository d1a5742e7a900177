"""An ASGI application on a free port, in a thread of this process, until the block ends."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn

from tests.support.waiting import eventually


@contextmanager
def serving(app: Any, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `app`, with TLS as localhost if configured; yields the root URL."""
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    config.load()
    config.ssl = tls
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            eventually(lambda: server.started or not thread.is_alive())
            assert server.started
            port = listener.getsockname()[1]
            yield f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
