"""The states of a lane and every move between them, in one table.

A lane's state is not a column; it follows from four columns:

    leased    a token is set
    due       no token, `due_at` is set (perhaps in the future: a retry)
    stopped   no token, no `due_at`, and there is something to deliver: a dead letter holds it
    idle      no token, no `due_at`, and nothing to deliver

docs/delivery.md draws this table, and a test compares the two.
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from holdfast.dispatcher.shared.states import LaneState


class Move(StrEnum):
    """An event in the life of a lane."""

    ROUTE = "route"
    """A batch brought entries for it."""
    CLAIM = "claim"
    """A dispatcher took a lease and the next entries."""
    EMPTY = "empty"
    """A claim found no entry of the endpoint's types, because these were changed."""
    GAP = "gap"
    """A claim found the next entry missing; nothing is sent, and the lane is claimed again."""
    ADVANCE = "advance"
    """Everything that was sent is delivered."""
    RETRY = "retry"
    """An entry was not delivered and gets another attempt."""
    KEEP = "keep"
    """The endpoint is gone (410) and was disabled; its entries wait for it to come back."""
    RELEASE = "release"
    """Nothing was sent; no attempt counts."""
    RESCUE = "rescue"
    """The lease ended; the attempt that it covered is recorded as `unknown`."""
    BURY = "bury"
    """An entry became a dead letter and the lane waits for a person (order policy `stop`)."""
    SKIP = "skip"
    """An entry became a dead letter and the lane continues behind it (order policy `skip`)."""
    REDELIVER = "redeliver"
    """A person had the entry sent again: at once, and a dead letter with its full schedule."""
    DISMISS = "dismiss"
    """A person dismissed or reissued the dead letter; the lane continues behind it."""
    GO_ON = "go_on"
    """A person skipped the gap at its head; the lane continues behind it."""


_IDLE, _DUE, _LEASED, _STOPPED = LaneState

TRANSITIONS: dict[tuple[LaneState, Move], frozenset[LaneState]] = {
    (_IDLE, Move.ROUTE): frozenset({_DUE}),
    (_DUE, Move.ROUTE): frozenset({_DUE}),
    (_LEASED, Move.ROUTE): frozenset({_LEASED}),
    (_STOPPED, Move.ROUTE): frozenset({_STOPPED}),
    (_DUE, Move.CLAIM): frozenset({_LEASED}),
    (_DUE, Move.EMPTY): frozenset({_IDLE}),
    (_DUE, Move.GAP): frozenset({_DUE}),
    (_LEASED, Move.ADVANCE): frozenset({_DUE, _IDLE}),
    (_LEASED, Move.RETRY): frozenset({_DUE}),
    (_LEASED, Move.KEEP): frozenset({_DUE}),
    (_LEASED, Move.RELEASE): frozenset({_DUE}),
    (_LEASED, Move.RESCUE): frozenset({_DUE}),
    (_LEASED, Move.BURY): frozenset({_STOPPED}),
    (_LEASED, Move.SKIP): frozenset({_DUE, _IDLE}),
    (_STOPPED, Move.REDELIVER): frozenset({_DUE}),
    (_DUE, Move.REDELIVER): frozenset({_DUE}),
    (_STOPPED, Move.DISMISS): frozenset({_DUE, _IDLE}),
    (_DUE, Move.GO_ON): frozenset({_DUE, _IDLE}),
}
"""The target states of each move. With two, the lane is due while entries are left, else idle."""


class IllegalMoveError(ValueError):
    """The table has no such move from this state."""


def after(state: LaneState, move: Move) -> frozenset[LaneState]:
    """Return the target states of `move`; raises `IllegalMoveError` where there is none."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMoveError(f"a lane that is {state} cannot {move}") from None


def stops(move: Move) -> bool:
    """Return whether settling a lease with `move` stops the lane until a person acts."""
    return after(LaneState.LEASED, move) == {LaneState.STOPPED}


def state_of(
    token: UUID | None, due_at: datetime | None, delivered_sequence: int, last_sequence: int
) -> LaneState:
    """Return the state of a row of `lane`."""
    if token is not None:
        return LaneState.LEASED
    if due_at is not None:
        return LaneState.DUE
    return LaneState.IDLE if delivered_sequence == last_sequence else LaneState.STOPPED
