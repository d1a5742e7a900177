"""The dispatcher's log: one structured line per attempt; `Line` lists every other line."""

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache, partial
from select import PIPE_BUF
from typing import Any, TextIO

import structlog

from holdfast.dispatcher.delivery.rules.values import (
    Attempt,
    Gap,
    PaceChange,
    Rescued,
    Settled,
    Settlement,
)
from holdfast.dispatcher.outbound.request import key_text
from holdfast.dispatcher.shared.text import redact
from holdfast.sink.contract import standard_error
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import BreakerState, Outcome

# Lines of delivered attempts are nearly all of the log. They hold numbers and one name, so they are
# written by a template, many at once, and not searched for secrets each time.
_LINE = (
    '{"endpoint": %s, "subject": %d, "sequence": %d, "key": "%s", "attempt": %d,'
    ' "outcome": "delivered", "status": %d, "ms": %d%s, "level": "info", "time": "%s",'
    ' "what": "attempt"}'
)


class Line(StrEnum):
    """The name of each line."""

    STARTED = "dispatcher.started"
    STOPPING = "dispatcher.stopping"
    STOPPED = "dispatcher.stopped"
    ATTEMPT = "attempt"
    OTHER_KEY = "receipt.other_key"
    DEAD_LETTER = "dead_letter"
    LEASE_LOST = "lease.lost"
    LEASE_EXPIRED = "lease.expired"
    RESULT_DROPPED = "result.dropped"
    SEQUENCE_GAP = "sequence_gap"
    ENDPOINT_READY = "endpoint.ready"
    ENDPOINT_WAITING = "endpoint.waiting"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_HELD = "endpoint.held"
    KEY_WINDOW_SHRUNK = "key_window.shrunk"
    BREAKER_OPENED = "breaker.opened"
    BREAKER_RECOVERING = "breaker.recovering"
    BREAKER_CLOSED = "breaker.closed"
    STORE_AWAY = "store.away"
    STORE_BACK = "store.back"
    CLOCK_SKEW = "clock.skew"
    RELOADED = "reloaded"
    REPLAY_APPLIED = "replay.applied"
    DOORBELL_DEAF = "doorbell.deaf"
    DOORBELL_HEARD = "doorbell.heard"
    PARTITIONS = "partitions.made"
    DAY_DROPPED = "day.dropped"
    DAY_KEPT = "day.kept"
    MAINTENANCE_FAILED = "maintenance.failed"
    SERVER_UNREAD = "server.unread"
    CRASHED = "loop.crashed"
    PROCESS_ENDED = "process.ended"
    LINES_DROPPED = "lines.dropped"


class Telemetry:
    """Writes log lines and counts them. Never handles a body or a secret."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger()
        self.counts: Counter[str] = Counter()

    def info(self, line: Line, **fields: object) -> None:
        """Log normal work."""
        self._log.info(line.value, **fields)

    def warn(self, line: Line, **fields: object) -> None:
        """Log something that needs attention."""
        self._log.warning(line.value, **fields)

    def crashed(self, name: str, error: BaseException) -> None:
        """Log an internal error with its stack trace."""
        self.counts["crashed"] += 1
        self._log.error(Line.CRASHED.value, loop=name, exc_info=error)

    def settled_all(self, settled: Iterable[tuple[str, Settled]]) -> None:
        """Log each attempt that is now recorded, in one write where possible.

        Each result comes with the name of its endpoint.
        """
        logger = json_logger()
        lines: list[str] = []
        time = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        for endpoint, each in settled:
            plain = None
            if logger is not None and each.paced is None:
                plain = delivered_lines(endpoint, each.settlement, time)
            if plain is None:
                lines = _written(logger, lines)
                self._settled(endpoint, each)
            else:
                self.counts[Outcome.DELIVERED.value] += len(plain)
                lines += plain
        _written(logger, lines)

    def _settled(self, endpoint: str, settled: Settled) -> None:
        settlement = settled.settlement
        for attempt in settlement.attempts:
            self.counts[attempt.outcome.value] += 1
            last = attempt is settlement.attempts[-1]
            fields = _attempt_fields(endpoint, settlement, attempt)
            if last:
                fields["lane"] = settlement.move.value
            if last and settlement.delay_us is not None and settled.due_at is not None:
                fields["retry_at"] = settled.due_at.isoformat()
            write = self._log.info if attempt.outcome is Outcome.DELIVERED else self._log.warning
            write(Line.ATTEMPT.value, **fields)
            if attempt.other_key is not None:
                self.counts["other_keys"] += 1
                named = {"status": attempt.status, "named": attempt.other_key}
                self.warn(Line.OTHER_KEY, **_whose(endpoint, settlement, attempt), **named)
        if settled.paced is not None:
            self._paced(endpoint, settled.paced)
        if settlement.dead is not None:
            self.counts["dead"] += 1
            self.warn(
                Line.DEAD_LETTER,
                endpoint=endpoint,
                subject=settlement.subject_id,
                sequence=settlement.dead.sequence,
                key=Key(settlement.dead.key).text,
                reason=settlement.dead.reason.value,
                lane=settlement.move.value,
            )

    def _paced(self, endpoint: str, change: PaceChange) -> None:
        if change.held_until is not None:
            self.warn(Line.ENDPOINT_HELD, endpoint=endpoint, until=change.held_until.isoformat())
        if change.breaker is change.before:
            return
        until = change.breaker_until.isoformat() if change.breaker_until else None
        match change.breaker:
            case BreakerState.OPEN:
                self.warn(Line.BREAKER_OPENED, endpoint=endpoint, until=until, reason=change.reason)
            case BreakerState.SLOW_START:
                self.info(Line.BREAKER_RECOVERING, endpoint=endpoint, until=until)
            case BreakerState.CLOSED:
                self.breaker_closed(endpoint)

    def breaker_closed(self, endpoint: str) -> None:
        """Log that an endpoint's slow start is over."""
        self.info(Line.BREAKER_CLOSED, endpoint=endpoint)

    def lease_lost(self, endpoint: str, settlement: Settlement) -> None:
        """Log results that came too late; the database has recorded them as `unknown`."""
        self._without_record(Line.LEASE_LOST, "lost_leases", endpoint, settlement)

    def result_dropped(self, endpoint: str, settlement: Settlement) -> None:
        """Log results dropped in an outage; the database will record them as `unknown`."""
        self._without_record(Line.RESULT_DROPPED, "dropped_results", endpoint, settlement)

    def rescued(self, endpoint: str, rescued: Rescued) -> None:
        """Log an attempt that ended with its lease."""
        self.counts["rescued"] += 1
        self.warn(
            Line.LEASE_EXPIRED,
            endpoint=endpoint,
            subject=rescued.subject_id,
            sequence=rescued.sequence,
            attempt=rescued.number,
            outcome=Outcome.UNKNOWN.value,
        )

    def gap(self, endpoint: str, gap: Gap) -> None:
        """Log a lane that is stuck because its next entry is missing."""
        self.counts["gaps"] += 1
        self._log.error(
            Line.SEQUENCE_GAP.value,
            endpoint=endpoint,
            subject=gap.subject_id,
            missing=gap.delivered_sequence + 1,
            found=gap.found,
        )

    def _without_record(
        self, line: Line, counter: str, endpoint: str, settlement: Settlement
    ) -> None:
        self.counts[counter] += 1
        if not settlement.attempts:
            self.warn(line, endpoint=endpoint, subject=settlement.subject_id, sent=0)
        for attempt in settlement.attempts:
            self.warn(line, **_attempt_fields(endpoint, settlement, attempt))


def delivered_lines(endpoint: str, settlement: Settlement, time: str) -> list[str] | None:
    """Return a JSON line for each attempt, or None if one of them was not delivered.

    `time` is the time of the lines, in ISO 8601.
    """
    attempts = settlement.attempts
    # Only the last attempt of a lane can be other than delivered, and only then is there a retry.
    if not attempts or attempts[-1].outcome is not Outcome.DELIVERED:
        return None
    name, subject, final = _quoted(endpoint), settlement.subject_id, len(attempts) - 1
    lane = f', "lane": "{settlement.move}"'
    return [
        _LINE
        % (
            name,
            subject,
            each.sequence,
            key_text(each.key),
            each.number,
            each.status,
            each.duration_ms,
            lane if place == final else "",
            time,
        )
        for place, each in enumerate(attempts)
    ]


def json_logger() -> Any | None:
    """Return a logger that writes raw text where the log is JSON lines, else None."""
    config = structlog.get_config()
    if isinstance(config["processors"][-1], structlog.processors.JSONRenderer):
        return config["logger_factory"]()
    return None


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(redact(name))


def _written(logger: Any, lines: list[str]) -> list[str]:
    """Write `lines`; returns an empty list for the next ones."""
    for piece in pieces(lines):
        logger.info(piece)
    return []


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Yield texts of whole lines, which a pipe takes at once or not at all.

    Several processes may write to one pipe, and a longer text could be torn by a line of another.

    >>> [len(text) for text in pieces(["x" * 1500] * 5)]
    [3001, 3001, 1500]
    """
    piece: list[str] = []
    room = PIPE_BUF
    for line in lines:
        size = len(line) + 1
        if piece and size > room:
            yield "\n".join(piece)
            piece, room = [], PIPE_BUF
        piece.append(line)
        room -= size
    if piece:
        yield "\n".join(piece)


def _attempt_fields(endpoint: str, settlement: Settlement, attempt: Attempt) -> dict[str, object]:
    fields: dict[str, object] = {
        **_whose(endpoint, settlement, attempt),
        "outcome": attempt.outcome.value,
        "status": attempt.status,
        "ms": attempt.duration_ms,
        "error": attempt.error,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _whose(endpoint: str, settlement: Settlement, attempt: Attempt) -> dict[str, object]:
    return {
        "endpoint": endpoint,
        "subject": settlement.subject_id,
        "sequence": attempt.sequence,
        "key": Key(attempt.key).text,
        "attempt": attempt.number,
    }


def configure(stream: TextIO | None = None) -> None:
    """Log JSON lines to `stream` (stderr), or key=value pairs if it is a terminal.

    Lines that stderr could not take are reported as one of these lines.
    """
    stream = stream or sys.stderr
    renderer: Any = structlog.processors.JSONRenderer()
    if stream.isatty():
        renderer = structlog.processors.LogfmtRenderer(
            key_order=["time", "level", "what"], bool_as_flag=False
        )
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("what"),
        _redacted,
        renderer,
    ]
    if (output := standard_error.installed()) is not None:
        output.report = partial(_report, processors)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )


def _report(processors: Iterable[Any], lines: int, error: str) -> str:
    """Return the line about lines that were dropped."""
    line: Any = {"event": Line.LINES_DROPPED.value, "lines": lines, "error": error}
    for each in processors:
        line = each(None, "warning", line)
    return f"{line}\n"


def _redacted(_logger: Any, _method: str, fields: Any) -> Mapping[str, Any]:
    return {
        name: redact(value) if isinstance(value, str) else value for name, value in fields.items()
    }
