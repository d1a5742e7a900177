"""Cancelling an entry before it leaves: it stays a link of its subject's sequence, and is not sent.

The lanes of the subject are locked, as every claim locks them. So either a claim came first, and
its lease is seen here, or it finds the entry cancelled. Routing is excluded meanwhile, because a
subject that is not routed yet has no lane.
"""

from collections.abc import Sequence

from holdfast.dispatcher.operators.cancellations.rules import (
    applies,
    begun,
    cancelled_before,
    must_pass,
    not_sent,
    refusal,
)
from holdfast.dispatcher.operators.common.session import OperatorSession, Row, actor
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key

ACTION = "entry.cancel"


class Cancellations(OperatorSession):
    """What was cancelled, by whom and why; and the change itself."""

    def of_entry(self, subject_id: int, sequence: int) -> list[Row]:
        """Return the cancellations of an entry; none before revision 0038.

        A row has `endpoint` (None: all), `cancelled_at`, `cancelled_by` and `reason`.
        """
        place = {"subject_id": subject_id, "sequence": sequence}
        return self._all("cancellations/of_entry", place) if self.known() else []

    def of_key(self, key: Key) -> list[Row]:
        """Return the cancellations of a key as `of_entry` does, also of a dropped entry."""
        return self._all("cancellations/of_key", {"key": key.digest}) if self.known() else []

    def among(self, entries: Sequence[Row]) -> dict[tuple[int, int], list[str | None]]:
        """Return the endpoints (None: all) at which entries are cancelled, by their place."""
        found: dict[tuple[int, int], list[str | None]] = {}
        if entries and self.known():
            places = {
                "subject_ids": [each["subject_id"] for each in entries],
                "sequences": [each["sequence"] for each in entries],
            }
            for row in self._all("cancellations/of_subjects", places):
                place = row["subject_id"], row["sequence"]
                found.setdefault(place, []).append(row["endpoint"])
        return found

    def known(self) -> bool:
        """Return whether the database records cancellations."""
        return bool(self._one("cancellations/known")["known"])

    def cancel(self, key: Key, entry: Row, endpoint: str | None, reason: str) -> Row:
        """Cancel an entry, a row of `Entries.entry`, at one endpoint or at all, also later ones.

        Returns `key`, `subject`, `sequence`, `type`, `occurred_at`, `endpoint` (None: all),
        `not_sent_to` (the endpoints that would have got it), `cancelled_at`, `cancelled_by` and
        `reason`. Raises `CommandError` if anything of it was begun there, if the endpoint does not
        get it, and if it is cancelled already; nothing is changed then.
        """
        sequence = entry["sequence"]
        place = {**entry["batch"], **entry, "key": key.digest}
        with self._transaction():
            self._run("cancellations/route_lock")
            self._run("cancellations/lanes_take", place)
            for each in self._all("cancellations/of_entry", place):
                if applies(each, endpoint):
                    raise cancelled_before(key.text, each)
            rows = self._standing(key, place, endpoint)
            refusal(key.text, entry["subject"], sequence, rows)
            for row in rows:
                if must_pass(row, sequence):
                    self._run("cancellations/pass", {**place, **row})
            at = rows[0]["endpoint_id"] if endpoint is not None else None
            by = {"actor": actor(), "reason": reason, "endpoint_id": at}
            made = self._one("cancellations/add", {**place, **by})
            done = {
                "key": key.text,
                "subject": entry["subject"],
                "sequence": sequence,
                "type": entry["type"],
                "occurred_at": entry["occurred_at"],
                "endpoint": endpoint,
                "not_sent_to": [row["endpoint"] for row in rows if row["takes"]],
            }
            self._audit(ACTION, f"entry {key.text}", reason, done)
        return {**done, **made, "cancelled_by": by["actor"], "reason": reason}

    def preview(self, key: Key, entry: Row, endpoint: str | None) -> list[str]:
        """Return the endpoints that would not get an entry; raises what `cancel` raises now."""
        place = {**entry["batch"], **entry}
        for each in self.of_entry(entry["subject_id"], entry["sequence"]):
            if applies(each, endpoint):
                raise cancelled_before(key.text, each)
        rows = self._standing(key, place, endpoint)
        refusal(key.text, entry["subject"], entry["sequence"], rows)
        return [row["endpoint"] for row in rows if row["takes"]]

    def _standing(self, key: Key, place: Row, endpoint: str | None) -> list[Row]:
        """Return the rows of one endpoint, which gets the entry, or of all."""
        rows = self._all("cancellations/standing", place)
        if endpoint is None:
            return rows
        found = [row for row in rows if row["endpoint"] == endpoint]
        if not found:
            raise CommandError(
                f"no endpoint is called {endpoint!r} (`holdfast endpoint list`). Nothing was"
                " changed.",
                ExitCode.NOTHING_MATCHED,
                code="unknown_endpoint",
            )
        if not found[0]["takes"] and begun(found[0], place["sequence"]) is None:
            raise not_sent(key.text, endpoint)
        return found
