"""Compares what was sent with what was applied, page by page: memory holds one page of each side.

First, each page of this side queries the receiver for its keys, at any processing time: a correct
receiver knows every key that this side has delivered. Then the receiver's own keys of that time
range are looked up here, if it can list them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from holdfast.dispatcher.operators.receipts.rules import (
    Finding,
    Here,
    Tally,
    called_stale,
    compare,
    stale_finding,
)
from holdfast.dispatcher.operators.receipts.store import Sent, Wanted
from holdfast.dispatcher.outbound.inquiry_answer import There

Watch = Callable[[Tally, int | None], None]
"""Called after each page with the findings so far, and the id of the last compared subject."""


class Receiver(Protocol):
    """The receiver's side of a comparison."""

    def known(self, keys: Sequence[str]) -> dict[str, There]:
        """Return what the receiver knows of `keys`."""
        ...


class ListingReceiver(Receiver, Protocol):
    """A receiver that can also list the keys that it processed."""

    def received(self, wanted: Wanted) -> Iterator[list[There]]:
        """Yield pages of the keys that it first processed in a time range."""
        ...


def count_receipts(sent: Sent, wanted: Wanted, tally: Tally, watch: Watch) -> None:
    """Count deliveries with and without a verified receipt, without a query to the receiver."""
    for place, page in sent.pages(wanted):
        overtaken = _overtaken(sent, wanted, [each for each in page if called_stale(each, None)])
        for here in page:
            tally.sent(here)
            if here.delivered and here.proof is None:
                tally.found(Finding.NO_RECEIPT, here, None)
            elif called_stale(here, None):
                explained = (here.subject, here.sequence) in overtaken
                tally.found(stale_finding(overtaken=explained), here, None)
        watch(tally, place)


def compare_sent(
    sent: Sent, receiver: Receiver, wanted: Wanted, tally: Tally, watch: Watch
) -> None:
    """Look up at the receiver what was tried in the time range, and what is in flight."""
    for place, page in sent.pages(wanted):
        _compare(page, sent, receiver, wanted, tally)
        watch(tally, place)
    _compare(sent.in_flight(wanted), sent, receiver, wanted, tally)
    watch(tally, None)


def compare_received(
    sent: Sent, receiver: ListingReceiver, wanted: Wanted, tally: Tally, watch: Watch
) -> None:
    """Look up here what the receiver first processed in the time range."""
    for page in receiver.received(wanted):
        strangers = sent.strangers([there.key for there in page])
        for there in page:
            if there.key in strangers:
                tally.found(Finding.ONLY_THERE, None, there)
        watch(tally, None)


def _compare(
    page: Sequence[Here], sent: Sent, receiver: Receiver, wanted: Wanted, tally: Tally
) -> None:
    known = receiver.known([here.key for here in page if here.key is not None])
    both = [(here, known.get(here.key) if here.key is not None else None) for here in page]
    stale = [here for here, there in both if there is not None and called_stale(here, there)]
    overtaken = _overtaken(sent, wanted, stale)
    for here, there in both:
        finding = compare(here, there, overtaken=(here.subject, here.sequence) in overtaken)
        tally.sent(here)
        tally.found(finding, here, there)


def _overtaken(sent: Sent, wanted: Wanted, stale: Sequence[Here]) -> set[tuple[str, int]]:
    # Rarely there is one, so a statement of its own is cheaper.
    return sent.overtaken(wanted, [(each.subject, each.sequence) for each in stale])
