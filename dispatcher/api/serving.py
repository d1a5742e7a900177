"""uvicorn, and the socket that it listens on."""

import socket
import sys

import uvicorn

from dispatcher.api.app import application
from dispatcher.api.punctual import PunctualProtocol
from dispatcher.api.settings import ApiSettings
from dispatcher.operators.common.session import operator_connection
from sink.contract.exits import CommandError, ExitCode

IDLE_SECONDS = 15
STOP_SECONDS = 10
REQUESTS_MAX = 200
"""As many are answered at once; one more is told to come again (503)."""

HEADER_BYTES_MAX = 32_768


def run(settings: ApiSettings) -> None:
    """Serve until stopped; raises `CommandError` where that cannot begin."""
    settings.check()
    with operator_connection(settings.dsn):
        """The schema fits and the role may be taken; or one clear line before anything listens."""
    with _listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"listening on http://{shown}:{port}\n")
        sys.stderr.flush()
        server(settings).run(sockets=[listener])


def server(settings: ApiSettings) -> uvicorn.Server:
    """Return the server, which listens on the socket that `run` is given."""
    return uvicorn.Server(
        uvicorn.Config(
            application(settings),
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=settings.behind_proxy,
            limit_concurrency=REQUESTS_MAX,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
            http=PunctualProtocol,
            ws="none",
        )
    )


def _listening(settings: ApiSettings) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise CommandError(
            f"nobody can listen on {settings.host}:{settings.port}:"
            f" {error.strerror or error}. Nothing was started; name a free port with --port.",
            ExitCode.USAGE,
        ) from None
