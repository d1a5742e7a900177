"""Holding one subject at one endpoint: nothing of it is sent there until it is resumed.

The hold is in the lane's row, which every claim locks. So either a claim came first, and its lease
is seen here, or it finds the hold. Everything that becomes due meanwhile waits, in order.
"""

from datetime import datetime, timedelta

from holdfast.dispatcher.operators.common.session import OperatorSession, Row, actor
from holdfast.dispatcher.operators.subjects.rules import (
    FOR_EVER,
    hold_of,
    replay_warning,
    window_warning,
)
from holdfast.dispatcher.operators.subjects.skip_gap import unknown_lane
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode

HOLD, RESUME = "lane.hold", "lane.resume"

REVISION = "0037"
"""Added holds; replays of older code do not see them."""


class Holding(OperatorSession):
    """Lanes on hold."""

    def hold(self, subject: str, endpoint: str, until: datetime | None, reason: str) -> Row:
        """Hold a subject at an endpoint, or change its hold; the first moment stays.

        Returns `subject`, `endpoint`, `since`, `until` (None: until it is resumed), `before` (the
        hold that this one replaces, or None), `in_flight` and `warning`. What is in flight ends;
        nothing more is sent once it has. Raises `CommandError` if there is no such lane, or the end
        is not in the future; nothing is changed then.
        """
        with self._transaction():
            lane = self._lane(subject, endpoint)
            if until is not None and not lane["now"] < until < FOR_EVER:
                raise CommandError(
                    f"the hold would end at {rfc3339(until)}, and it is {rfc3339(lane['now'])}."
                    " Nothing was changed; give a later time, or none to hold it until it is"
                    " resumed.",
                    ExitCode.USAGE,
                    code="invalid_value",
                )
            before = hold_of(lane["hold"])
            done = {
                "subject": subject,
                "endpoint": endpoint,
                "since": before["since"] if before else lane["now"],
                "until": until,
                "before": before,
            }
            stored = {**done, "until": until or FOR_EVER}
            self._run("subjects/hold", {**lane, **stored, "by": actor(), "reason": reason})
            in_flight = self._one("subjects/hold_in_flight", lane)["in_flight"]
            self._audit(HOLD, f"subject {subject}", reason, done)
            unaware = self._unaware(REVISION)
        lasts = None if until is None else until - done["since"]
        warnings = (replay_warning(unaware), window_warning(lane["key_window_seconds"], lasts))
        return {
            **done,
            "in_flight": in_flight,
            "warning": "; ".join(filter(None, warnings)) or None,
        }

    def resume(self, subject: str, endpoint: str, reason: str) -> Row:
        """End a hold: what waits is due as long after now as it was before the hold.

        Returns `subject`, `endpoint`, `before` (the hold that ended) and `warning`. Raises
        `CommandError` if there is no such lane, or it is not on hold; nothing is changed then.
        """
        with self._transaction():
            lane = self._lane(subject, endpoint)
            before = hold_of(lane["hold"])
            if before is None:
                raise CommandError(
                    f"{one_line(subject)} is not on hold at {endpoint}; nothing was changed."
                    " `holdfast why` says what it waits for.",
                    ExitCode.NOTHING_MATCHED,
                    code="not_on_hold",
                )
            self._run("subjects/hold_end", lane)
            done = {"subject": subject, "endpoint": endpoint, "before": before}
            self._audit(RESUME, f"subject {subject}", reason, done)
        lasted = lane["now"] - before["since"] if lane["tried"] else timedelta(0)
        return {**done, "warning": window_warning(lane["key_window_seconds"], lasted)}

    def _lane(self, subject: str, endpoint: str) -> Row:
        lane = self._maybe("subjects/hold_take", {"subject": subject, "endpoint": endpoint})
        if lane is None:
            raise unknown_lane(subject, endpoint)
        return lane
