"""Blocks that are open on one connection at once, and what becomes of those that overlap. No I/O.

All of them are in one transaction, each a savepoint inside of those that began before it. One that
ends while a later one is open would commit the beginning of that one, or take it back from under
it, so then neither is kept: both are taken back, with the last message of those that are concerned,
because what a task still does on the connection has to be undone as well.
"""

from dataclasses import dataclass, field

from dispatcher.receiver.errors import TakenBack
from dispatcher.receiver.message.receipt import Receipt


@dataclass(slots=True, eq=False)
class Frame:
    """One open block: the messages that begin, keep and undo it."""

    open: bytes
    close: bytes
    undo: bytes
    owns_transaction: bool
    receipt: Receipt = field(init=False)
    overlaps: bool = False
    """Another block was open across its end, or its end across another's: it keeps nothing."""
    inner: list[Receipt] = field(default_factory=list)
    """Of blocks that began and ended well inside of this one: what undoes it undoes them."""

    def take_back(self) -> None:
        """Note that there is nothing to answer, neither here nor for what ended inside."""
        for receipt in (self.receipt, *self.inner):
            receipt.taken_back = True


def must_be_free(frames: list[Frame]) -> None:
    """Raise `TakenBack` where what is open on the connection is going to be undone."""
    if frames and frames[-1].overlaps:
        raise TakenBack(
            "the transaction on this connection is being taken back, because deliveries on it"
            " overlapped. Nothing was kept; give each task a connection of its own"
        )


def left(frames: list[Frame], frame: Frame, *, in_turn: bool) -> bool:
    """Take `frame` out of the open ones; returns whether a later end undoes what it did.

    `in_turn` is whether transactions of the driver's ended inside of each other, as it counts.
    """
    place = frames.index(frame)
    del frames[place]
    later = frames[place:]
    if later or not in_turn:
        frame.overlaps = True
    if not frame.overlaps:
        return False
    for each in later:
        # What began first is undone, and all that came behind it with it.
        each.undo, each.owns_transaction = frame.undo, frame.owns_transaction
        each.overlaps = True
    return bool(later) or (place > 0 and frames[place - 1].overlaps)


def kept(frames: list[Frame], frame: Frame) -> None:
    """Note with the block around `frame`, where there is one, that `frame` ended well inside."""
    if frames:
        frames[-1].inner += [frame.receipt, *frame.inner]


def overlapped() -> TakenBack:
    """Return what a block raises that ended well and overlapped with another."""
    return TakenBack(
        "another delivery or transaction on this connection began in the block and did not end in"
        " it, or the other way round, so that neither was kept: give each task a connection of its"
        " own"
    )
