"""All commands that list or show."""

from collections.abc import Iterator

from holdfast.sink.contract.exits import ExitCode
from tests.benchmarks.common.troubled import RARE_TYPE
from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.pages import NOBODY
from tests.benchmarks.queries.query import Query

TOLD = (ExitCode.OK, ExitCode.FAILED, ExitCode.NOTHING_MATCHED, ExitCode.DEGRADED)
"""All but a wrong word: what the database holds is of no concern here."""


def lists(known: Known) -> list[Query]:
    """Return the commands with their arguments."""
    found = [*_decisions(known), *_delivery(known), *_others(known)]
    return [Query("cli", " ".join(words), words, TOLD) for words in found]


def _decisions(known: Known) -> Iterator[tuple[str, ...]]:
    entries = ("entries", "list")
    yield entries
    yield (*entries, "--type", NOBODY)
    yield (*entries, "--type", RARE_TYPE)
    yield (*entries, "--stream", known.stream, "--batch", known.batch)
    yield (*entries, "--subject", known.subject)
    yield (*entries, "--since", known.since, "--until", known.until, "--type", NOBODY)
    yield (*entries, "--before", f"{int(known.batch_no) // 2}.{10**17}.1")
    yield ("entries", "tail")
    yield ("entries", "tail", "--type", NOBODY)
    yield ("entries", "show", known.key)
    yield ("why", known.key)
    yield ("why", known.stopped)
    yield ("trace", known.key)
    yield ("subjects", "list")
    for held in ("stopped", "retrying", "behind", "any"):
        yield ("subjects", "list", "--held", held)
    yield ("subjects", "list", "--prefix", NOBODY)
    yield ("subjects", "list", "--held", "stopped", "--after", "m_5")
    yield ("subjects", "show", known.stopped)
    yield ("stream", "list")
    yield ("stream", "show", known.stream)
    yield ("batch", "list", known.stream)
    yield ("batch", "list", known.stream, "--before", known.diverged)
    yield ("batch", "show", known.stream, known.batch)
    yield ("batch", "diff", known.stream, known.diverged)
    yield ("quarantine", "list")
    yield ("quarantine", "list", "--all")
    yield ("quarantine", "list", "--reason", "body_too_large")
    yield ("quarantine", "show", known.quarantined)
    yield ("suppressed", "list")
    yield ("suppressed", "list", "--cause", "overtaken")
    yield ("suppressed", "list", "--subject", known.subject)
    yield ("suppressed", "show", known.suppressed)


def _delivery(known: Known) -> Iterator[tuple[str, ...]]:
    attempts = ("attempts", "list")
    yield attempts
    yield (*attempts, known.key)
    yield (*attempts, "--subject", known.subject)
    yield (*attempts, "--endpoint", "payouts")
    yield (*attempts, "--endpoint", "partner-1")
    yield (*attempts, "--outcome", "delivered")
    yield (*attempts, "--outcome", "rejected")
    yield (*attempts, "--outcome", "refused")
    yield (*attempts, "--before", known.attempts_middle)
    yield ("dead", "list")
    yield ("dead", "list", "--all")
    yield ("dead", "list", "--endpoint", "ledger")
    yield ("dead", "list", "--reason", "exhausted")
    yield ("dead", "show", known.dead)
    yield ("replay", "list")
    yield ("replay", "show", known.planned)
    yield ("replay", "show", known.planned, "--items")
    yield ("replay", "status", known.applying)
    yield ("endpoint", "list")
    for name in ("payouts", "archive", "partner-1"):
        yield ("endpoint", "show", name)


def _others(known: Known) -> Iterator[tuple[str, ...]]:
    yield ("status",)
    yield ("overview",)
    yield ("database",)
    yield ("dispatchers", "list")
    yield ("token", "list")
    yield ("config", "show")
    yield ("audit", "list")
    yield ("audit", "list", "--actor", NOBODY)
    yield ("audit", "list", "--action", "endpoint")
    yield ("audit", "list", "--before", known.action_middle)
