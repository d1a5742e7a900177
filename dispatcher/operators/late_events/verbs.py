"""Events that the exposure job read and did not apply."""

from dataclasses import asdict, dataclass
from typing import Annotated

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.sink.contract.states import LateReason

_LIST = (
    *("id", "merchant_id", "event_id", "reason", "occurred_at", "watermark"),
    *("amount_minor", "currency", "stream", "written_at"),
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of events; None means any. `since`: recorded at this moment or later."""

    stream: verbs.OfStream = None
    merchant: Annotated[str | None, verbs.Param("Only this merchant.", verbs.Kind.TEXT)] = None
    reason: Annotated[
        LateReason | None, verbs.Param("Only events not applied for this reason.")
    ] = None
    since: verbs.Since = None


class LateEvents(OperatorSession):
    """Reads of events that were not applied."""

    def newest(self, wanted: Filter, *, limit: int, before: int | None = None) -> list[Row]:
        """Return events, the newest first; only those with an id below `before`.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        if wanted.stream is not None:
            self._known_stream(wanted.stream)
        return self._all("late_events/list", {**asdict(wanted), "before": before, "limit": limit})


GROUP = verbs.Group(
    "late-event",
    help="Events that the exposure job did not apply: list.",
    store=LateEvents,
)


def _list(page: verbs.Page, _: Row) -> verbs.Text:
    left_out = ("written_at", "stream", "watermark")
    yield verbs.Table(page.rows, _LIST, "Events that were not applied", left_out)


@GROUP.verb(
    "list",
    of=verbs.List,
    help="List events that were read and not applied, the newest first. Exit code 3: none match."
    "\n\n`late`: behind the cutoff of its window. `future_dated`: too far ahead of its batch."
    " `duplicate`: its id was absorbed before. `settled`: its window was published before the"
    " checkpoint began. `watermark` is the one that the batch ran with.",
    text=_list,
    rows="late_events",
    empty="no event matches: all that were read are applied, refused (`holdfast quarantine list`)"
    " or outside this filter. Nothing was changed.",
)
def list_late(
    store: LateEvents, wanted: Filter, limit: verbs.Limit = 50, before: verbs.BeforeId = None
) -> verbs.Page:
    """Return events, the newest first."""
    return verbs.page_of(store.newest(wanted, limit=limit + 1, before=before), limit)
