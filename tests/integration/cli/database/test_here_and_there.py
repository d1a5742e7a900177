"""The command in the process of the tests says what it says in a process of its own."""

import os

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.world import World

ADD = ("--url", "https://payouts.example/", "--secret-ref", "env:S")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status"], ExitCode.DEGRADED),
        (["stream", "show", "nobody", "--json"], ExitCode.NOTHING_MATCHED),
        (["endpoint", "add", "payouts", *ADD, "--rate", "fast"], ExitCode.USAGE),
    ],
)
def test_command_says_same_in_process(world: World, arguments: list[str], code: ExitCode) -> None:
    done = world.holdfast(*arguments)
    result = holdfast(*arguments, dsn=world.dsn, process=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, result.stdout, result.stderr)
    assert result.returncode == code
    assert done.stdout or done.stderr


def test_command_here_leaves_nothing_of_its_settings(dsn: str) -> None:
    before = dict(os.environ)
    holdfast("status", dsn=dsn, environment={"HOLDFAST_X": "1"}, code=ExitCode.DEGRADED)
    assert dict(os.environ) == before
    help_texts = [holdfast("db", "--help").stdout for _ in range(2)]
    assert help_texts[0] == help_texts[1] != ""
