"""The audit trail: what people did, and what a dispatcher did that people should know of."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime

from dispatcher.operators.common.session import OperatorSession, Row, operator_connection
from dispatcher.outbound.headers import masked


@dataclass(frozen=True, slots=True)
class WantedActions:
    """Which actions; None means any. All texts are compared exactly."""

    actor: str | None = None
    action: str | None = None
    """`endpoint.add`, or `endpoint` for every action that begins with `endpoint.`."""

    target: str | None = None
    """As the trail names it: an endpoint, a stream, `dead letter 7`, `replay <id>`, a key."""

    since: datetime | None = None
    """Done at this moment or later."""

    until: datetime | None = None
    """Done before this moment."""


class Audit(OperatorSession):
    """Reads of the audit trail; use `audit(dsn)` to get it."""

    def actions(
        self, wanted: WantedActions, *, limit: int, before: int | None = None
    ) -> tuple[list[Row], int | None]:
        """Return actions, the newest first, and the number before which the next page begins.

        A row has `id`, `acted_at`, `actor`, `action`, `target`, `reason` and `detail` (a mapping).
        Literal headers, which earlier versions wrote into the trail, are masked.
        The number is None where nothing is left.
        """
        given = {**asdict(wanted), "before": before, "limit": limit + 1}
        rows = self._all("audit/list", given)
        more = len(rows) > limit
        rows = [{**row, "detail": masked(row["detail"])} for row in rows]
        return rows[:limit], rows[limit - 1]["id"] if more else None


@contextmanager
def audit(dsn: str | None) -> Iterator[Audit]:
    """Connect in the operator's role; raises `CommandError` when that is not possible."""
    with operator_connection(dsn) as connection:
        yield Audit(connection)
