"""What is wrong, read in one snapshot at a cost that does not grow with the outbox."""

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.overview.rules import UNDELIVERED_MINUTES, overview_needs
from holdfast.dispatcher.operators.overview.store import COUNTED_MAX, Overview
from holdfast.dispatcher.operators.triage import rules
from holdfast.sink.contract.roles import application_of

SCANNED = 2_000
"""Entries of an endpoint whose money is added up, and dead letters of it that are read."""


class Triage(OperatorSession):
    """What is wrong, in order of harm."""

    def report(self, undelivered_minutes: int = UNDELIVERED_MINUTES) -> Row:
        """Return `at` and `findings`, the most harmful first, as `rules.Finding` has them.

        Subjects are counted to 100,000 an endpoint; money is that of its 2,000 oldest waiting
        entries; dead letters are the first 2,000 of each endpoint.
        """
        with self._transaction():
            limits = {"most": COUNTED_MAX, "scanned": SCANNED}
            more: Row = {
                "waiting": self._all("triage/waiting", limits),
                "dead": self._all("triage/dead", limits),
                "oldest": self._one("triage/oldest", limits),
                "stopped_jobs": self._stopped_jobs(),
            }
            facts = self.beside(Overview).facts(undelivered_minutes) | more
        made = rules.findings(facts, overview_needs(facts))
        return {"at": more["oldest"]["at"], "findings": [each.row() for each in made]}

    def _stopped_jobs(self) -> list[Row]:
        ages = {"least": rules.SILENT_SECONDS, "most": rules.RETIRED_SECONDS}
        silent = self._all("triage/streams", ages)
        names = [application_of(row["name"]) for row in silent]
        alive = {row["name"] for row in self._all("triage/sinks", {"names": names})}
        return [row for row in silent if application_of(row["name"]) not in alive]
