"""Every list in a terminal of 60, 80 and 120 columns: no key is cut, and each column is named."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

from tests.support.command import holdfast
from tests.support.console.admin_api import Api

pytestmark = pytest.mark.rest

LISTS = {
    ("entries", "list"): "key",
    ("attempts", "list"): "finished_at",
    ("subjects", "list"): "name",
    ("dispatchers", "list"): "host",
    ("audit", "list"): "actor",
    ("dead", "list", "--all"): "id",
    ("quarantine", "list", "--all"): "id",
    ("suppressed", "list"): "key",
    ("replay", "list"): "state",
    ("endpoint", "list"): "name",
    ("stream", "list"): "name",
    ("batch", "list", "payouts"): "batch_id",
    ("token", "list"): "name",
}
"""Each list, and a column that no terminal leaves out."""

_KEY_OR_TIME = re.compile(r"hf_[0-9a-f]*|\d{4}-\d\d-\d\dT[0-9:.Z]*")
_WHOLE = re.compile(r"hf_[0-9a-f]{32}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

_RUN = """
import sys, json
from holdfast.dispatcher.cli.main import main
for arguments in json.loads(sys.argv[1]):
    print("\\x1f", flush=True)
    sys.argv = ["holdfast", *arguments]
    try:
        main()
    except SystemExit:
        pass
"""


def _in_a_terminal(columns: int, commands: list[list[str]], dsn: str) -> list[str]:
    """Run commands in one process on a real terminal so wide; what it shows of each."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**plain, "HOLDFAST_DSN": dsn, "TERM": "xterm", "NO_COLOR": "1"},
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:
            pass  # Linux: the other end was closed
        finally:
            process.kill()
            os.close(ours)
    return seen.decode().replace("\r\n", "\n").split("\x1f\n")[1:]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_list_reads_well_in_a_terminal(reading: Api, columns: int) -> None:
    commands = [[*each] for each in LISTS]
    for (arguments, kept), text in zip(
        LISTS.items(), _in_a_terminal(columns, commands, reading.dsn), strict=True
    ):
        told = json.loads(holdfast(*arguments, "--json", dsn=reading.dsn).stdout)
        [rows] = [each for each in told.values() if isinstance(each, list)]
        assert rows, arguments
        shown = re.sub(r"\x1b\[[0-9;]*m", "", text)
        lines = shown.splitlines()
        table = [line for line in lines if line[:1] in set("┏┃┡│└") or "not shown" in line]
        assert all(len(line) <= columns for line in table), shown
        assert table or "\n  " in shown, shown  # without a table, a record for each row
        words = [word for line in lines for word in _KEY_OR_TIME.findall(line)]
        assert [word for word in words if not _WHOLE.fullmatch(word)] == [], shown
        assert kept.replace("_", " ") in shown.lower()
        # No column is so narrow that its heading is written a letter or two a line.
        cells = [cell for line in lines if "┃" in line for cell in line.split("┃")]
        narrow = {cell.strip() for cell in cells if re.fullmatch(r" [a-z]{1,2} +", cell)}
        assert narrow <= {"id"}, shown


def test_wide_list_has_every_column(reading: Api) -> None:
    [text] = _in_a_terminal(60, [["entries", "list", "--wide"]], reading.dsn)
    for column in ("key", "subject", "sequence", "type", "occurred at", "written at", "batch id"):
        assert column in text
    assert "not shown" not in text
