"""What Kafka's errors mean for the job: wait for the cluster, or ask a person."""

import socket

import pytest

from holdfast.spark_app.input.kafka_faults import KafkaFault, Thrown, fault, require_server
from holdfast.spark_app.lifecycle.failure import Cause, diagnose

WRAPPED = [Thrown("StreamingQueryException", "Query q [id = 1] terminated"), Thrown("E", "boom")]


@pytest.mark.parametrize(
    ("kind", "message", "permanent", "said"),
    [
        ("TimeoutException", "Timed out waiting for a node assignment. Call: x", False, "answers"),
        ("KafkaException", "No resolvable bootstrap urls given in x", False, "answers"),
        ("SaslAuthenticationException", "Authentication failed: bad", True, "credentials"),
        ("SslAuthenticationException", "SSL handshake failed", True, "TLS"),
        ("TopicAuthorizationException", "Not authorized to access topics: [p]", True, "describe"),
        ("GroupAuthorizationException", "Not authorized to access group: g", True, "groupIdPrefix"),
        ("ConfigException", "Invalid value x for configuration y", True, "--kafka-option"),
        ("UnknownTopicOrPartitionException", "This server does not host", False, "is gone"),
    ],
)
def test_an_error_of_the_client_is_said_in_words(
    kind: str, message: str, permanent: bool, said: str
) -> None:
    found = fault([*WRAPPED, Thrown(kind, message)], "kafka:9092")
    assert found is not None
    assert found.permanent is permanent
    assert said in str(found)
    assert "kafka:9092" in str(found) or kind == "ConfigException"
    assert "Nothing is lost" in str(found)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "KafkaException",
            "Fetch position FetchPosition{offset=3} is out of range for partition p-0",
        ),
        ("OffsetOutOfRangeException", "Fetch position is out of range"),
        (
            "KafkaIllegalStateException",
            "[KAFKA_DATA_LOSS.X] Set failOnDataLoss to false. Reason: p-0 is gone. SQLSTATE: 1",
        ),
    ],
)
def test_records_that_are_gone_are_never_an_outage(kind: str, message: str) -> None:
    found = fault([*WRAPPED, Thrown(kind, message)])
    assert found is not None
    assert found.moved
    assert "--accept-data-loss" in str(found)
    assert "failOnDataLoss" not in str(found)


def test_a_jaas_configuration_is_never_quoted() -> None:
    said = "Value not specified for key 'hunter2' in JAAS config"
    found = fault([Thrown("IllegalArgumentException", said)], "kafka:9092")
    assert found is not None
    assert found.permanent
    assert "hunter2" not in str(found)


def test_other_errors_are_not_those_of_kafka() -> None:
    assert fault([*WRAPPED, Thrown("TimeoutException", "Futures timed out after 5 s")]) is None


def test_a_fault_of_kafka_ends_the_query_with_its_own_words() -> None:
    away = diagnose(KafkaFault("no broker answers."))
    assert (away.cause, away.permanent, away.message) == (Cause.KAFKA, False, "no broker answers.")
    assert diagnose(KafkaFault("refused", permanent=True)).permanent


def test_servers_that_do_not_answer_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_, closed = server.getsockname()[1], 1
        require_server(f"127.0.0.1:{closed},127.0.0.1:{open_}")
    with pytest.raises(KafkaFault) as raised:
        require_server(f"127.0.0.1:{closed},127.0.0.1:{open_}")
    assert f"127.0.0.1:{closed},127.0.0.1:{open_}" in str(raised.value)
    assert "refused" in str(raised.value)


def test_server_whose_name_is_no_name_is_said_in_a_sentence() -> None:
    with pytest.raises(KafkaFault, match=r"no broker at a\.\.b:9092 answers"):
        require_server("a..b:9092")
