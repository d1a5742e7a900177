"""What Kafka's errors mean, in words for a person. Pure.

The same errors reach the job from its own questions to the broker, and from Spark's batches.
"""

import re
import socket
from collections.abc import Sequence
from typing import NamedTuple

SECONDS_TO_CONNECT = 5


class KafkaFault(Exception):
    """The job cannot read its topics; the message states what was not lost and what to do."""

    def __init__(self, said: str, *, permanent: bool = False, moved: bool = False) -> None:
        """`permanent`: a restart certainly fails in the same way.

        `moved`: what was to be read is not what is there, which the next start names exactly.
        """
        super().__init__(said)
        self.permanent = permanent
        self.moved = moved


class Thrown(NamedTuple):
    """One throwable of a chain."""

    kind: str
    """The simple name of its class."""
    message: str


_KEPT = "Nothing is lost: the checkpoint has the position of each topic"

_GONE = re.compile(
    r"^\[KAFKA_DATA_LOSS|KAFKA_DATA_LOSS\.|^Fetch position .* is out of range for partition"
    r"|data may have been lost because they are not available in Kafka"
)
_MOVED_KINDS = ("OffsetOutOfRangeException", "KafkaIllegalStateException")
_UNKNOWN_TOPIC = ("UnknownTopicOrPartitionException", "UnknownTopicIdException")
_AWAY = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "BrokerNotAvailableException",
)
_KAFKA = re.compile(
    r"kafka|metadata|node assignment|bootstrap|broker|Call: |Cannot fetch record for offset",
    re.IGNORECASE,
)


def fault(chain: Sequence[Thrown], servers: str = "") -> KafkaFault | None:
    """Return what a chain of errors, the outermost first, means; None where it is not of Kafka."""
    at = f" at {servers}" if servers else ""
    for thrown in reversed(chain):
        kind, said = thrown.kind, " ".join(thrown.message.split()).rstrip(". ")
        if "JAAS" in said or kind == "LoginException":
            # The message may quote a part of the value.
            return _refused(f"the JAAS configuration for the cluster{at} cannot be used", "JAAS")
        if kind in ("SaslAuthenticationException", "AuthenticationException"):
            return _refused(f"the cluster{at} refuses the credentials of the job: {said}")
        if kind in ("SslAuthenticationException", "SSLHandshakeException"):
            return _refused(f"TLS with the cluster{at} fails: {said}")
        if kind.endswith("AuthorizationException"):
            return _refused(f"the cluster{at} does not allow it: {said}")
        if kind in ("ConfigException", "InvalidConfigurationException"):
            return _refused(f"a --kafka-option cannot be used: {said}")
        if kind in _UNKNOWN_TOPIC:
            return KafkaFault(
                f"a topic or a partition is gone from the cluster{at}, or its name is unknown"
                f" there: {said}. {_KEPT}.",
                moved=True,
            )
    for thrown in chain:
        if _GONE.search(thrown.message) or thrown.kind in _MOVED_KINDS:
            said = " ".join(thrown.message.split()).rpartition("Reason: ")[2]
            said = said.partition("SQLSTATE")[0].rstrip(". ")
            return KafkaFault(
                f"records that were to be read are not in the topic any more: {said}. Nothing of"
                " the batch was written. A start names what is missing, and --accept-data-loss goes"
                " on after it.",
                moved=True,
            )
    for thrown in chain:
        if "resolvable bootstrap" in thrown.message or (
            thrown.kind in _AWAY and _KAFKA.search(thrown.message)
        ):
            return away(servers, " ".join(thrown.message.split()).rstrip(". "))
    return None


def _refused(said: str, option: str = "") -> KafkaFault:
    way = "correct kafka.sasl.jaas.config" if option else "correct the --kafka-option values"
    if "Not authorized to access group" in said:
        way = (
            "allow the job its consumer group: --kafka-option groupIdPrefix=NAME sets the beginning"
            " of the name that Spark gives it"
        )
    elif "Not authorized" in said:
        way = "allow the job to describe and read it"
    return KafkaFault(f"{said}. {_KEPT}; {way} and start again.", permanent=True)


def away(servers: str, why: str) -> KafkaFault:
    """Return the fault of a cluster that does not answer."""
    where = f"no broker at {servers} answers" if servers else "the Kafka cluster does not answer"
    return KafkaFault(f"{where}: {why}. {_KEPT}, and continues when a broker answers.")


def require_server(servers: str) -> None:
    """Raise KafkaFault unless one of the servers accepts a connection. Needs no jar."""
    reasons: list[str] = []
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        try:
            address = (host.strip("[]"), int(port))
            with socket.create_connection(address, SECONDS_TO_CONNECT):
                return
        except UnicodeError:  # a label of the name is empty or too long
            reasons.append(f"{host} is not the name of a host")
        except (OSError, OverflowError) as error:
            reasons.append(str(getattr(error, "strerror", None) or error))
    raise away(servers, "; ".join(dict.fromkeys(reasons)).lower())
