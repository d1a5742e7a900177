"""Servers of the tests end with nothing left open; processes are found while others end."""

import gc
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing

import psutil
import pytest

from holdfast.deploy.local.ports import free_port
from tests.support.dispatch.webhooks import WebhookReceiver, listening
from tests.support.processes import matching
from tests.support.servers.certificates import Authority
from tests.support.servers.fault_proxy import FaultProxy

Server = AbstractContextManager[WebhookReceiver | FaultProxy]
ROUNDS = 30
"""Whether a connection is lost depends on where the end falls between two steps of the loop."""


def _proxy() -> Server:
    return FaultProxy.before_port(free_port())


@pytest.mark.parametrize(
    "server",
    [listening, lambda: listening(Authority().server()), _proxy],
    ids=["receiver", "receiver with TLS", "proxy"],
)
def test_connection_of_the_last_moment_is_closed(server: Callable[[], Server]) -> None:
    gc.collect()
    gc.freeze()  # what other tests hold need not be walked through each time
    with warnings.catch_warnings(record=True) as warned, ExitStack() as stack:
        stack.callback(gc.unfreeze)
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(ROUNDS):
            with (
                server() as running,
                closing(socket.create_connection(("127.0.0.1", running.port))),
            ):
                pass
            gc.collect()
    assert [str(warning.message) for warning in warned] == []


def test_process_that_ends_while_listing_is_left_out() -> None:
    this = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ends:
        gone = psutil.Process(ends.pid)
    assert matching([gone, this], lambda each: each.name()) == [this]


def test_zombie_is_left_out() -> None:
    this = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as ends:
        assert ends.stdout
        ends.stdout.read()  # until it has ended
        zombie = psutil.Process(ends.pid)
        assert matching([zombie, this], lambda each: each.cmdline()) == [this]
