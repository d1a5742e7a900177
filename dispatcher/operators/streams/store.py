"""Streams, their batches and diverged replays; adoption of another checkpoint."""

from collections.abc import Callable
from uuid import UUID

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.sink.contract.acceptance import accepted_query_id
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.source_offsets import ranges, readable_offsets

NEWEST_BATCHES = 5
"""Number of batches that `stream` returns."""

UNDELIVERED_MAX: Row = {"lanes": 500, "entries": 100}
"""What is scanned for each endpoint: lanes of a kind, and entries of each lane."""


class Streams(OperatorSession):
    """Streams and their ledgers."""

    def streams(self) -> list[Row]:
        """Return every stream with its newest batch."""
        return self._all("streams/list")

    def stream(self, name: str) -> Row:
        """Return a stream with its totals, checkpoints, newest batches, backlog and quarantine.

        `undelivered` is a lower bound when its `complete` is false: an endpoint then has more than
        500 waiting lanes of a kind, or 100 entries of one lane.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        row = self._stream(name)
        by_name: Row = {"stream": name}
        return {
            **row,
            "checkpoints": self.checkpoints(name),
            "newest_batches": self.batches(name, row["query_id"], limit=NEWEST_BATCHES),
            "undelivered": self._all("streams/undelivered", {**by_name, **UNDELIVERED_MAX}),
            "open_quarantine": self._all("streams/quarantined", by_name),
            "divergences": self.divergences(name),
        }

    def checkpoints(self, stream: str) -> list[Row]:
        """Return the checkpoints that wrote to a stream, as `stream` does."""
        by_name = {"stream": stream}
        added = {
            accepted_query_id(row["query_id"], row["digest"])
            for row in self._all("streams/accepted", by_name)
        }
        rows = self._all("streams/checkpoints", by_name)
        return [row for row in rows if row["query_id"] not in added]

    def divergences(self, stream: str) -> list[Row]:
        """Return the newest 20 replays of its batches that diverged, as `stream` does."""
        return self._all("streams/divergences", {"stream": stream})

    def query_id(self, stream: str, named_id: UUID | None) -> UUID | None:
        """Return the checkpoint of a command: the one given, else the adopted one.

        None when the stream has not adopted any. Raises `CommandError` for an unknown stream.
        """
        adopted: UUID | None = self._stream(stream)["query_id"]
        return named_id or adopted

    def page(
        self, stream: str, named_id: UUID | None, *, limit: int, before: int | None
    ) -> tuple[UUID | None, list[Row]]:
        """Return the checkpoint, as `query_id` does, and its newest batches, as `batches` does.

        Raises `CommandError` (nothing matched) for an unknown checkpoint.
        """
        meant = self.query_id(stream, named_id)
        rows = self.batches(stream, meant, limit=limit, before=before)
        if rows or named_id is None or named_id == self.query_id(stream, None):
            return meant, rows
        known = [str(row["query_id"]) for row in self.checkpoints(stream)]
        if str(named_id) not in known:
            raise CommandError(
                f"stream {stream!r} has no batch of query {named_id};"
                + (f" it has batches of {', '.join(known)}." if known else " it has no batch.")
                + " Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_query",
            )
        return meant, rows

    def batches(
        self, stream: str, query_id: UUID | None, *, limit: int, before: int | None = None
    ) -> list[Row]:
        """Return the newest batches of a checkpoint, all with ids below `before`."""
        return self._all(
            "streams/batch_list",
            {"stream": stream, "query_id": query_id, "before": before, "limit": limit},
        )

    def batch(self, stream: str, batch_id: int, named_id: UUID | None) -> Row:
        """Return a batch's ledger row, and the delivery and quarantine of its rows.

        Raises `CommandError` (nothing matched) when it was not written.
        """
        row = self._batch(stream, batch_id, named_id)
        return {
            **with_offsets(row),
            "types": self._all("streams/batch_types", row),
            "delivery": self._all("streams/batch_delivery", row),
            "refused": self._all("streams/batch_quarantined", row),
            "divergences": self._divergences(row),
        }

    def divergence(
        self, stream: str, batch_id: int, named_id: UUID | None, *, number: int | None, limit: int
    ) -> Row:
        """Return a batch with one of its diverged replays, the newest unless `number` names one.

        `rows` are at most `limit` of the kept ones. Raises `CommandError` (nothing matched) when
        the batch was not written or no replay of it diverged.
        """
        batch = self._batch(stream, batch_id, named_id)
        divergences = self._divergences(batch)
        chosen = [each for each in divergences if number in (None, each["id"])]
        if not chosen:
            raise CommandError(
                f"nothing diverged: no replay of batch {batch_id} of stream {stream!r}"
                f" (query {batch['query_id']})"
                + (f" has the id {number}." if divergences else " brought other content.")
                + " Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
                code="no_divergence",
            )
        rows = self._all(
            "streams/divergence_rows", {**batch, "id": chosen[0]["id"], "limit": limit}
        )
        return {
            "batch": with_offsets(batch),
            "divergence": chosen[0],
            "others": [each["id"] for each in divergences if each is not chosen[0]],
            "rows": [_comparable(row) for row in rows],
        }

    def adopt(
        self,
        stream: str,
        query_id: UUID,
        reason: str,
        *,
        found_in: Callable[[str | None], UUID | None],
        force: bool,
    ) -> Row:
        """Make `stream` accept batches of `query_id` from now on; the run in progress is fenced.

        The result has `changed`, false if the id is adopted already. An id is accepted if the
        stream has batches of it, if `found_in` finds it in the checkpoint (it gets the path that
        the stream has on record), or with `force`. Raises `CommandError` for any other id, for an
        unknown stream, and for a stream of decisions written by hand, which has no checkpoint.
        """
        with self._transaction():
            before = self._take_stream(stream)
            acts_for = before.pop("acts_for")
            if before["query_id"] == query_id:
                return {**before, "changed": False}
            if acts_for is not None:
                raise CommandError(
                    f"stream {stream!r} holds decisions written by hand for {acts_for!r} and has no"
                    " checkpoint. Nothing was changed. A job needs a stream of its own, with"
                    " another name.",
                    code="stream_written_by_hand",
                )
            if not force:
                self._require_known(before, query_id, found_in(before["checkpoint"]))
            after = self._one("streams/adopt", {"stream": stream, "query_id": query_id})
            detail = {"query_id": query_id, "previous": before["query_id"]}
            self._audit("stream.adopt", stream, reason, detail)
        return {**before, **after, "changed": True}

    def _require_known(self, stream: Row, query_id: UUID, readable: UUID | None) -> None:
        writes = [row["name"] for row in self._all("streams/query_streams", {"query_id": query_id})]
        if stream["name"] in writes or readable == query_id:
            return
        if writes:
            known = f"it writes stream {', '.join(writes)}"
        elif readable is not None:
            known = f"the checkpoint that can be read from here is of query {readable}"
        else:
            known = "its checkpoint cannot be read from here"
        raise CommandError(
            f"stream {stream['name']!r} has no batch of query {query_id}, and {known}. Nothing was"
            " changed. A refused run names its id, and so does the file `metadata` of its"
            " checkpoint: give its path with --checkpoint DIRECTORY, or --force if you are sure of"
            " the id.",
            code="unproven_query",
        )

    def _divergences(self, batch: Row) -> list[Row]:
        """Return the diverged replays of a batch; `added` is the ledger's row of an accepted one.

        It is None until the job has brought that replay again.
        """
        rows = self._all("streams/divergence_list", batch)
        for row in rows:
            row["added"] = None
            if row["accepted_at"] is not None:
                query_id = accepted_query_id(batch["query_id"], bytes.fromhex(row["digest"]))
                added = self._maybe("streams/batch_find", batch | {"query_id": query_id})
                row["added"] = added and with_offsets(added)
        return rows

    def _stream(self, name: str) -> Row:
        self._known_stream(name)
        return self._one("streams/show", {"stream": name})

    def _batch(self, stream: str, batch_id: int, named_id: UUID | None) -> Row:
        by_id = {
            "stream": stream,
            "batch_id": batch_id,
            "query_id": self.query_id(stream, named_id),
        }
        row = self._maybe("streams/batch_find", by_id)
        if row is not None:
            return row
        elsewhere = [str(row["query_id"]) for row in self._all("streams/batch_elsewhere", by_id)]
        advice = (
            f"it is there under --query-id {', '.join(elsewhere)}"
            if elsewhere
            else f"see `holdfast batch list {stream}`"
        )
        raise CommandError(
            f"batch {batch_id} of stream {stream!r} (query {by_id['query_id'] or 'none'}) was never"
            f" written; {advice}. Nothing was changed.",
            ExitCode.NOTHING_MATCHED,
            code="unknown_batch",
        )


def _comparable(row: Row) -> Row:
    """Return a row with the key as receivers get it, and the stored sequence in the replay's body.

    A replay assigns no sequence, so its body has `"sequence":null`. With the stored sequence in its
    place, the two bodies differ only where the content does.
    """
    body, sequence = row["body_now"], row["sequence"]
    if body is not None and sequence is not None:
        body = body.replace(',"sequence":null,', f',"sequence":{sequence},', 1)
    return {**row, "key": Key(row["key"]).text, "body_now": body}


def with_offsets(row: Row) -> Row:
    """Return a row of `batch_find` with its source offsets read, and `ranges`: what it read."""
    shown = {name: row[name] for name in row if name != "offsets_before"}
    text = row["source_offsets"]
    offsets = readable_offsets(text)
    if offsets is not None:
        offsets["ranges"] = ranges(row["offsets_before"], text, row["batch_id"])
    return shown | {"source_offsets": offsets}
