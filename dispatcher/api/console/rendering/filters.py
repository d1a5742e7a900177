"""Formatting of values on pages, including untrusted text and details of audit rows. Pure."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from holdfast.dispatcher.operators.common.text import span
from holdfast.dispatcher.outbound.operator_headers import LITERALS
from holdfast.sink.contract.canonical import rfc3339

NOTHING = "\N{EN DASH}"
KEPT = frozenset("\n\t\N{NO-BREAK SPACE}")

TONES = {
    "good": (
        "active adopted alive applied closed delivered duplicate enabled proven redelivered"
        " reissued routed valid"
    ),
    "wait": (
        "applying behind current draining due half_open leased planned released retrying sending"
        " slow_start stale suppressed throttled unrouted waiting"
    ),
    "warn": (
        "cancelled expired hasten on_hold open paused reissue release requeued resend unknown"
    ),
    "bad": (
        "cannot_write dead disabled diverged exhausted failed gone lost no_dispatcher not_routed"
        " refused rejected stopped unreachable"
    ),
    "idle": "dismissed idle none nothing passed pruned revoked",
}
SHAPES = {"good": "●", "wait": "◐", "warn": "▲", "bad": "■", "idle": "○"}
_TONE = {word: tone for tone, words in TONES.items() for word in words.split()}

_TIME = re.compile(
    r"(?<![\w'\"-])(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)(?![\w'\"-])", re.ASCII
)
"""A time in a sentence of ours; not in a name, which is shown as it is."""

_BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def finalize(value: Any) -> Any:
    """Return what a template expression prints: None as a dash, text as `visible`."""
    if value is None:
        return NOTHING
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def visible(text: str) -> str:
    """Return `text` with unprintable and direction-changing characters escaped.

    Line ends and tabs are kept.

    >>> visible("m\\x1b[2J\\u202e")
    'm\\\\x1b[2J\\\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in KEPT else each.encode("unicode_escape").decode()
        for each in text
    )


def tone(word: str) -> str:
    """Return the tone (colour) of a state; `idle` for an unknown word."""
    return _TONE.get(word, "idle")


def words(text: str) -> str:
    """Return an identifier as words.

    >>> words("slow_start")
    'slow start'
    """
    return text.replace("_", " ")


def clock(moment: datetime) -> str:
    """Return a time in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(value: datetime) -> str:
    """Return a time for a `datetime` attribute."""
    return rfc3339(value)


def timed(sentence: str | None) -> Markup:
    """Return a sentence with its RFC 3339 times as `time` elements, in the zone of the page.

    >>> print(timed("held until 2026-11-02T12:15:00.5Z, <b>"))
    held until <time datetime="2026-11-02T12:15:00.5Z">2026-11-02 12:15:00 UTC</time>, &lt;b&gt;
    """
    element = Markup('<time datetime="{}">{}</time>')
    return Markup("").join(
        element.format(part, clock(datetime.fromisoformat(part))) if number % 2 else part
        for number, part in enumerate(_TIME.split(visible(sentence or NOTHING)))
    )


def lasting(seconds: float | None) -> str:
    """Return a duration in seconds as formatted by `span`."""
    return NOTHING if seconds is None else span(float(seconds))


def number(value: float | None) -> str:
    """Return a number with thousands separators; a fraction with three digits.

    >>> number(1234567), number(0.12345), number(1234.5)
    ('1,234,567', '0.123', '1,234')
    """
    if value is None:
        return NOTHING
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def size(count: int | None) -> str:
    """Return a number of bytes in a suitable unit.

    >>> size(1), size(2048), size(5 * 1024**3)
    ('1 byte', '2.0 KiB', '5.0 GiB')
    """
    if count is None:
        return NOTHING
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_BYTES) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {_BYTES[unit]}"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "entry", "entries"), counted(2, "lane")
    ('1 entry', '2 lanes')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def pretty(text: str) -> str:
    """Return JSON indented; a text that is not JSON, or is nested too deep, unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def about(stored: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a stored filter as names and texts.

    >>> about({"endpoint": "payouts", "states": ["dead"]})
    [('endpoint', 'payouts'), ('states', 'dead')]
    """
    return [
        (
            name.replace("_", " "),
            _listed(value) if isinstance(value, list) else str(value),
        )
        for name, value in stored.items()
    ]


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:3]))
    return shown if len(values) <= 3 else f"{shown} and {len(values) - 3} more"


ALL = {
    "about": about,
    "clock": clock,
    "counted": counted,
    "lasting": lasting,
    "moment": moment,
    "number": number,
    "pretty": pretty,
    "size": size,
    "timed": timed,
    "tone": tone,
    "visible": visible,
    "words": words,
}
"""The filters of the templates, by name."""


def link(path: str, **query: Any) -> str:
    """Return a URL; empty and None parameters are omitted from its query.

    >>> link("/entries", subject="a b", type=None)
    '/entries?subject=a+b'
    """
    parameters = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in query.items()
        if value is not None and value != ""
    }
    return f"{quote(path)}?{urlencode(parameters)}" if parameters else quote(path)


LEFT_OUT = "..."

_KEY = re.compile(r"hf_[0-9a-f]{32}")
_PAGES = (
    (re.compile(r"dead letter (\d{1,18})"), "/dead/{}"),
    (re.compile(r"quarantine (\d{1,18})"), "/quarantine/{}"),
    (re.compile(r"replay ([0-9a-f-]{32,36})"), "/replays/{}"),
    (re.compile(rf"({_KEY.pattern})"), "/entries/{}"),
)
_BATCH = re.compile(r"([a-z0-9][a-z0-9_.-]{0,62}) batch (\d{1,18})")
_NAMED = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


def page_of(action: str, target: str) -> str | None:
    """Return the URL of the page of an action's target; None if it has no page.

    >>> page_of("dead.dismiss", "dead letter 7"), page_of("endpoint.paused", "payouts")
    ('/dead/7', '/endpoints/payouts')
    >>> page_of("lane.pass", "subject m_1")
    '/subjects/show?name=m_1'
    """
    for pattern, address in _PAGES:
        if match := pattern.fullmatch(target):
            return address.format(match[1])
    if match := _BATCH.fullmatch(target):
        return link("/batches/show", stream=match[1], batch_id=match[2])
    if action.startswith("endpoint.") and _NAMED.fullmatch(target):
        return f"/endpoints/{target}"
    if action == "lane.pass":
        return link("/subjects/show", name=target.removeprefix("subject "))
    if action.startswith("stream."):
        return link("/batches", stream=target)
    return None


def detail_text(detail: Mapping[str, Any]) -> str:
    """Return an action's details as JSON, without values of headers."""
    return json.dumps(_told(detail), indent=2, ensure_ascii=False) if detail else ""


def _told(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: dict.fromkeys(each, LEFT_OUT)
            if name in ("headers", LITERALS) and isinstance(each, Mapping)
            else _told(each)
            for name, each in value.items()
        }
    return [_told(each) for each in value] if isinstance(value, list) else value
