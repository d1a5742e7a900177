"""Dispatcher processes, running and crashed."""

from typing import Annotated
from uuid import UUID

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.text import span, visible

DISPATCHERS_MAX = 1000
"""Maximum number of rows; a dispatcher that ends in order removes its own."""


class Dispatchers(OperatorSession):
    """Reads of dispatchers."""

    def instances(self) -> list[Row]:
        """Return every dispatcher, the newest heartbeat first.

        A row has `id` (UUID), `host`, `pid`, `version`, `started_at`, `heartbeat_at`,
        `heartbeat_age_seconds`, `in_flight` (requests in flight at that heartbeat), `draining`, and
        `alive`: its heartbeat is less than a minute old, or the server is read-only, and the
        heartbeat was no older when it became so.
        """
        return self._all("dispatchers/list", {"limit": DISPATCHERS_MAX, **self._heartbeats()})


GROUP = verbs.Group(
    "dispatcher",
    help="Dispatcher processes, running and crashed.",
    store=Dispatchers,
    path="/dispatchers",
    tag="dispatchers",
)

_COLUMNS = ("host", "pid", "version", "state", "in_flight", "started_at", "last_heartbeat", "id")


class LivingDispatcher(TypedDict):
    """A dispatcher whose last heartbeat is less than a minute old."""

    id: UUID
    host: str
    pid: int
    version: str
    started_at: verbs.Time
    heartbeat_at: verbs.Time
    in_flight: Annotated[verbs.Count, verbs.Doc("Requests in flight at that beat.")]
    draining: bool


class Instance(LivingDispatcher):
    """A dispatcher that did not stop normally."""

    heartbeat_age_seconds: verbs.Seconds
    alive: Annotated[
        bool,
        verbs.Doc(
            "Its last heartbeat is less than a minute old, or was when the server became read-only."
        ),
    ]


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    yield verbs.Table([_seen(row) for row in page.rows], _COLUMNS, "Dispatchers")


def _seen(row: Row) -> Row:
    return {
        **row,
        "host": visible(row["host"]),
        "state": "dead" if not row["alive"] else "draining" if row["draining"] else "alive",
        "last_heartbeat": f"{span(row['heartbeat_age_seconds'])} ago",
    }


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List dispatchers, the most recent heartbeat first. Exit code 3: there are none.\n\nA"
    " dispatcher that stopped normally is not listed; one that crashed stays listed as `dead`.",
    text=_list,
    route=verbs.Route("List dispatchers."),
    rows="dispatchers",
    result=Instance,
    page=verbs.Model(
        "InstanceList", "Every dispatcher, the most recent heartbeat first; at most 1,000."
    ),
    screen=verbs.Screen("/dispatchers", "system/dispatchers.html"),
    empty="no dispatcher runs, and none crashed. Nothing was changed; `holdfast dispatch` starts"
    " one.",
)
def list_dispatchers(store: Dispatchers) -> verbs.Page:
    """Return every dispatcher, including those that crashed."""
    return verbs.Page(store.instances())
