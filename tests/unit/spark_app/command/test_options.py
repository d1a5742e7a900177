"""The options of `job run`: where events come from, and values as people write them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.cli import app
from holdfast.spark_app.command.values import mebibytes, milliseconds

RUN = ("run", "--checkpoint", "/nowhere/ck", "--stream", "s", "--policy", "p.toml", "--dsn", "x=y")
KAFKA = ("--bootstrap-servers", "127.0.0.1:1", "--topic", "pay")
AVRO = (*KAFKA, "--value-format", "avro")


def _refused(*options: str) -> str:
    raised = CliRunner().invoke(app, [*RUN, *options]).exception
    assert isinstance(raised, CommandError), raised
    assert raised.exit_code is ExitCode.USAGE
    assert "Nothing was started" in str(raised)
    return str(raised)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--path, or topics with --topic"),
        (("--source", "files"), "--path is missing"),
        (("--source", "kafka"), "--topic is missing"),
        (("--source", "files", *KAFKA), "--topic is an option of topics"),
        (("--source", "kafka", "--path", "e", *KAFKA), "--path is an option of files"),
        (("--source", "kafka", "--max-files-per-trigger", "1", *KAFKA), "--max-files-per-trigger"),
        (("--path", "e", "--starting", "latest"), "--starting is an option of topics"),
        (("--path", "e", "--accept-data-loss"), "--accept-data-loss is an option of topics"),
        ((*KAFKA, "--topic-pattern", "p.*"), "exclude each other"),
        ((*KAFKA, "--topic", "pay"), "twice"),
        (("--topic", "pay"), "--bootstrap-servers is missing"),
        ((*KAFKA, "--topic", "a,b"), "not a name of a topic"),
        ((*KAFKA, "--starting", "yesterday"), "RFC 3339"),
        ((*KAFKA, "--kafka-option", "failOnDataLoss=false"), "--accept-data-loss"),
        ((*KAFKA, "--avro-schema", "a"), "--avro-schema is an option of --value-format avro"),
        ((*KAFKA, "--value-format", "avro"), "needs either --avro-schema"),
        ((*AVRO, "--avro-schema", "a", "--schema-registry", "http://r"), "needs either"),
        ((*AVRO, "--avro-schema", "a", "--schema-registry-ca", "env:CA"), "of --schema-registry"),
        ((*AVRO, "--avro-schema", "/nowhere/a"), "--avro-schema /nowhere/a cannot be read"),
        (("--path", "e", "--value-format", "avro"), "--value-format is an option of topics"),
        ((*KAFKA, "--jars", "/nowhere/a.jar"), "there is no file /nowhere/a.jar"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: tuple[str, ...], message: str) -> None:
    assert message in _refused(*options)


def test_missing_connector_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_KAFKA_JARS", raising=False)
    refusal = _refused(*KAFKA)
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:" in refusal
    assert "make kafka-jars" in refusal


@pytest.mark.parametrize(
    ("text", "value"),
    [("0s", 0), ("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1 h", 3_600_000)],
)
def test_durations_are_read(text: str, value: int) -> None:
    assert milliseconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "-1s", "1.5s", "1d", "s", "1s2m"])
def test_other_texts_are_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512), ("1 MB", 1), ("2g", 2048), (" 16GB ", 16384)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize("text", ["", "512", "m", "0m", "-1m", "1.5g", "512k", "512mm"])
def test_what_is_no_size_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: expected a number"):
        mebibytes(text)
