"""Kafka: how a cluster is named, what its records become, and what its errors mean."""

import json
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input import connector
from holdfast.spark_app.input.formats import KeyRule
from holdfast.spark_app.input.kafka import RecordParser
from holdfast.spark_app.input.kafka_faults import KafkaFault, Thrown, fault, require_server
from holdfast.spark_app.input.kafka_options import (
    _REFUSED,
    DEFAULTS,
    FIXED,
    Connection,
    connection,
    is_secret,
    require_topic,
    starting,
    starting_options,
)
from holdfast.spark_app.input.lines import parse_lines
from holdfast.spark_app.input.validate import validate
from holdfast.spark_app.lifecycle.failure import Cause, diagnose

SECRET = "correct horse; battery"


def _connection(*options: str, servers: str = "kafka:9092") -> Connection:
    return connection(servers, options, None, accept_data_loss=False)


@pytest.mark.parametrize("name", sorted(_REFUSED))
@pytest.mark.parametrize("spelling", [str, str.upper])
def test_option_that_breaks_a_guarantee_is_refused_in_any_spelling(
    name: str, spelling: "type[str]"
) -> None:
    with pytest.raises(CommandError) as raised:
        _connection(f"{spelling(name)}=1")
    assert raised.value.exit_code is ExitCode.USAGE
    assert "cannot be set" in str(raised.value)


@pytest.mark.parametrize("given", ["kafkaConsumer", "retries=3", "=x", "a b=c", "failOnDataloss"])
def test_an_unknown_option_is_refused_without_its_value(given: str) -> None:
    with pytest.raises(CommandError):
        _connection(given)
    with pytest.raises(CommandError) as raised:
        _connection(f"unknown={SECRET}")
    assert SECRET not in str(raised.value)


def test_what_is_fixed_wins_and_defaults_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    made = _connection(
        "kafka.security.protocol=SASL_SSL",
        "KAFKA.request.timeout.ms=7000",
        f"kafka.ssl.truststore.password=file:{tmp_path}/password",
        "groupidprefix=payouts",
    )
    options = made.resolved()
    assert options.items() >= FIXED.items()
    assert options["groupIdPrefix"] == "payouts"
    assert options["kafka.bootstrap.servers"] == "kafka:9092"
    client = made.client()
    assert client["ssl.truststore.password"] == SECRET
    assert client["request.timeout.ms"] == "7000"
    assert client["default.api.timeout.ms"] == DEFAULTS["kafka.default.api.timeout.ms"]
    assert "failOnDataLoss" not in client
    assert SECRET not in repr(made)
    assert made.masked(f"cannot use {SECRET!s} here") == "cannot use [secret] here"


def test_secret_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAAS", "first")
    made = _connection("kafka.sasl.jaas.config=env:JAAS")
    monkeypatch.setenv("JAAS", "second")
    assert made.client()["sasl.jaas.config"] == "second"
    assert made.masked("first second") == "[secret] [secret]"


@pytest.mark.parametrize(
    "name",
    [
        *("kafka.sasl.jaas.config", "kafka.ssl.keystore.password", "kafka.ssl.key.password"),
        *("kafka.ssl.truststore.password", "kafka.ssl.keystore.key"),
        *("kafka.sasl.oauthbearer.client.credentials.client.secret", "kafka.my.private.key"),
        *("kafka.my.credentials", "kafka.my.api.key", "kafka.my.apiKey"),
    ],
)
@pytest.mark.parametrize("value", [SECRET, "env:", "env:NOBODY_SET_IT", "file:/nowhere/at/all"])
def test_a_secret_is_a_reference_that_can_be_read(name: str, value: str) -> None:
    with pytest.raises(CommandError) as raised:
        _connection(f"{name}={value}")
    assert raised.value.exit_code is ExitCode.USAGE
    assert SECRET not in str(raised.value)
    assert is_secret(name)


def test_settings_that_only_sound_like_secrets_are_written_out() -> None:
    for name in (
        *("kafka.ssl.truststore.location", "kafka.ssl.keystore.location"),
        *("kafka.ssl.keystore.type", "kafka.sasl.mechanism", "kafka.security.protocol"),
        *("kafka.sasl.oauthbearer.token.endpoint.url", "kafka.my.private.key.file"),
        *("kafka.sasl.oauthbearer.client.credentials.client.id", "kafka.my.credentials.source"),
    ):
        assert dict(_connection(f"{name}=value").options) == {name: "value"}


@pytest.mark.parametrize("url", [f"https://idp/token?a={SECRET}", f"https://job:{SECRET}@idp/"])
def test_url_holds_no_secret(url: str) -> None:
    with pytest.raises(CommandError) as raised:
        _connection(f"kafka.sasl.oauthbearer.token.endpoint.url={url}")
    assert raised.value.exit_code is ExitCode.USAGE
    assert SECRET not in str(raised.value)
    assert "without user and query" in str(raised.value)


@pytest.mark.parametrize("servers", ["", "kafka", "kafka:", "kafka:9092,", "http://kafka:9092"])
def test_servers_without_a_port_are_refused(servers: str) -> None:
    with pytest.raises(CommandError) as raised:
        _connection(servers=servers)
    assert "HOST:PORT" in str(raised.value)


def test_servers_are_a_list_of_hosts_and_ports() -> None:
    assert _connection(servers="a:1, [::1]:2").servers == "a:1,[::1]:2"


@pytest.mark.parametrize("name", ["", "a,b", "a b", ".", "..", "x" * 250, "é"])
def test_a_name_that_kafka_does_not_accept_is_refused(name: str) -> None:
    with pytest.raises(CommandError):
        require_topic(name)
    require_topic("payments.events_v1-eu")


def test_a_new_topic_begins_at_a_word_or_a_time() -> None:
    assert starting_options(starting("latest")) == {"startingOffsets": "latest"}
    kept = starting("2026-11-02T13:00:00.25+01:00")
    assert kept == "2026-11-02T12:00:00.250Z"
    assert starting_options(kept) == {
        "startingTimestamp": "1793620800250",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    for wrong in ("newest", "2026-11-02", "2026-11-02T12:00:00", "1793620800"):
        with pytest.raises(ValueError, match="RFC 3339"):
            starting(wrong)


def test_connector_is_given_or_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(connector.ENVIRONMENT, raising=False)
    with pytest.raises(CommandError) as raised:
        connector.find((), ())
    assert connector.COORDINATES in str(raised.value)
    assert "make kafka-jars" in str(raised.value)
    staged, other = tmp_path / connector.STAGED, tmp_path / "other"
    for folder in (staged, other):
        folder.mkdir(parents=True)
        for name in ("spark-sql-kafka-0-10_2.13-4.2.0.jar", "kafka-clients-3.9.2.jar"):
            (folder / name).touch()
    names = sorted(map(str, staged.glob("*.jar")))
    assert connector.find((), ()).settings == {"spark.jars": ",".join(names)}
    monkeypatch.setenv(connector.ENVIRONMENT, str(other))
    assert {Path(jar).parent for jar in connector.find((), ()).paths} == {other}
    one = str(other / "kafka-clients-3.9.2.jar")
    assert connector.find((one,), ("a:b:1",)).settings == {
        "spark.jars": one,
        "spark.jars.packages": "a:b:1",
    }
    monkeypatch.setenv(connector.ENVIRONMENT, str(tmp_path / "empty"))
    for find in (lambda: connector.find((), ()), lambda: connector.find(("gone.jar",), ())):
        with pytest.raises(CommandError):
            find()


@pytest.mark.parametrize("before", ["1969-12-31T23:59:59.999Z", "0999-01-01T00:00:00Z"])
def test_a_time_before_1970_is_none_to_start_at(before: str) -> None:
    """Kafka reads -1 ms as its latest record."""
    with pytest.raises(ValueError, match="before 1970"):
        starting(before)


def test_a_gap_is_accepted_at_the_start_and_never_at_a_restart() -> None:
    accepting = connection("h:1", [], None, accept_data_loss=True)
    assert accepting.accepts_gap
    accepting.begun()
    assert not accepting.accepts_gap
    assert not connection("h:1", [], None, accept_data_loss=False).accepts_gap


POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')

SCHEMA = pa.schema(
    {
        "value": pa.binary(),
        "key": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)


def _event(number: int, merchant: str = "m_1", **other: Any) -> bytes:
    row = {
        "event_id": f"e{number}",
        "merchant_id": merchant,
        "type": "payout_submitted",
        "amount_minor": number,
        "currency": "USD",
        "occurred_at": "2026-11-02T12:00:00Z",
    }
    return json.dumps(row | other).encode()


def _read(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    rule: KeyRule = KeyRule.IGNORED,
) -> tuple[list[str], list[dict[str, str]]]:
    """The ids of the accepted events, and the refused rows."""
    count = len(values)
    columns = [
        values,
        keys or [None] * count,
        ["pay"] * count,
        [3] * count,
        range(100, 100 + count),
    ]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    good, refused = validate(RecordParser(parse_lines, rule)(batch), POLICY)
    return good["event_id"].to_pylist(), refused.to_pylist()


def test_a_refused_record_is_named_by_topic_partition_and_offset() -> None:
    good, refused = _read([_event(1), b"{", _event(2), _event(3, amount_minor="5")])
    assert good == ["e1", "e2"]
    assert [(row["reason"], row["detail"].partition(":")[0]) for row in refused] == [
        ("malformed", "pay, partition 3, offset 101"),
        ("bad_amount", "pay, partition 3, offset 103"),
    ]
    assert refused[0]["row"] == "{"


def test_a_record_without_a_value_is_refused_and_moves_no_other() -> None:
    good, refused = _read([None, _event(1), b"", b" \n", _event(2, currency="EUR"), None])
    assert good == ["e1"]
    assert {row["detail"].partition(":")[0][-3:]: row["reason"] for row in refused} == {
        "104": "wrong_currency",
        **dict.fromkeys(("100", "102", "103", "105"), "malformed"),
    }
    assert [row["row"] for row in refused if "tombstone" in row["detail"]] == ["null", "null"]


def test_key_is_checked_only_where_that_is_asked_for() -> None:
    values: list[bytes | None] = [_event(1), _event(2), _event(3), _event(4, "é"), b"{"]
    keys = [b"m_1", b"m_2", None, "é".encode(), b"x"]
    good, refused = _read(values, keys)
    assert (good, len(refused)) == (["e1", "e2", "e3", "e4"], 1)
    good, refused = _read(values, keys, KeyRule.MERCHANT_ID)
    assert good == ["e1", "e4"]
    assert [row["reason"] for row in refused] == ["bad_key", "bad_key", "malformed"]
    assert "'m_2'" in refused[0]["detail"]
    assert "no key" in refused[1]["detail"]


def test_a_key_that_is_not_text_is_shown_and_refused() -> None:
    _, [refused] = _read([_event(1)], [b"\xff\x00"], KeyRule.MERCHANT_ID)
    assert refused["reason"] == "bad_key"
    assert "xff" in refused["detail"]


_VALUES = st.one_of(
    st.none(),
    st.sampled_from([b"", b" ", b"\n" * 99, b"{", b"[]", b"\xff", b"{}"]),
    st.integers(0, 99).map(_event),
)


@given(st.lists(_VALUES, max_size=12))
def test_every_record_is_an_event_or_refused_by_offset(values: list[bytes | None]) -> None:
    good, refused = _read(values)
    assert len(good) + len(refused) == len(values)
    offsets = [int(row["detail"].partition(":")[0].rpartition(" ")[2]) - 100 for row in refused]
    assert [
        f"e{json.loads(v or b'0')['amount_minor']}"
        for n, v in enumerate(values)
        if n not in offsets
    ] == good


@pytest.mark.parametrize("rule", KeyRule)
def test_no_records_are_no_events(rule: KeyRule) -> None:
    assert _read([], [], rule) == ([], [])


WRAPPED = [Thrown("StreamingQueryException", "Query q [id = 1] terminated"), Thrown("E", "boom")]


@pytest.mark.parametrize(
    ("kind", "message", "permanent", "expected"),
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
def test_client_error_is_reported(kind: str, message: str, permanent: bool, expected: str) -> None:
    diagnosis = fault([*WRAPPED, Thrown(kind, message)], "kafka:9092")
    assert diagnosis is not None
    assert diagnosis.permanent is permanent
    assert expected in str(diagnosis)
    assert "kafka:9092" in str(diagnosis) or kind == "ConfigException"
    assert "Nothing is lost" in str(diagnosis)


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
    diagnosis = fault([*WRAPPED, Thrown(kind, message)])
    assert diagnosis is not None
    assert diagnosis.moved
    assert "--accept-data-loss" in str(diagnosis)
    assert "failOnDataLoss" not in str(diagnosis)


def test_a_jaas_configuration_is_never_quoted() -> None:
    message = "Value not specified for key 'hunter2' in JAAS config"
    diagnosis = fault([Thrown("IllegalArgumentException", message)], "kafka:9092")
    assert diagnosis is not None
    assert diagnosis.permanent
    assert "hunter2" not in str(diagnosis)


def test_other_errors_are_not_those_of_kafka() -> None:
    assert fault([*WRAPPED, Thrown("TimeoutException", "Futures timed out after 5 s")]) is None


def test_kafka_fault_ends_the_query_with_its_message() -> None:
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


def test_invalid_server_name_is_one_sentence() -> None:
    with pytest.raises(KafkaFault, match=r"no broker at a\.\.b:9092 answers"):
        require_server("a..b:9092")
