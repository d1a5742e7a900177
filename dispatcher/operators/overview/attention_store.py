"""What needs a person, as `holdfast status` and `holdfast overview` tell it: one look for both."""

from itertools import groupby
from operator import itemgetter

from dispatcher.operators.common.session import OperatorSession, Row
from dispatcher.operators.overview.attention import overview_needs

COUNTED_MAX = 100_000
"""Up to how many of a kind are counted."""

DEAD_LOOKED_AT = 2_000
"""Behind how many open dead letters a stopped lane is looked for."""

SNAPSHOTS_LOOKED_AT = 10

STALE_LOOKED_AT = 100
"""How many of the newest `stale` answers of a day are looked at."""


class NeedsSession(OperatorSession):
    """A session that can say what needs a person."""

    def needs(self) -> list[Row]:
        """Return what needs a person: `kind` (a `NeedKind`), `count`, `sentence`, `command`.

        The most urgent comes first. Counts end at 100,000; lanes that are stopped are those of the
        first 2,000 dead letters, stale answers the newest 100 of the last 24 h.
        """
        with self._transaction():
            return self._needs(self._counts(), self._all("overview/endpoints"))

    def _counts(self) -> Row:
        limits = {"most": COUNTED_MAX, "dead_looked_at": DEAD_LOOKED_AT}
        return self._one("overview/counts", limits)

    def _needs(self, counts: Row, endpoints: list[Row]) -> list[Row]:
        """Look at the rest; what comes later in this transaction has the rights of the login."""
        stale, days_ahead = self._stale(), self._one("days_ahead")["days"]
        # What is to be seen of other sessions belongs to the login, not to the role.
        self._run("common/login")
        snapshots = self._all("database/snapshots", {"limit": SNAPSHOTS_LOOKED_AT})
        around = {"endpoints": endpoints, "days_ahead": days_ahead, "snapshots": snapshots}
        return [need.row() for need in overview_needs({**counts, **stale, **around})]

    def _stale(self) -> Row:
        """Return the endpoints, one for each decision, that called one stale without a reason.

        What explains it is what explains it to `holdfast receipts`.
        """
        rows = self._all("overview/stale", {"most": STALE_LOOKED_AT})
        unexplained: list[str] = []
        for endpoint_id, found in groupby(rows, key=itemgetter("endpoint_id")):
            name_of = {(row["subject"], row["sequence"]): row["endpoint"] for row in found}
            asked = {
                "endpoint_id": endpoint_id,
                "subjects": [subject for subject, _ in name_of],
                "sequences": [sequence for _, sequence in name_of],
            }
            explained = self._all("receipts/overtaken", asked)
            left = name_of.keys() - {(row["subject"], row["sequence"]) for row in explained}
            unexplained += [name_of[each] for each in left]
        return {"stale": unexplained, "stale_complete": len(rows) < STALE_LOOKED_AT}
