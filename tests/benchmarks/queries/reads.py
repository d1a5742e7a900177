"""All reads of the API, with filters and later pages."""

from collections.abc import Iterator

from tests.benchmarks.common.troubled import RARE_TYPE
from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.pages import NOBODY
from tests.benchmarks.queries.query import Query, address

PREFIX = "/api/v1"
LONG = frozenset({f"{PREFIX}/check", f"{PREFIX}/receipts"})
"""What has 30 s, and is asked for once."""


def reads(known: Known) -> list[Query]:
    """Return all of them but the `LONG` ones."""
    return [*_decisions(known), *_delivery(known), *_others(known)]


def _decisions(known: Known) -> Iterator[Query]:
    yield from _read(
        "/entries",
        {},
        {"limit": "500"},
        {"type": NOBODY},
        {"type": RARE_TYPE},
        {"stream": known.stream, "batch": known.batch},
        {"subject": known.subject},
        {"since": known.since, "until": known.until, "type": NOBODY},
        {"before": f"{int(known.batch_no) // 2}.{10**17}.1"},
    )
    for end in ("", "/why", "/trace", "/attempts"):
        yield from _read(f"/entries/{known.key}{end}", {})
    yield from _read(
        "/subjects",
        {},
        {"limit": "500"},
        {"prefix": NOBODY},
        {"held": "stopped"},
        {"held": "retrying", "limit": "500"},
        {"held": "any", "after": "m_5"},
        {"silenced": "true"},
    )
    for name in (known.subject, known.stopped):
        for end in ("", "/why"):
            yield from _read(f"/subjects/named{end}", {"name": name})
    yield from _read("/streams", {})
    yield from _read(f"/streams/{known.stream}", {})
    yield from _read(
        "/batches",
        {"stream": known.stream},
        {"stream": known.stream, "before": known.diverged, "limit": "500"},
    )
    yield from _read(f"/batches/{known.stream}/{known.batch}", {})
    yield from _read(f"/batches/{known.stream}/{known.diverged}/diff", {})
    yield from _read(
        "/quarantine",
        {},
        {"open": "false", "limit": "500"},
        {"reason": "body_too_large"},
        {"open": "false", "before": known.quarantine_middle},
    )
    yield from _read(f"/quarantine/{known.quarantined}", {})
    yield from _read(
        "/suppressed",
        {},
        {"limit": "500"},
        {"subject": known.subject},
        {"cause": "overtaken", "stream": known.stream},
        {"before": known.suppressed_middle},
    )
    yield from _read(f"/suppressed/{known.suppressed}", {})


def _delivery(known: Known) -> Iterator[Query]:
    yield from _read(
        "/attempts",
        {},
        {"limit": "500"},
        {"endpoint": "payouts"},
        {"endpoint": "partner-1"},
        {"outcome": "delivered"},
        {"outcome": "rejected"},
        {"outcome": "refused"},
        {"endpoint": "archive", "outcome": "delivered"},
        {"since": known.since, "until": known.until},
        {"before": known.attempts_middle},
        {"before": known.attempts_middle, "endpoint": "partner-1"},
    )
    yield from _read(
        "/dead-letters",
        {},
        {"open": "false", "limit": "500"},
        {"resolved": "true"},
        {"endpoint": "ledger"},
        {"subject": known.stopped},
        {"reason": "exhausted"},
        {"open": "false", "before": known.dead_middle},
    )
    yield from _read(f"/dead-letters/{known.dead}", {})
    yield from _read("/replays", {}, {"limit": "500"}, {"before": known.replay_middle})
    for id_ in (known.planned, known.applying):
        yield from _read(f"/replays/{id_}", {})
        yield from _read(f"/replays/{id_}/status", {})
        yield from _read(f"/replays/{id_}/items", {}, {"after": "50000", "limit": "500"})
    yield from _read("/proposals", {}, {"open": "false", "before": known.until})
    yield from _read("/proposals", {"target": f"quarantine {known.quarantined}"})
    yield from _read(f"/proposals/{known.proposal}", {})
    yield from _read("/endpoints", {})
    for name in ("payouts", "archive", "partner-1"):
        yield from _read(f"/endpoints/{name}", {})


def _others(known: Known) -> Iterator[Query]:
    yield from _read("/status", {})
    yield from _read("/overview", {}, {"minutes": "180"})
    for path in ("/dispatchers", "/database", "/tokens"):
        yield from _read(path, {})
    yield from _read(
        "/audit",
        {},
        {"limit": "500"},
        {"actor": NOBODY},
        {"action": "endpoint"},
        {"since": known.since, "until": known.until},
        {"before": known.action_middle},
    )


def _read(path: str, *asked: dict[str, str]) -> Iterator[Query]:
    for each in asked:
        (where,) = address(path, each)
        yield Query("api", where, (f"{PREFIX}{where}",))
