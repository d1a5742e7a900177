"""The SQLSTATE by which a server refuses a connection.

libpq keeps only the text of that error, in the language of the server. It writes the SQLSTATE in
place of the words where it is asked to before it connects, which psycopg has no function for.
"""

import ctypes
import re
import sys
import time
from select import POLLIN, POLLOUT, poll
from typing import Any

import psycopg
from psycopg import pq

_DENIED = ("28", "3D000", "42501")
"""The beginnings of what refuses user, password, database or `pg_hba.conf`."""

_VERBOSITY = 3
"""`PQERRORS_SQLSTATE`: severity and SQLSTATE, since libpq 12."""

_DEFAULT_SECONDS = 130
"""psycopg's own time limit of a connection that is given none."""

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
