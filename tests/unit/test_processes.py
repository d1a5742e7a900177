"""Finding processes while others end."""

import subprocess
import sys

import psutil

from tests.support.processes import matching


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
