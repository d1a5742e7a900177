"""What can be done with a row of the quarantine: judged by its reason and its text alone."""

import json
import re
from collections.abc import Mapping
from typing import Any

from dispatcher.operators.dead_letters.rules import Advice
from sink.contract.states import QuarantineReason

ENTRY_REASONS = frozenset(
    {
        QuarantineReason.BAD_SUBJECT,
        QuarantineReason.BAD_KEY,
        QuarantineReason.BAD_TYPE,
        QuarantineReason.BAD_DATA,
        QuarantineReason.KEY_CONFLICT,
        QuarantineReason.BODY_TOO_LARGE,
        QuarantineReason.FUTURE_DATED,
    }
)
"""Reasons of rows that were refused as entries; all others are of rows of a source."""

# How the quarantine writes a byte that is not UTF-8 into the JSON text of an entry.
_STANDS_FOR_A_BYTE = re.compile(r"\\\\x[89a-f][0-9a-f]")


def is_entry(row: Mapping[str, Any]) -> bool:
    """Return whether the sink refused the row, and not the job that read a source."""
    return row["reason"] in ENTRY_REASONS


def why_not_as_kept(row: Mapping[str, Any]) -> str | None:
    """Return why the text that was kept cannot be put back as it is; None when it can."""
    text = row["row"]
    if _is_cut(text):
        return "it was too long to be kept whole, and only its beginning is there"
    if is_entry(row):
        if _STANDS_FOR_A_BYTE.search(text):
            return "it held bytes that are not UTF-8, and its text only describes them"
    elif "\n" in text or "\r" in text:
        return "it has line breaks, and would come back as several lines"
    return None


def what_helps(row: Mapping[str, Any]) -> list[Advice]:
    """Return what can be done about an open row of `quarantine_take.sql`."""
    number = row["id"]
    put_back = Advice(
        f"holdfast quarantine requeue {number} --row FILE --reason TEXT",
        "puts the row of FILE back, corrected: `holdfast quarantine export` writes what to correct",
    )
    if not is_entry(row):
        put_back = Advice(
            f"holdfast quarantine requeue {number} --into DIRECTORY --reason TEXT",
            "gives it back to the job that reads DIRECTORY; with --row FILE, corrected",
        )
    return [
        put_back,
        Advice(
            f"holdfast quarantine dismiss {number} --reason TEXT",
            "closes it: nothing is decided for it, and it stays readable here",
        ),
    ]


def _is_cut(text: str) -> bool:
    if not text.startswith('{"cut": true, "bytes": '):
        return False
    try:
        kept = json.loads(text)
    except ValueError:
        return False
    return isinstance(kept, dict) and kept.keys() == {"cut", "bytes", "beginning"}
