"""How the job reaches a Kafka cluster: servers, options, secrets, and where a new topic begins.

None of it changes what a batch contains: a later start may have other servers of the same cluster
and other options. Options that would change it are refused.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input.lines import parse_time

EARLIEST = "earliest"
LATEST = "latest"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*", re.ASCII)

_CLIENT = "kafka."

DEFAULTS: Mapping[str, str] = {
    # A broker that is away is named within a minute.
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "kafkaConsumer.pollTimeoutMs": "60000",
}
"""Options of a start that does not set them."""

FIXED: Mapping[str, str] = {
    "failOnDataLoss": "true",
    "includeHeaders": "false",
    # The records of an aborted transaction are no events.
    "kafka.isolation.level": "read_committed",
}
"""Not configurable: another value breaks a guarantee."""

_POSITION = "the checkpoint keeps the position, and --starting is for a topic that it does not have"
_TOPICS = "--topic and --topic-pattern name what is read, and the checkpoint records it"
_BOUND = "it would leave records unread that the idle clock takes for silence"
_TYPES = "the job reads keys and values as bytes, and itself finds what is wrong with them"
_GROUP = (
    "two queries with one group take records from each other; groupIdPrefix sets the beginning of"
    " the group that Spark makes for each"
)

_REFUSED: Mapping[str, str] = {
    "startingoffsets": _POSITION,
    "startingtimestamp": _POSITION,
    "startingoffsetsbytimestamp": _POSITION,
    "startingoffsetsbytimestampstrategy": _POSITION,
    "endingoffsets": "a stream has no end",
    "endingtimestamp": "a stream has no end",
    "endingoffsetsbytimestamp": "a stream has no end",
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "assign": _TOPICS,
    "failondataloss": (
        "records that are gone would be skipped without a word; --accept-data-loss continues after"
        " a gap that the job has named"
    ),
    "maxoffsetspertrigger": "--max-offsets-per-trigger sets it",
    "minoffsetspertrigger": _BOUND,
    "maxtriggerdelay": _BOUND,
    "includeheaders": "the job does not read headers",
    "kafka.bootstrap.servers": "--bootstrap-servers sets it",
    "kafka.group.id": _GROUP,
    "kafka.auto.offset.reset": _POSITION,
    "kafka.enable.auto.commit": _POSITION,
    "kafka.isolation.level": (
        "it is read_committed: the records of an aborted transaction are no events"
    ),
    "kafka.key.deserializer": _TYPES,
    "kafka.value.deserializer": _TYPES,
    "kafka.interceptor.classes": "code that changes records would change what a replay computes",
}
"""Options, in lower case because Spark reads them so, and why each is refused."""

_CONNECTOR = {
    name.lower(): name
    for name in (
        "minPartitions",
        "maxRecordsPerPartition",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
    )
}
"""The connector's own options that change no batch."""

_SECRET = re.compile(
    r"pass(word|phrase)|secret|jaas|token|credential|(private|api|access)[._-]?key"
    r"|ssl\.keystore\.key$",
    re.IGNORECASE,
)
_PUBLIC = re.compile(
    r"(url|file|location|uri|\.name|class|sasl\.mechanism|client\.id|source)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Connection:
    """A cluster, and how its clients are set up."""

    servers: str
    options: tuple[tuple[str, str], ...] = ()
    """As given: a secret is still a reference."""
    max_offsets_per_trigger: int | None = None
    """Of each topic, or of all topics of a pattern."""
    accept_data_loss: bool = False
    """Go on over a gap that exists at the start."""
    _revealed: list[str] = field(default_factory=list, repr=False, compare=False)
    _begun: list[bool] = field(default_factory=list, repr=False, compare=False)

    @property
    def accepts_gap(self) -> bool:
        """Whether a gap that is found now is passed: at the first start, never at a restart."""
        return self.accept_data_loss and not self._begun

    def begun(self) -> None:
        """Accept no more gaps: the job has begun, and what a person has seen is passed."""
        self._begun.append(True)

    def resolved(self) -> dict[str, str]:
        """Return all options with the values of their secrets, read again.

        Raises CommandError for a reference that cannot be read.
        """
        found = {"kafka.bootstrap.servers": self.servers, **DEFAULTS}
        for name, value in self.options:
            found[name] = value
            if is_secret(name):
                found[name] = read_reference(f"--kafka-option {name}=", value)
                self._revealed.append(found[name])
        return {**found, **FIXED}

    def client(self) -> dict[str, str]:
        """Return the settings of Kafka's own clients."""
        options = self.resolved()
        return {
            name.removeprefix(_CLIENT): value
            for name, value in options.items()
            if name.startswith(_CLIENT)
        }

    def masked(self, text: str) -> str:
        """Return a text without the secrets that were read so far."""
        for secret in self._revealed:
            text = text.replace(secret, "[secret]")
        return text


def connection(
    servers: str,
    options: Iterable[str],
    max_offsets_per_trigger: int | None,
    *,
    accept_data_loss: bool,
) -> Connection:
    """Return the connection that a command line describes; raises CommandError (usage)."""
    hosts = [each.strip() for each in servers.split(",")]
    for host in hosts:
        if not _SERVER.fullmatch(host):
            raise _usage(f"--bootstrap-servers: {host!r} is not HOST:PORT")
    found = dict(_option(each) for each in options)
    connected = Connection(
        ",".join(hosts), tuple(found.items()), max_offsets_per_trigger, accept_data_loss
    )
    # A reference that cannot be read is found before anything starts.
    connected.resolved()
    return connected


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        # The text may be a secret, so the message does not quote it.
        raise _usage("--kafka-option expects NAME=VALUE")
    lower = name.lower()
    if lower in _REFUSED:
        raise _usage(f"--kafka-option {name} cannot be set: {_REFUSED[lower]}")
    if not lower.startswith(_CLIENT) and lower not in _CONNECTOR:
        known = ", ".join(sorted(_CONNECTOR.values()))
        raise _usage(
            f"--kafka-option {name} is not known: a setting of Kafka's client begins with"
            f" {_CLIENT}, and those of the connector are {known}"
        )
    if is_secret(name) and not _is_reference(value):
        raise _usage(
            f"--kafka-option {name} holds a secret, which everybody who lists processes would see:"
            " write a reference to it, env:NAME or file:PATH"
        )
    if lower.endswith("url") and any(mark in value for mark in "?@"):
        raise _usage(
            f"--kafka-option {name} takes a URL without user and query, which everybody who lists"
            " processes would see"
        )
    return (lower if lower.startswith(_CLIENT) else _CONNECTOR[lower]), value


def is_secret(name: str) -> bool:
    """Return whether an option holds a secret.

    >>> is_secret("kafka.ssl.truststore.password"), is_secret("kafka.ssl.truststore.location")
    (True, False)
    """
    return bool(_SECRET.search(name)) and not _PUBLIC.search(name)


def _is_reference(value: str) -> bool:
    kind, colon, name = value.partition(":")
    return bool(colon and name) and kind in ("env", "file")


def read_reference(option: str, reference: str) -> str:
    """Return the secret of an option; raises CommandError, which does not quote the secret."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        found = os.environ.get(place, "")
        why = "the environment variable is empty or not set"
    else:
        try:
            found, why = Path(place).read_text(), "the file is empty"
        except (OSError, UnicodeDecodeError) as error:
            found, why = "", getattr(error, "strerror", None) or "it is not text"
    if not found.strip():
        raise _usage(f"{option}{reference}: {why}")
    return found.strip()


def starting(text: str) -> str:
    """Return `--starting` as it is recorded: a word, or a time in UTC; raises ValueError.

    >>> starting("2026-11-02T13:00:00+01:00")
    '2026-11-02T12:00:00.000Z'
    """
    if text in (EARLIEST, LATEST):
        return text
    micros = parse_time(text)
    if micros is None:
        raise ValueError(
            f"--starting {text!r} is not earliest, latest, or an RFC 3339 time with a zone"
        )
    if micros < 0:
        # Kafka reads -1 and -2 as its latest and its earliest record.
        raise ValueError(f"--starting {text!r} is before 1970")
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros // 1000 % 1000:03}Z"


def starting_options(kept: str) -> dict[str, str]:
    """Return Spark's options for what `starting` returned."""
    if kept in (EARLIEST, LATEST):
        return {"startingOffsets": kept}
    micros = parse_time(kept)
    return {
        "startingTimestamp": str((micros or 0) // 1000),
        # A partition without a record since then begins at its end.
        "startingOffsetsByTimestampStrategy": "latest",
    }


def require_topic(name: str) -> None:
    """Raise CommandError for a text that Kafka does not accept as the name of a topic."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise _usage(
            f"--topic {name!r} is not a name of a topic: letters, digits, `.`, `_` and `-`, at most"
            " 249 of them. --topic can be repeated"
        )


def _usage(said: str) -> CommandError:
    return CommandError(
        f"{said}. Nothing was started.", ExitCode.USAGE, code="invalid_kafka_option"
    )
