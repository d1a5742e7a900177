"""The audit trail: actions of operators, and those of dispatchers that concern operators."""

from dataclasses import asdict, dataclass
from typing import Annotated

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.operators.common.verbs import Kind, Param, Since, Until
from holdfast.dispatcher.outbound.operator_headers import masked

ACTION = "`endpoint.add`, or `endpoint` for all actions that begin with it."


@dataclass(frozen=True, slots=True)
class Actions:
    """A filter of actions; None means any. Texts are compared exactly."""

    actor: Annotated[
        str | None, Param("Only actions of this actor.", Kind.TEXT, label="Who", hint="token alice")
    ] = None
    action: Annotated[
        str | None, Param(ACTION, Kind.TEXT, label="Action", hint="endpoint, or replay.apply")
    ] = None
    target: Annotated[
        str | None,
        Param(
            "Only actions on this target, as the trail names it.",
            Kind.TEXT,
            label="On what",
            hint="dead letter 7",
        ),
    ] = None
    since: Since = None
    until: Until = None


class Audit(OperatorSession):
    """The audit trail."""

    def record_read(self, action: str, target: str, detail: Row) -> None:
        """Record that the actor read `target`; `action` is a name such as `entry.read`."""
        self._audit(action, target, "asked for", detail, changes=False)

    def actions(
        self, filter_: Actions, *, limit: int, before: int | None = None
    ) -> tuple[list[Row], int | None]:
        """Return actions, the newest first, and the `before` of the next page, None on the last.

        A row has `id`, `acted_at`, `actor`, `action`, `target`, `reason` and `detail` (a mapping).
        Literal headers, which earlier versions wrote into the trail, are masked.
        """
        parameters = {**asdict(filter_), "before": before, "limit": limit + 1}
        rows = self._all("audit/list", parameters)
        more = len(rows) > limit
        rows = [{**row, "detail": masked(row["detail"])} for row in rows]
        return rows[:limit], rows[limit - 1]["id"] if more else None
