"""The audit trail: actions of operators, and those of dispatchers that concern operators."""

from dataclasses import asdict, dataclass
from datetime import datetime

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.outbound.operator_headers import masked


@dataclass(frozen=True, slots=True)
class WantedActions:
    """A filter of actions; None means any. Texts are compared exactly."""

    actor: str | None = None
    action: str | None = None
    """`endpoint.add`, or `endpoint` for every action that begins with `endpoint.`."""

    target: str | None = None
    """As in the trail: an endpoint, a stream, `dead letter 7`, `replay <id>`, a key."""

    since: datetime | None = None
    """Done at this moment or later."""

    until: datetime | None = None
    """Done before this moment."""


class Audit(OperatorSession):
    """The audit trail."""

    def record_read(self, action: str, target: str, detail: Row) -> None:
        """Record that the actor read `target`; `action` is a name such as `entry.read`."""
        self._audit(action, target, "asked for", detail)

    def actions(
        self, wanted: WantedActions, *, limit: int, before: int | None = None
    ) -> tuple[list[Row], int | None]:
        """Return actions, the newest first, and the `before` of the next page, None on the last.

        A row has `id`, `acted_at`, `actor`, `action`, `target`, `reason` and `detail` (a mapping).
        Literal headers, which earlier versions wrote into the trail, are masked.
        """
        given = {**asdict(wanted), "before": before, "limit": limit + 1}
        rows = self._all("audit/list", given)
        more = len(rows) > limit
        rows = [{**row, "detail": masked(row["detail"])} for row in rows]
        return rows[:limit], rows[limit - 1]["id"] if more else None
