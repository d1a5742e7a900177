"""Links from audit rows to their targets, and their details without secrets. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from holdfast.dispatcher.api.console.rendering.filters import link
from holdfast.dispatcher.outbound.operator_headers import LITERALS

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
        if found := pattern.fullmatch(target):
            return address.format(found[1])
    if found := _BATCH.fullmatch(target):
        return link("/batches/show", stream=found[1], batch_id=found[2])
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
