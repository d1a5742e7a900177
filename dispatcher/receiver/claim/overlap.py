"""Several blocks open on one connection, and the rollback of those that overlap. No I/O.

They share one transaction; each is a savepoint inside those that began before it. A block that ends
while a later one is open would commit or roll back part of the later one. So neither is kept: both
are rolled back, at the end of the last of them, because until then a task may still write on the
connection.
"""

from dataclasses import dataclass, field

from holdfast.receiver.errors import TakenBack
from holdfast.receiver.message.receipt import Receipt


@dataclass(slots=True, eq=False)
class Frame:
    """One open block: the messages that begin, commit and undo it."""

    open: bytes
    close: bytes
    undo: bytes
    owns_transaction: bool
    receipt: Receipt = field(init=False)
    overlaps: bool = False
    """It overlaps with another block, so nothing of it is kept."""
    inner: list[Receipt] = field(default_factory=list)
    """Receipts of successful blocks nested in this one; its rollback undoes them too."""

    def take_back(self) -> None:
        """Mark its receipt, and those of the blocks nested in it, as taken back."""
        for receipt in (self.receipt, *self.inner):
            receipt.taken_back = True


def must_be_free(frames: list[Frame]) -> None:
    """Raise `TakenBack` if the connection's transaction is about to be rolled back."""
    if frames and frames[-1].overlaps:
        raise TakenBack(
            "the transaction on this connection is being rolled back, because deliveries on it"
            " overlapped. Nothing was kept; use one connection per task"
        )


def left(frames: list[Frame], frame: Frame, *, in_turn: bool) -> bool:
    """Remove `frame` from the open ones; returns whether the end of another block undoes it.

    `in_turn`: by the driver's count, its transactions were properly nested.
    """
    place = frames.index(frame)
    del frames[place]
    later = frames[place:]
    if later or not in_turn:
        frame.overlaps = True
    if not frame.overlaps:
        return False
    for each in later:
        # Undo from the first begin, which includes everything after it.
        each.undo, each.owns_transaction = frame.undo, frame.owns_transaction
        each.overlaps = True
    return bool(later) or (place > 0 and frames[place - 1].overlaps)


def kept(frames: list[Frame], frame: Frame) -> None:
    """Add the receipts of a successful `frame` to the enclosing block, if there is one."""
    if frames:
        frames[-1].inner += [frame.receipt, *frame.inner]


def overlapped() -> TakenBack:
    """Return the error of a successful block that overlapped with another."""
    return TakenBack(
        "another delivery or transaction on this connection overlapped with the block without"
        " being nested. Neither was kept; use one connection per task"
    )
