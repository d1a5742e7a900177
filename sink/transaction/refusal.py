"""Why there is no connection: whether waiting helps, or a person has to correct the settings.

libpq keeps only the text of what a server refuses, in the language of the server. It writes the
SQLSTATE in place of the words where it is asked to before it connects, which psycopg has no
function for.
"""

import ctypes
import re
import socket
import struct
import sys
import time
from collections.abc import Mapping
from select import POLLIN, POLLOUT, poll
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

_DENIED = ("28", "3D000", "42501")
"""The beginnings of what refuses user, password, database or `pg_hba.conf`."""

_VERBOSITY = 3
"""`PQERRORS_SQLSTATE`: severity and SQLSTATE, since libpq 12."""

_DEFAULT_SECONDS = 130
"""psycopg's own time limit of a connection that is given none."""

_TLS = re.compile(r"certificate|private key|alert unknown ca|does not support SSL", re.IGNORECASE)
"""In libpq's and OpenSSL's errors of TLS, which are not translated in psycopg's own build."""

_SSL_REQUEST = struct.pack("!ii", 8, 80_877_103)
_SSL_ANSWERS = (b"S", b"N", b"E", b"")
"""To that request: yes, no, an error, or a server that just ends."""

_PROBE_SECONDS = 5.0

_SQLSTATE = re.compile(r": +([0-9A-Z]{5})$", re.MULTILINE)
_ENDED = (pq.PollingStatus.OK, pq.PollingStatus.FAILED)
_EVENTS: dict[int, int] = {pq.PollingStatus.READING: POLLIN, pq.PollingStatus.WRITING: POLLOUT}


def is_denied(error: psycopg.OperationalError, dsn: str, seconds: float) -> bool:
    """Return whether the server refused a connection that failed with `error`, and will again.

    True for user, password, database and `pg_hba.conf`; False for a server that is away, starting
    or out of connections. Connects once more, for `seconds` at most (0: psycopg's own limit).
    """
    # Nothing answered in time: a second attempt would take as long.
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return False
    return any(each.startswith(_DENIED) for each in _refusals(dsn, seconds or _DEFAULT_SECONDS))


def mistake(error: psycopg.OperationalError, dsn: str) -> str | None:
    """Return what is wrong with the settings of a connection that failed; None: nothing is known.

    A host that nobody knows, a certificate that does not fit, a port where something else answers.
    A port that refuses connections is none: a server that restarts refuses them, too.
    """
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return None
    if _TLS.search(str(error)):
        return "correct sslmode, sslrootcert, sslcert or sslkey of the DSN"
    parts = conninfo_to_dict(dsn)
    hosts = [host for host in str(parts.get("host") or "").split(",") if host[:1] not in ("", "/")]
    if not hosts or parts.get("hostaddr"):
        return None
    if all(map(_is_unknown, hosts)):
        return "nobody knows this host: correct it in the DSN"
    if len(hosts) == 1 and _is_other_service(hosts[0], parts):
        return "what answers there is no Postgres: correct host or port of the DSN"
    return None


def _is_unknown(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    return False


def _is_other_service(host: str, parts: Mapping[str, Any]) -> bool:
    """Ask for TLS as libpq does, and return whether the answer is not one of Postgres."""
    try:
        with socket.create_connection(
            (host, int(parts.get("port") or 5432)), _PROBE_SECONDS
        ) as line:
            line.sendall(_SSL_REQUEST)
            return line.recv(1) not in _SSL_ANSWERS
    except (OSError, ValueError):
        return False


def _refusals(dsn: str, seconds: float) -> list[str]:
    """Connect, and return the SQLSTATE of each host that refused it."""
    deadline = time.monotonic() + seconds
    connection: Any = pq.PGconn.connect_start(dsn.encode())
    try:
        _libpq().PQsetErrorVerbosity(ctypes.c_void_p(connection.pgconn_ptr), _VERBOSITY)
        while (status := connection.connect_poll()) not in _ENDED:
            waiting = poll()
            waiting.register(connection.socket, _EVENTS[status])
            if not waiting.poll(max(0, deadline - time.monotonic()) * 1000):
                return []
        return _SQLSTATE.findall(connection.get_error_message())
    finally:
        connection.finish()


def _libpq() -> Any:
    """Return the library that psycopg has loaded: its compiled module is linked with it."""
    module: Any = sys.modules[pq.PGconn.__module__]
    return module.impl.pq if pq.__impl__ == "python" else ctypes.CDLL(module.__file__)
