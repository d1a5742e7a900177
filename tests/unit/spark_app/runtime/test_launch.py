"""What starts Spark: the Java, `--master`, `--conf`, and the options of a job."""

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from typer.testing import CliRunner

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.cli import app
from holdfast.spark_app.command.values import mebibytes, milliseconds
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import ELSEWHERE, FIXED, Launch, of_this_machine
from tests.support.documents.pages import ROOT

PAGES = (
    "docs/spark/cluster.md",
    "docs/spark/kubernetes.md",
    "deploy/kubernetes/components/job-spark-operator/job.yaml",
)
OPEN_ENDED = re.compile(
    r"(spark\.kubernetes\.(?:driver|executor)\.(?:volumes|secrets|secretKeyRef|label)\.)\w"
    r"|(spark\.kubernetes\.authenticate\.driver)\.serviceAccountName"
)
"""Settings that Spark knows by their beginning."""
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb."
"""Settings that Spark knows by their end."""

_NAME = re.compile(r"\bspark\.(?!apache\.org)[A-Za-z][\w.]*\w")
_HOLDERS = ("/config/", "SQLConf", "SqlApiConf", "/k8s/", "SparkLauncher", "RocksDBConf")


def test_settings_are_read_and_keep_an_equals_sign_in_their_value() -> None:
    launch = Launch.read(
        "spark://m:1", ["spark.executor.memory=2g", "spark.x= -Da=b "], submitted=False
    )
    assert launch == Launch("spark://m:1", {"spark.executor.memory": "2g", "spark.x": "-Da=b"})
    assert Launch.read(None, [], submitted=True) == Launch()


@pytest.mark.parametrize("name", [*FIXED, *ELSEWHERE])
def test_settings_of_holdfast_are_refused_with_what_says_them(name: str) -> None:
    with pytest.raises(CommandError, match=re.escape(f"--conf {name} is ")) as refused:
        Launch.read(None, [f"{name}=x"], submitted=False)
    assert refused.value.exit_code == ExitCode.USAGE
    assert str(refused.value).endswith(". Nothing was started.")


@pytest.mark.parametrize(
    "text", ["spark.executor.memory", "executor.memory=1g", "", "=", "--master"]
)
def test_text_that_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="expected NAME=VALUE"):
        Launch.read(None, [text], submitted=False)


@pytest.mark.parametrize("text", ["sesame", "sesame=", "secret.key=sesame"])
def test_text_that_is_no_setting_is_not_quoted(text: str) -> None:
    with pytest.raises(CommandError) as refused:
        Launch.read(None, [text], submitted=False)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize("what", ["CorruptFiles", "MissingFiles"])
def test_no_setting_lets_spark_skip_a_file(what: str) -> None:
    assert FIXED[f"spark.sql.files.ignore{what}"] == "false"


@pytest.mark.parametrize(("master", "conf"), [("local", []), (None, ["spark.x=1"])])
def test_under_spark_submit_both_come_too_late(master: str | None, conf: list[str]) -> None:
    with pytest.raises(CommandError, match="give them to spark-submit"):
        Launch.read(master, conf, submitted=True)


def test_only_a_local_master_keeps_the_driver_to_itself() -> None:
    masters = ["local", "local[2]", "local[*,4]", "local-cluster[2,1,1024]", "spark://h:7077"]
    assert [of_this_machine(master) for master in masters] == [True, True, True, False, False]


def test_every_setting_that_is_named_exists_in_spark() -> None:
    named = {*FIXED, *ELSEWHERE}
    for page in PAGES:
        named |= set(_NAME.findall((ROOT / page).read_text()))
    known = set(_known(named | {"spark.holdfast.noSuchSetting"}))
    assert named - known == set()
    assert "spark.holdfast.noSuchSetting" not in known


def _known(names: set[str]) -> Iterator[str]:
    """Yield the names that are text constants of the classes in which Spark declares settings.

    A constant of a class file is the byte 1, its length in two bytes, and the text.
    """
    declared = {name: _constant(name) for name in names}
    jars = Path(pyspark.__file__).parent / "jars"
    for jar in sorted(jars.glob("spark-*.jar")):
        with zipfile.ZipFile(jar) as classes:
            for entry in classes.namelist():
                if entry.endswith(".class") and any(part in entry for part in _HOLDERS):
                    content = classes.read(entry)
                    yield from (name for name, text in declared.items() if text in content)


def _constant(name: str) -> bytes:
    open_ended = OPEN_ENDED.match(name)
    known = next(filter(None, open_ended.groups())) if open_ended else name.removeprefix(ROCKSDB)
    return b"\x01" + struct.pack(">H", len(known)) + known.encode()


def _java(home: Path, script: str) -> None:
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is 11.0.2"),
        ("echo 'openjdk version \"25.0.2\" 2026-01-20' >&2", "is 25.0.2"),
        ("echo 'no idea' >&2", "is unknown"),
        ("exit 1", "does not run"),
    ],
)
def test_an_unfit_java_is_one_line_that_says_what_to_do(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError) as raised:
        require_java()
    message = str(raised.value)
    assert expected in message
    assert "holdfast local env" in message
    assert "\n" not in message


def test_no_java_at_all_is_one_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match="there is none"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CommandError, match="does not run"):
        require_java()


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
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512), ("1 MB", 1), ("2g", 2048), (" 16GB ", 16384)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert mebibytes(text) == size


@pytest.mark.parametrize("text", ["", "512", "m", "0m", "-1m", "1.5g", "512k", "512mm"])
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: expected a number"):
        mebibytes(text)


@pytest.mark.parametrize("given", [{}, {"spark.jars": "connector.jar"}], ids=["none", "one"])
def test_jar_of_the_checkpoint_is_beside_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    jar = tmp_path / "checkpoint.jar"
    monkeypatch.setattr(session, "manager_jar", lambda: jar)
    assert session._settings(Launch(conf=given)).get("spark.jars", "") == ",".join(given.values())
    jar.touch()
    assert session._settings(Launch(conf=given))["spark.jars"] == ",".join(
        [*given.values(), str(jar)]
    )
