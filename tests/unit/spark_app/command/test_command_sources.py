"""The options of `job run` that say where events come from."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.cli import app

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
    ("options", "said"),
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
def test_options_that_do_not_go_together_are_refused_in_a_sentence(
    options: tuple[str, ...], said: str
) -> None:
    assert said in _refused(*options)


def test_without_the_connector_the_coordinates_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_KAFKA_JARS", raising=False)
    said = _refused(*KAFKA)
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:" in said
    assert "make kafka-jars" in said
