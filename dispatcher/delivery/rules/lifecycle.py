"""The states of a lane and every move between them, in one table.

A lane's state is not a column; it follows from four that must agree anyway:

    leased    a token is set
    due       no token, `due_at` is set (perhaps in the future: a retry)
    stopped   no token, no `due_at`, and there is something to deliver: a dead letter holds it
    idle      no token, no `due_at`, and nothing to deliver

docs/delivery.md draws this table, and a test compares the two.
"""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from dispatcher.shared.states import LaneState


class Move(StrEnum):
    """What can happen to a lane."""

    ROUTE = "route"
    """A batch brought entries for it."""
    CLAIM = "claim"
    """A dispatcher took a lease and the next entries."""
    EMPTY = "empty"
    """A claim found none that the endpoint takes, because its types were changed."""
    GAP = "gap"
    """A claim found the next entry missing; nothing is sent, and the lane is looked at again."""
    ADVANCE = "advance"
    """Everything that was sent is delivered."""
    RETRY = "retry"
    """An entry was not delivered and gets another attempt."""
    KEEP = "keep"
    """The endpoint is gone (410) and was disabled; its entries wait for it to come back."""
    RELEASE = "release"
    """Nothing was sent; no attempt is charged."""
    RESCUE = "rescue"
    """The lease ran out; what it covered is booked as `unknown`."""
    BURY = "bury"
    """An entry is dead and the lane waits for a person (order policy `stop`)."""
    SKIP = "skip"
    """An entry is dead and the lane goes on behind it (order policy `skip`)."""
    REDELIVER = "redeliver"
    """A person had the entry sent again: at once, and a dead one with its whole schedule."""
    DISMISS = "dismiss"
    """A person gave up the dead entry, or had it made anew; the lane goes on behind it."""
    GO_ON = "go_on"
    """A person gave up what is missing at its head; the lane goes on behind it."""


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
"""Where a move leads. With two targets, the lane is due while entries are left, else idle."""


class IllegalMoveError(ValueError):
    """The table has no such move from this state."""


def after(state: LaneState, move: Move) -> frozenset[LaneState]:
    """Return the states that `move` may lead to; raises `IllegalMoveError` where there is none."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMoveError(f"a lane that is {state} cannot {move}") from None


def stops(move: Move) -> bool:
    """Return whether settling a lease with `move` leaves the lane to a person."""
    return after(LaneState.LEASED, move) == {LaneState.STOPPED}


def state_of(
    token: UUID | None, due_at: datetime | None, delivered_sequence: int, last_sequence: int
) -> LaneState:
    """Return the state that a row of `lane` is in."""
    if token is not None:
        return LaneState.LEASED
    if due_at is not None:
        return LaneState.DUE
    return LaneState.IDLE if delivered_sequence == last_sequence else LaneState.STOPPED
