"""Text of strangers in the console: it is shown as text, and what would act is not kept."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser

import httpx
import psycopg
import pytest

from tests.support.command import holdfast
from tests.support.console.admin_api import PAGES, Api, csrf_of, filled, logged_in, world

HOSTILE = (
    """"'><svg/onload=alert(1)><a href=javascript:x hx-get=//evil>&#0;{{7919*7919}}</script>"""
)
"""What would break out of an attribute, an element, a script or a template."""

POISON = """
    UPDATE holdfast.dead_letter SET detail = %(text)s;
    UPDATE holdfast.quarantine SET detail = %(text)s, row = to_json(%(text)s::text)::text;
    UPDATE holdfast.endpoint SET state_reason = %(text)s WHERE state <> 'active';
    UPDATE holdfast.endpoint_pace SET breaker_reason = %(text)s;
    UPDATE holdfast.attempt SET response = %(text)s, error = %(text)s;
    UPDATE holdfast.subject SET name = %(text)s WHERE name = 'm_2';
    UPDATE holdfast.dispatcher_instance SET host = %(text)s, version = %(text)s;
    UPDATE holdfast.replay
        SET reason = %(text)s, filter = jsonb_build_object('subject', %(text)s::text);
    UPDATE holdfast.stream SET checkpoint = %(text)s;
    INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
        SELECT t, t, t, t, jsonb_build_object(t, t) FROM (SELECT %(text)s::text AS t) poison
"""
FILTERS = """
    /entries?before /entries?stream /entries?type /audit?actor /search?q /subjects?prefix
    /subjects/show?name /dead?reason /dead?which /login?next /replays/new?keys /replays/new?types
    /batches?stream /nowhere?x
"""


class Elements(HTMLParser):
    """The attributes of a page's elements, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what an element has."""
        self.attributes += [(tag, name, value or "") for name, value in attrs] or [(tag, "", "")]


@pytest.fixture(scope="module")
def api(server_dsn: str, template_database: str) -> Iterator[Api]:
    """A world in which every text is hostile."""
    with world(server_dsn, template_database) as api:
        with psycopg.connect(api.dsn, autocommit=True) as db:
            for statement in POISON.split(";"):
                done = db.execute(statement.encode(), {"text": HOSTILE})
                assert done.rowcount > 0, statement
        yield api


@pytest.fixture
def admin(api: Api) -> Iterator[httpx.Client]:
    with logged_in(api) as browser:
        yield browser


def _answers(admin: httpx.Client) -> Iterator[httpx.Response]:
    for path in map(filled, PAGES):
        for asked in ({}, {"body": "shown"}, {"text": "shown"}, {"subject": HOSTILE}):
            yield admin.get(path, params=asked)
    for address in FILTERS.split():
        path, name = address.split("?")
        yield admin.get(path, params={name: HOSTILE})
    csrf = csrf_of(admin.get("/audit"))
    yield admin.post("/replays", data={"csrf": csrf, "reason": HOSTILE, "types": HOSTILE})
    yield admin.post("/login", data={"token": HOSTILE})
    yield admin.get(f"/entries/{HOSTILE}")
    yield admin.get(f"/{HOSTILE}")


def test_it_is_text_wherever_it_is_shown(admin: httpx.Client) -> None:
    reply = 0
    for answer in _answers(admin):
        assert answer.status_code < 500, answer.url
        assert "62710561" not in answer.text, answer.url
        reply += "svg/onload" in unescape(answer.text)
        for element, name, value in Elements(answer.text).attributes:
            where = (answer.url, element, name, value)
            assert element != "svg/onload", where
            assert not name.startswith("on"), where
            if name in ("href", "src", "action", "hx-get", "formaction"):
                assert value.startswith(("/", "#")), where
                assert not value.startswith("//"), where
    assert reply > 20, "it was shown"


def test_reason_that_would_act_on_a_terminal_is_refused(api: Api, admin: httpx.Client) -> None:
    csrf, audited = csrf_of(admin.get("/audit")), api.audited()
    for reason in ("\x1b[2J", "a\x07", "a\rb", "\x7f"):
        form = {"csrf": csrf, "reason": reason}
        assert admin.post("/endpoints/payouts/pause", data=form).status_code == 422, reason
        asked = api.ask("POST", "/endpoints/payouts/pause", json={"reason": reason})
        assert asked.status_code == 422, reason
    assert api.audited() == audited
    form = {"csrf": csrf, "reason": "two\r\nlines"}
    assert admin.post("/endpoints/payouts/pause", data=form).status_code == 303
    assert api.audited()[-1][3] == "two\nlines"


LISTS = {
    ("entry", "list"): "key",
    ("attempt", "list"): "finished_at",
    ("subject", "list"): "name",
    ("dispatcher", "list"): "host",
    ("audit", "list"): "actor",
    ("dead-letter", "list", "--all"): "id",
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


@pytest.mark.rest
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_list_reads_well_in_a_terminal(reading: Api, columns: int) -> None:
    commands = [[*each] for each in LISTS]
    for (arguments, kept), text in zip(
        LISTS.items(), _in_a_terminal(columns, commands, reading.dsn), strict=True
    ):
        reply = json.loads(holdfast(*arguments, "--json", dsn=reading.dsn).stdout)
        [rows] = [each for each in reply.values() if isinstance(each, list)]
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


@pytest.mark.rest
def test_wide_list_has_every_column(reading: Api) -> None:
    [text] = _in_a_terminal(60, [["entry", "list", "--wide"]], reading.dsn)
    for column in ("key", "subject", "sequence", "type", "occurred at", "written at", "batch id"):
        assert column in text
    assert "not shown" not in text
