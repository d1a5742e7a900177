"""What operators do about endpoints and streams, and what `holdfast status` shows.

A change and its audit row commit together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from dispatcher.operators.common.session import Row, operator_connection
from dispatcher.operators.endpoints.store import EndpointStore
from dispatcher.operators.overview.attention_store import NeedsSession
from sink.contract.exits import CommandError

__all__ = ["OperatorStore", "Row", "operator_store"]

COUNTED_MAX = 100_000
"""Up to how many of a kind, and of an endpoint's lanes, are counted."""

WAITING_LOOKED_AT = 2_000


class OperatorStore(EndpointStore, NeedsSession):
    """Operator commands on an open connection; use `operator_store(dsn)` to get one."""

    def streams(self) -> list[Row]:
        """Return every stream with its newest batch."""
        return self._all("streams/list")

    def adopt(
        self,
        stream: str,
        query_id: UUID,
        reason: str,
        *,
        found_in: Callable[[str | None], UUID | None],
        force: bool,
    ) -> Row:
        """Let `stream` accept batches of `query_id` from now on; the run in progress is fenced.

        Returns `changed`: what is adopted already stays as it is. An id is believed if the stream
        has batches of it, or if `found_in` finds it in the checkpoint, whose place as the stream
        knows it is handed over; with `force` always. Raises `CommandError` for any other, when
        there is no stream, and for one of what is written by hand: it has no checkpoint.
        """
        self._known_stream(stream)
        with self._transaction():
            before = self._one("streams/take", {"stream": stream})
            acts_for = before.pop("acts_for")
            if before["query_id"] == query_id:
                return {**before, "changed": False}
            if acts_for is not None:
                raise CommandError(
                    f"stream {stream!r} holds what people write by hand for {acts_for!r} and has no"
                    " checkpoint. Nothing was changed. A job needs a stream of its own, with"
                    " another name."
                )
            if not force:
                self._believe(before, query_id, found_in(before["checkpoint"]))
            after = self._one("streams/adopt", {"stream": stream, "query_id": query_id})
            detail = {"query_id": query_id, "previous": before["query_id"]}
            self._audit("stream.adopt", stream, reason, detail)
        return {**before, **after, "changed": True}

    def _believe(self, stream: Row, query_id: UUID, found: UUID | None) -> None:
        writes = [row["name"] for row in self._all("streams/query_streams", {"query_id": query_id})]
        if stream["name"] in writes or found == query_id:
            return
        if writes:
            known = f"it writes stream {', '.join(writes)}"
        elif found is not None:
            known = f"the checkpoint that can be read from here is of query {found}"
        else:
            known = "its checkpoint cannot be read from here"
        raise CommandError(
            f"stream {stream['name']!r} has no batch of query {query_id}, and {known}. Nothing was"
            " changed. A run that was refused names its id, and so does the file `metadata` of its"
            " checkpoint: say where that is with --checkpoint DIRECTORY, or --force if you are sure"
            " of the id."
        )

    def totals(self) -> Row:
        """Return the counts that `holdfast status` shows, as of one snapshot.

        Lanes of an endpoint, dead letters and rows are counted to 100,000. What waits for the
        longest is looked for among 2,000 lanes of each endpoint that are due first, and 2,000 last.
        """
        return self._one(
            "overview/status_totals", {"most": COUNTED_MAX, "looked_at": WAITING_LOOKED_AT}
        )

    def dispatchers(self) -> list[Row]:
        """Return the dispatchers whose heartbeat is fresh."""
        return self._all("overview/status_dispatchers")


@contextmanager
def operator_store(dsn: str | None) -> Iterator[OperatorStore]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield OperatorStore(connection)
