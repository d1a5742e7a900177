"""A stream that gets another name: in the ledger, and wherever it is named.

Who reads a stream's name and writes by it later keeps the name meanwhile: by a lock of the stream's
row, `FOR KEY SHARE` at least; who chooses the streams of an endpoint, of which one may not exist
yet, by the advisory lock of `streams/rename_lock`.
"""

from uuid import UUID

import psycopg

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.text import display
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.requeue import ENDINGS, is_stream, query_id_of, stream_of
from holdfast.sink.contract.roles import STREAM_PREFIX, application_of


class Renaming(OperatorSession):
    """Renames streams. Audit rows of before keep the old name; the one of the rename has both."""

    def preview(self, old: str, new: str) -> Row:
        """Return what `rename` would change: `name`, `previous_name`, `batches`, ...

        Raises `CommandError` for an unknown stream, one of entries written by hand, and one that a
        sink is connected to; for a new name that is invalid, in use or of another stream before;
        and where other logins could write the stream under its new name.
        """
        if not is_stream(new) or new.endswith(ENDINGS):
            raise CommandError(
                f"{new!r} cannot be the name of a job's stream: expected 1 to 63 of a-z 0-9 _ . -,"
                f" the first a letter or a digit, and no {' or '.join(ENDINGS)} at its end. Nothing"
                " was changed.",
                ExitCode.USAGE,
                code="invalid_name",
            )
        self._require_own(old)
        names = self._names(old, new)
        before, after, _ = map(list, zip(*names, strict=True))
        facts = self._one(
            "streams/rename_facts",
            {"stream": old, "name": new, "old": before, "new": after, "prefix": STREAM_PREFIX},
        )
        if facts["taken"]:
            raise CommandError(
                f"stream {old!r} cannot be called {new!r}: that name, or one for what people write"
                f" by hand for it, is or was that of {', '.join(facts['taken'])}. Nothing was"
                " changed; choose another one.",
                code="name_taken",
            )
        if facts["loses_role"]:
            raise CommandError(
                f"only members of the role {STREAM_PREFIX}{old} write stream {old!r}, and each sink"
                f" could write it as {new!r}. Nothing was changed; run `holdfast db stream-role"
                f" {new}`, and grant that role to the login of the job first.",
                code="stream_role_missing",
            )
        self._require_stopped(old, before)
        return {
            "name": new,
            "previous_name": old,
            "batches": facts["batches"],
            "endpoints": facts["endpoints"],
            "by_hand": {before: after for before, after, _ in names[1:]},
        }

    def rename(self, old: str, new: str, reason: str) -> Row:
        """Rename a stream, and return and raise what `preview` does."""
        with self._transaction():
            self._run("streams/rename_time")
            self._run("streams/rename_lock")
            self._run("streams/rename_take", {"stream": old})
            row = self.preview(old, new)
            before, after, queries = zip(*self._names(old, new), strict=True)
            renamed = {"old": list(before), "new": list(after), "queries": list(queries)}
            self._audit("stream.rename", new, reason, row)
            try:
                self._run("streams/rename", renamed)
            except psycopg.errors.UniqueViolation:
                raise CommandError(
                    f"stream {old!r} cannot be called {new!r}: a sink began a stream of that name"
                    " meanwhile. Nothing was changed; choose another one.",
                    code="name_taken",
                ) from None
        return row

    def _require_own(self, stream: str) -> None:
        acts_for = self._take_stream(stream)["acts_for"]
        if acts_for is not None:
            raise CommandError(
                f"stream {stream!r} holds decisions written by hand for {acts_for!r}, and gets its"
                " name with that one. Nothing was changed.",
                code="stream_written_by_hand",
            )

    def _names(self, old: str, new: str) -> list[tuple[str, str, UUID | None]]:
        """Return the old and the new name of a stream and of those written by hand for it.

        The query id of the latter is derived from the name, so it changes too.
        """
        by_hand = {row["name"] for row in self._all("streams/rename_by_hand", {"stream": old})}
        names: list[tuple[str, str, UUID | None]] = [(old, new, None)]
        for before, after, _ in names:  # it grows: entries written by hand can be reissued
            names += [
                (stream_of(before, ending), stream_of(after, ending), query_id_of(after, ending))
                for ending in ENDINGS
                if stream_of(before, ending) in by_hand
            ]
        return names

    def _require_stopped(self, stream: str, names: list[str]) -> None:
        # With those that nothing is written to yet: a command may be about to begin one.
        by_hand = [stream_of(name, ending) for name in names for ending in ENDINGS]
        applications = [application_of(name) for name in (*names, *by_hand)]
        sessions = self._all("streams/rename_sessions", {"applications": applications})
        if sessions:
            first = sessions[0]
            raise CommandError(
                f"a sink is connected that writes stream {stream!r}: user {first['user']} from"
                f" {first['address'] or 'this machine'} since {display(first['since'])}, process"
                f" {first['pid']} of the server. Nothing was changed; stop the job, then rename the"
                " stream.",
                code="stream_in_use",
            )
