"""The command in the process of the tests says what it says in a process of its own."""

import os

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast

ADD = ("--url", "https://payouts.example/", "--secret-ref", "env:S")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status"], ExitCode.DEGRADED),
        (["stream", "show", "nobody", "--json"], ExitCode.NOTHING_MATCHED),
        (["endpoint", "add", "payouts", *ADD, "--rate", "fast"], ExitCode.USAGE),
    ],
)
def test_command_says_the_same_here_and_in_a_process_of_its_own(
    arguments: list[str], code: ExitCode, dsn: str
) -> None:
    here = holdfast(*arguments, dsn=dsn)
    there = holdfast(*arguments, dsn=dsn, process=True)
    assert (here.returncode, here.stdout, here.stderr) == (code, there.stdout, there.stderr)
    assert there.returncode == code
    assert here.stdout or here.stderr


def test_command_here_leaves_nothing_of_its_settings(dsn: str) -> None:
    before = dict(os.environ)
    done = holdfast("status", dsn=dsn, environment={"HOLDFAST_X": "1"})
    assert done.returncode == ExitCode.DEGRADED
    assert dict(os.environ) == before
    help_texts = [holdfast("db", "--help").stdout for _ in range(2)]
    assert help_texts[0] == help_texts[1] != ""
