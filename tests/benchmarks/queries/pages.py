"""All console pages, with filters and later pages."""

from collections.abc import Iterator

from holdfast.dispatcher.api.console.frame.templating import SCREENS
from tests.benchmarks.common.troubled import RARE_TYPE
from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.query import Query, address

NOBODY = "nobody_at_all"

PAUSE, RESUME, DISABLE = "pause", "resume", "disable"


def pages(known: Known, redelivery: str) -> list[Query]:
    """Return all pages; `redelivery` is a plan for `known.key` alone."""
    screens = [_page(each.name, each.path) for each in SCREENS]
    return [*screens, *_decisions(known), *_delivery(known, redelivery), *_others(known)]


def _decisions(known: Known) -> Iterator[Query]:
    entries = {
        "of a type that nothing has": {"type": NOBODY},
        "of a type that little has": {"type": RARE_TYPE},
        "of a stream": {"stream": known.stream},
        "of a batch": {"stream": known.stream, "batch": known.batch},
        "of a batch, of a type that nothing has": {
            "stream": known.stream,
            "batch": known.batch,
            "type": NOBODY,
        },
        "of a subject": {"subject": known.subject},
        "of a subject that is none": {"subject": NOBODY},
        "of a time": {"since": known.since, "until": known.until},
        "of a time, of a type that nothing has": {"since": known.since, "type": NOBODY},
        "page in the middle": {"before": f"{int(known.batch_no) // 2}.{10**17}.1"},
    }
    yield from _filtered("Entries", "/entries", entries)
    for key, when in ((known.key, "new"), (known.early_key, "old")):
        yield _page(f"Entry, {when}", f"/entries/{key}")
    yield _page("Entry that is none", f"/entries/hf_{'0' * 32}", ends=(404,))
    yield _page("Entry as curl", f"/entries/{known.key}/curl")
    subjects = {
        "by name": {"prefix": "m_9"},
        "by a name that nothing has": {"prefix": NOBODY},
        **{f"{held}": {"held": held} for held in ("stopped", "retrying", "behind", "any")},
        "stopped, by name": {"held": "stopped", "prefix": "m_9"},
        "retrying, by a name that nothing has": {"held": "retrying", "prefix": NOBODY},
        "stopped, page in the middle": {"held": "stopped", "after": "m_5"},
        "page in the middle": {"after": "m_5"},
        "silenced": {"silenced": "yes"},
    }
    yield from _filtered("Subjects", "/subjects", subjects)
    for name in (known.subject, known.stopped):
        yield _page(f"Subject {name}", "/subjects/show", {"name": name})
    yield _page(
        "Subject, to pass", "/subjects/pass", {"name": known.stopped, "endpoint": "payouts"}
    )
    batches = {
        "of a stream": {"stream": known.stream},
        "page in the middle": {"stream": known.stream, "before": known.diverged},
    }
    yield from _filtered("Batches", "/batches", batches)
    for batch, what in ((known.batch, "Batch"), (known.diverged, "Batch that diverged")):
        yield _page(what, "/batches/show", {"stream": known.stream, "batch_id": batch})
    yield _page("Difference", "/batches/diff", {"stream": known.stream, "batch_id": known.diverged})
    rows = {
        "resolved": {"which": "resolved"},
        "all": {"which": "all"},
        "of a stream": {"stream": known.stream},
        "of a reason": {"reason": "bad_time"},
        "of a reason that nothing has": {"reason": "body_too_large"},
        "resolved, of a reason that nothing has": {
            "reason": "body_too_large",
            "which": "resolved",
        },
        "page in the middle": {"which": "all", "before": known.quarantine_middle},
    }
    yield from _filtered("Quarantine", "/quarantine", rows)
    yield _page("Row", f"/quarantine/{known.quarantined}")
    suppressed = {
        "of a stream": {"stream": known.stream},
        "of a subject": {"subject": known.subject},
        "overtaken": {"cause": "overtaken"},
        "of a time": {"since": known.since, "until": known.until},
        "page in the middle": {"before": known.suppressed_middle},
    }
    yield from _filtered("Suppressed", "/suppressed", suppressed)
    yield _page("Suppressed decision", f"/suppressed/{known.suppressed}")
    yield _page("Rows, chosen", "/quarantine/selected", {"id": known.quarantined, "do": "dismiss"})


def _delivery(known: Known, redelivery: str) -> Iterator[Query]:
    dead = {
        "resolved": {"which": "resolved"},
        "all": {"which": "all"},
        "of an endpoint": {"endpoint": "payouts"},
        "of an endpoint that has none": {"endpoint": "ledger"},
        "of a subject": {"subject": known.stopped},
        "of a subject that is none": {"subject": NOBODY},
        "of a reason that nothing has": {"reason": "exhausted", "which": "all"},
        "page in the middle": {"which": "all", "before": known.dead_middle},
    }
    yield from _filtered("Dead letters", "/dead", dead)
    for number, what in ((known.dead, "open"), (known.dead_resolved, "resolved")):
        yield _page(f"Dead letter, {what}", f"/dead/{number}")
    for do in ("redeliver", "dismiss"):
        yield _page(f"Dead letters, to {do}", "/dead/selected", {"id": known.dead, "do": do})
    yield _page("New replay", "/replays/new")
    for id_, what in (
        (known.planned, "planned"),
        (known.applying, "under way"),
        (known.applied, "applied"),
    ):
        yield _page(f"Replay, {what}", f"/replays/{id_}")
        yield _page(f"Replay, {what}, later page", f"/replays/{id_}", {"after": "50000"})
    yield _page("Replay, to apply", f"/replays/{known.planned}/apply")
    yield _page("Replay, to cancel", f"/replays/{known.applying}/cancel")
    yield _page("Redelivery, why", f"/entries/{known.key}/redeliver")
    yield _page("Redelivery, whether", f"/entries/{known.key}/redeliver/{redelivery}")
    for name in ("payouts", "risk", "archive", "partner-1"):
        yield _page(f"Endpoint {name}", f"/endpoints/{name}")
    for do in (PAUSE, RESUME, DISABLE):
        yield _page(f"Endpoint, to {do}", f"/endpoints/archive/{do}")


def _others(known: Known) -> Iterator[Query]:
    for minutes in ("15", "180"):
        yield _page(f"Overview of {minutes} minutes", "/", {"minutes": minutes})
    audit = {
        "of an actor": {"actor": "person-7"},
        "of an actor that is none": {"actor": NOBODY},
        "of an action": {"action": "endpoint"},
        "of a target that is none": {"target": NOBODY},
        "of a time": {"since": known.since, "until": known.until},
        "page in the middle": {"before": known.action_middle},
    }
    yield from _filtered("Audit", "/audit", audit)
    for what, text in (
        ("a key", known.key),
        ("a subject", known.subject),
        ("a sequence", f"{known.subject} 3"),
        ("nothing", NOBODY),
    ):
        yield _page(f"Search for {what}", "/search", {"q": text}, ends=(303,))
    yield _page("What live pages hear", "/live")
    yield _page("Login", "/login")


def _filtered(name: str, path: str, filters: dict[str, dict[str, str]]) -> Iterator[Query]:
    for what, given in filters.items():
        yield _page(f"{name} {what}", path, given)


def _page(
    shows: str, path: str, given: dict[str, str] | None = None, ends: tuple[int, ...] = (200,)
) -> Query:
    return Query("console", shows, address(path, given), ends)
