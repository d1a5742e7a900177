"""Renders rows as HTML. Pure. All text from the wire passes through `escape`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import urlencode

from holdfast.sink.contract.money import money

_OUTCOMES = (
    ("applied", "Applied", "the key was new"),
    ("duplicate", "Duplicates absorbed", "the key was already applied; nothing was repeated"),
    ("stale", "Stale", "a newer delivery of the merchant was already applied; nothing changed"),
    ("in_progress", "In progress", "the same delivery was being applied; the sender retries"),
    ("conflict", "Conflicts", "a known key with a different body; refused"),
    ("refused", "Not understood", "signed, but not supported by this service; refused"),
)
_ALARMING = frozenset({"conflict", "refused"})


def page(
    held: Sequence[Mapping[str, Any]],
    transitions: Sequence[Mapping[str, Any]],
    counts: Mapping[str, int],
    *,
    next_after: str | None,
) -> str:
    """Return the page as HTML. `next_after` is the cursor of the next page of held merchants."""
    number = counts["held"]
    merchants = "1 merchant is held" if number == 1 else f"{number} merchants are held"
    return _template("page.html").substitute(
        title=escape(f"{merchants} · Payout holds"),
        summary=escape(f"{merchants}."),
        held=_held(held),
        more=_more(next_after),
        counts=_counts(counts),
        transitions=_transitions(transitions),
    )


@cache
def style() -> str:
    """Return the style sheet."""
    return _file("style.css")


@cache
def _template(name: str) -> Template:
    return Template(_file(name))


def _file(name: str) -> str:
    return files("holdfast.deploy.payouts.pages").joinpath(name).read_text(encoding="utf-8")


def _held(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>No merchant is held.</p>"
    heads = ("Merchant", "Why", "Held since", "Sequence", "Key")
    return _table("Merchants whose payouts are held", heads, (_held_row(row) for row in rows))


def _held_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    moment, number = _moment(row["since"]), str(row["sequence"])
    return (row["merchant_id"], _why(row), moment, number, row["key"])


def _why(row: Mapping[str, Any]) -> str:
    if row["window_end"] is None:
        return "A person decided it."
    exposure = money(row["exposure_minor"], row["currency"])
    limit = money(row["limit_minor"], row["currency"])
    window = f"{_moment(row['window_start'])} to {_moment(row['window_end'])}"
    return f"Exposure {exposure} is above the limit of {limit} in the window {window}."


def _more(next_after: str | None) -> str:
    if next_after is None:
        return ""
    address = escape("/?" + urlencode({"after": next_after}))
    return f'<p><a href="{address}">Next held merchants</a></p>'


def _counts(counts: Mapping[str, int]) -> str:
    rows = [(title, str(counts[name]), meaning) for name, title, meaning in _OUTCOMES]
    alarms = [title for name, title, _ in _OUTCOMES if name in _ALARMING and counts[name]]
    refused = counts["refused_transition"]
    rows.append(
        (
            "Refused transitions",
            str(refused),
            "a block while held, or a release while not held; recorded, nothing changed",
        )
    )
    if refused:
        alarms.append("Refused transitions")
    words = f'<p class="alarm">Check: {escape(", ".join(alarms))}.</p>' if alarms else ""
    return words + _table("Verified deliveries by outcome", ("Outcome", "Count", "Meaning"), rows)


def _transitions(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>No transitions yet.</p>"
    heads = ("Merchant", "Sequence", "Action", "Effect", "Exposure", "Window end", "Applied")
    return _table(
        "Newest first",
        heads,
        (
            (
                row["merchant_id"],
                str(row["sequence"]),
                row["action"],
                row["effect"].replace("_", " "),
                *_window(row),
                _moment(row["applied_at"]),
            )
            for row in rows
        ),
    )


def _window(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["window_end"] is None:
        return "by hand", "none"
    return money(row["exposure_minor"], row["currency"]), _moment(row["window_end"])


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "\n".join(_row(heads, row) for row in rows)
    # A scrollable region must be reachable with the keyboard.
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table><caption class="faint">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(heads: Sequence[str], cells: Sequence[str]) -> str:
    first, *others = cells
    # A narrow screen shows a row as lines, each behind the heading of its column.
    rest = "".join(
        f'<td data-label="{escape(head)}">{escape(text)}</td>'
        for head, text in zip(heads[1:], others, strict=True)
    )
    return f'<tr><th scope="row">{escape(first)}</th>{rest}</tr>'


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")
