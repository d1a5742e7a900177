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
from select import POLLIN, POLLOUT, poll
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn

_DENIED = ("28", "3D000", "42501")
"""The beginnings of what refuses user, password, database or `pg_hba.conf`."""

_VERBOSITY = 3
"""`PQERRORS_SQLSTATE`: severity and SQLSTATE, since libpq 12."""

_DEFAULT_SECONDS = 130
"""psycopg's own time limit of a connection that is given none."""

_TLS = re.compile(r"certificate|private key|alert unknown ca|does not support SSL", re.IGNORECASE)
"""In libpq's and OpenSSL's errors of TLS, which are not translated in psycopg's own build."""

_AUTHENTICATION = re.compile(r"authentication method requirement|channel binding required")
"""In libpq's errors where the server would have let the login pass."""

_QUOTED = re.compile(r""""[^"\n]*"|'[^'\n]*'|«[^»\n]*»|„[^“\n]*“|“[^”\n]*”""")
"""A name in an error, in the quotation marks of the server's language: a host, a role, a file."""

_UNTRIED = "connection is bad: "
_TRIED = "connection to server "
"""Where an error has the first without the second, libpq did not get as far as to connect."""

_ATTEMPT = "\n- host: "
"""Begins the failure of each address in psycopg's error of several."""

_UNKNOWN = (
    "nobody knows this host: correct it in the DSN (or let a restart policy wait for a database"
    " that gets its name only later, as a container does)"
)

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


def unusable(error: psycopg.OperationalError) -> str | None:
    """Return what libpq says of a setting with which it does not even try to connect, else None.

    Without the setting's value: it may be a part of a password that was not escaped.
    """
    text = str(error)
    if _UNTRIED not in text or _TRIED in text:
        return None
    return _QUOTED.sub('"..."', text.partition("\n")[0].removeprefix(_UNTRIED))


def mistake(error: psycopg.OperationalError, dsn: str) -> str | None:
    """Return what is wrong with the settings of a connection that failed; None: nothing is known.

    An unknown host, a certificate that does not fit, no password where one is asked for, a
    port where something else answers. A port that refuses connections is none: a server that
    restarts refuses them, too.
    """
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return None
    if _each_failed(_TLS, str(error)):
        return "correct sslmode, sslrootcert, sslcert or sslkey of the DSN"
    if _each_failed(_AUTHENTICATION, str(error)):
        return "correct require_auth or channel_binding of the DSN"
    if error.pgconn is not None and error.pgconn.needs_password:
        return (
            "give a password: password=, in the DSN, or a passfile with a line for this server that"
            " its owner alone may read"
        )
    parts = conninfo_to_dict(dsn)
    hosts = [host for host in str(parts.get("host") or "").split(",") if host[:1] not in ("", "/")]
    if not hosts or parts.get("hostaddr"):
        return None
    if error.pgconn is None:  # psycopg found no address
        unknown = all(map(_is_unknown, hosts))
        return _UNKNOWN if unknown else None
    if len(hosts) == 1 and _is_other_service(hosts[0], error.pgconn):
        return "what answers there is no Postgres: correct host or port of the DSN"
    return None


def _each_failed(cause: "re.Pattern[str]", text: str) -> bool:
    """Return whether each host failed for a cause, at one of its addresses at least."""
    failed: dict[str, bool] = {}
    for attempt in text.split(_ATTEMPT)[1:] or [text]:
        host = attempt.partition(",")[0]
        is_cause = cause.search(_QUOTED.sub("", attempt)) is not None
        failed[host] = is_cause or failed.get(host, False)
    return all(failed.values())


def _is_unknown(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    return False


def _is_other_service(host: str, failed: PGconn) -> bool:
    """Ask for TLS as libpq does, and return whether the answer is not one of Postgres.

    Port and options are those of the connection that failed: a service file or a variable of libpq
    may have them.
    """
    options = {option.keyword: option.val for option in failed.info}
    if options.get(b"sslnegotiation") == b"direct":
        return False  # what answers there expects TLS without that request
    try:
        with socket.create_connection((host, int(failed.port)), _PROBE_SECONDS) as line:
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
