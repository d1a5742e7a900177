"""Skipping a gap: a lane continues after decisions that are no longer stored.

A lane never skips a missing sequence by itself: a backup may bring the entry back. Entries that an
operator dropped with their day do not come back (`db prune` keeps nothing for a disabled endpoint).

A lane of an endpoint that takes some types only has no gaps: a missing entry looks like one of a
type that the endpoint does not take.
"""

from typing import NoReturn

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.dispatcher.shared.text import one_line
from holdfast.sink.contract.exits import CommandError, ExitCode

ACTION = "lane.pass"


class GapSkipper(OperatorSession):
    """Lanes that wait at a gap."""

    def pass_missing(self, subject: str, endpoint: str, reason: str) -> Row:
        """Let the lane continue with its next stored entry.

        Returns `subject`, `endpoint`, `passed_from` and `passed_to` (the sequences that are not
        stored, both included) and `next_sequence` (None: nothing is left to deliver). Raises
        `CommandError` if there is no such lane, nothing is missing at its head, a dead letter holds
        it, or it is leased; nothing is changed then.
        """
        with self._transaction():
            lane = self._maybe("subjects/lane_take", {"subject": subject, "endpoint": endpoint})
            passed = _gap(lane, subject, endpoint)
            place = {name: passed[name] for name in ("endpoint_id", "subject_id")}
            self._run("subjects/lane_pass", {**place, "passed": passed["passed_to"]})
            done = {
                "subject": subject,
                "endpoint": endpoint,
                "passed_from": passed["passed_from"],
                "passed_to": passed["passed_to"],
                "next_sequence": passed["found"],
            }
            self._audit(ACTION, f"subject {subject}", reason, done)
        return done


def unknown_lane(subject: str, endpoint: str) -> CommandError:
    """Return the error for a subject of which nothing was routed to an endpoint."""
    return CommandError(
        f"there is no lane of {one_line(subject)} at {endpoint}; nothing was changed. Names are"
        " compared exactly: see `holdfast subject list` and `holdfast endpoint list`.",
        ExitCode.NOTHING_MATCHED,
        code="unknown_lane",
    )


def _gap(lane: Row | None, subject: str, endpoint: str) -> Row:
    """Return the lane with the range of its gap; raises `CommandError` if it has none to skip."""
    where = f"the lane of {one_line(subject)} at {endpoint}"
    if lane is None:
        raise unknown_lane(subject, endpoint)
    first, next_stored = lane["delivered_sequence"] + 1, lane["found"]
    if lane["leased"]:
        raise CommandError(
            f"{where} is under way; nothing was changed. Try again in a moment.",
            ExitCode.FAILED,
            code="lane_busy",
        )
    if lane["chooses"]:
        _nothing(
            where, "nothing is missing that it waits for, as it takes only some types or streams"
        )
    if first > lane["last_sequence"] or next_stored == first:
        _nothing(
            where, "nothing is missing at its head" if next_stored else "it has nothing to deliver"
        )
    if not lane["due"]:
        raise CommandError(
            f"a dead letter holds {where}; nothing was changed. `holdfast why` says which, and what"
            " to do about it.",
            code="dead_letter_holds_lane",
        )
    return {
        **lane,
        "passed_from": first,
        "passed_to": lane["last_sequence"] if next_stored is None else next_stored - 1,
    }


def _nothing(where: str, why: str) -> NoReturn:
    raise CommandError(
        f"{where}: {why}; nothing was changed. `holdfast why` says what it waits for.",
        ExitCode.NOTHING_MATCHED,
        code="nothing_to_skip",
    )
