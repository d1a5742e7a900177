"""Free ports of this machine."""

import random
import socket

from holdfast.sink.contract.exits import CommandError

PORTS = range(20_000, 32_000)
"""Below the ports that Linux gives to outgoing connections, one of which could take the port of a
server while it is down."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on; raises `CommandError` if none is found."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((host, port))
            except OSError:
                continue
            return port
    raise CommandError(
        f"no free port between {PORTS.start} and {PORTS.stop}. Nothing was started. End what holds"
        " them.",
        code="no_free_port",
    )
