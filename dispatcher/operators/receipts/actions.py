"""Compares what was sent with what was applied, page by page: memory holds one page of each side.

First, each page of this side queries the receiver for its keys, at any processing time: a correct
receiver knows every key that this side has delivered. Then the receiver's own keys of that time
range are looked up here, if it can list them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from holdfast.dispatcher.operators.receipts.rules import (
    Finding,
    SentEntry,
    Tally,
    called_stale,
    compare,
    stale_finding,
)
from holdfast.dispatcher.operators.receipts.store import ComparedRange, SentEntries
from holdfast.dispatcher.outbound.inquiry_answer import ReceiverRecord

Watch = Callable[[Tally, int | None], None]
"""Called after each page with the findings so far, and the id of the last compared subject."""


class Receiver(Protocol):
    """The receiver's side of a comparison."""

    def known(self, keys: Sequence[str]) -> dict[str, ReceiverRecord]:
        """Return what the receiver knows of `keys`."""
        ...


class ListingReceiver(Receiver, Protocol):
    """A receiver that can also list the keys that it processed."""

    def received(self, range_: ComparedRange) -> Iterator[list[ReceiverRecord]]:
        """Yield pages of the keys that it first processed in a time range."""
        ...


def count_receipts(sent: SentEntries, range_: ComparedRange, tally: Tally, watch: Watch) -> None:
    """Count deliveries with and without a verified receipt, without a query to the receiver."""
    for place, page in sent.pages(range_):
        overtaken = _overtaken(sent, range_, [each for each in page if called_stale(each, None)])
        for entry in page:
            tally.count(entry)
            if entry.delivered and entry.proof is None:
                tally.add(Finding.NO_RECEIPT, entry, None)
            elif called_stale(entry, None):
                explained = (entry.subject, entry.sequence) in overtaken
                tally.add(stale_finding(overtaken=explained), entry, None)
        watch(tally, place)


def compare_sent(
    sent: SentEntries, receiver: Receiver, range_: ComparedRange, tally: Tally, watch: Watch
) -> None:
    """Look up at the receiver what was tried in the time range, and what is in flight."""
    for place, page in sent.pages(range_):
        _compare(page, sent, receiver, range_, tally)
        watch(tally, place)
    _compare(sent.in_flight(range_), sent, receiver, range_, tally)
    watch(tally, None)


def compare_received(
    sent: SentEntries, receiver: ListingReceiver, range_: ComparedRange, tally: Tally, watch: Watch
) -> None:
    """Look up here what the receiver first processed in the time range."""
    for page in receiver.received(range_):
        strangers = sent.strangers([record.key for record in page])
        for record in page:
            if record.key in strangers:
                tally.add(Finding.ONLY_THERE, None, record)
        watch(tally, None)


def _compare(
    page: Sequence[SentEntry],
    sent: SentEntries,
    receiver: Receiver,
    range_: ComparedRange,
    tally: Tally,
) -> None:
    known = receiver.known([entry.key for entry in page if entry.key is not None])
    both = [(entry, known.get(entry.key) if entry.key is not None else None) for entry in page]
    stale = [entry for entry, record in both if record is not None and called_stale(entry, record)]
    overtaken = _overtaken(sent, range_, stale)
    for entry, record in both:
        finding = compare(entry, record, overtaken=(entry.subject, entry.sequence) in overtaken)
        tally.count(entry)
        tally.add(finding, entry, record)


def _overtaken(
    sent: SentEntries, range_: ComparedRange, stale: Sequence[SentEntry]
) -> set[tuple[str, int]]:
    # Rarely there is one, so a statement of its own is cheaper.
    return sent.overtaken(range_, [(each.subject, each.sequence) for each in stale])
