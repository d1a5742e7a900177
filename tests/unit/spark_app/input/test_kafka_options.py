"""How a cluster is named: which options are accepted, and what never shows a secret."""

from pathlib import Path

import pytest

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input import connector
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

SECRET = "correct horse; battery"


def _connection(*options: str, servers: str = "kafka:9092") -> Connection:
    return connection(servers, options, None, accept_data_loss=False)


@pytest.mark.parametrize("name", sorted(_REFUSED))
@pytest.mark.parametrize("spelling", [str, str.upper])
def test_an_option_that_breaks_a_guarantee_is_refused_in_any_spelling(
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


def test_a_secret_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_connector_is_what_is_given_else_what_a_folder_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    for found in (lambda: connector.find((), ()), lambda: connector.find(("gone.jar",), ())):
        with pytest.raises(CommandError):
            found()


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
