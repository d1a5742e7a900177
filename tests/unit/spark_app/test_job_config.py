"""The options of `job run` in a file: the same ones, behind the command line; never a secret."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.checkpoint import MANAGER_CLASS, MANAGER_SETTING
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.command.options import JobOptions, read_config, written
from holdfast.spark_app.command.sources import Source
from holdfast.spark_app.input.formats import Format, KeyRule, ValueFormat
from tests.support.command import holdfast

REQUIRED = ("--checkpoint", "ck", "--stream", "payouts", "--policy", "policy.toml")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXTS = st.lists(TEXT, max_size=3)
OPTIONS = st.builds(
    JobOptions,
    checkpoint=TEXT.filter(bool),
    stream=TEXT.filter(bool),
    policy=TEXT.filter(bool).map(Path),
    source=st.none() | st.sampled_from(Source),
    path=TEXTS,
    topic=TEXTS,
    topic_pattern=st.none() | TEXT,
    kafka_key=st.sampled_from(KeyRule),
    value_format=st.sampled_from(ValueFormat),
    avro_schema=st.none() | TEXT.filter(bool).map(Path),
    accept_data_loss=st.booleans(),
    format=st.sampled_from(Format),
    max_files_per_trigger=st.none() | st.integers(1, 10**6),
    trigger_interval=TEXT,
    key_groups=st.none() | st.integers(1, 4096),
    metrics_port=st.integers(0, 65535),
    doorbell=st.booleans(),
    keep_for=st.none() | TEXT,
)


@given(OPTIONS)
def test_written_file_gives_the_same_options(options: JobOptions) -> None:
    content = tomllib.loads("\n".join(written(options)))
    kinds = {"policy": Path, "avro_schema": Path, "source": Source, "format": Format}
    kinds |= {"kafka_key": KeyRule, "value_format": ValueFormat}
    parsed: dict[str, Any] = {n: kinds[n](v) if n in kinds else v for n, v in content.items()}
    assert JobOptions(**parsed) == options


SECRETS = (
    ("--conf", "spark.hadoop.fs.s3a.secret.key=hush"),
    ("--conf", "spark.driver.extraJavaOptions=-Dstore.password=hush"),
    ("--kafka-option", "kafka.ssl.keystore.password=hush"),
    ("--kafka-option", "kafka.sasl.jaas.config=PlainLogin username=u x=hush"),
    ("--schema-registry", "http://u:hush@registry"),
    ("--path", "s3a://key:hush@bucket/events"),
    ("--path", "s3a://key:hush@bucket/day=2"),
    ("--path", "s3a://key:with/hush@bucket/events"),
    ("--path", "file://u:hush@h/events"),
    ("--jars", "https://u:hush@nexus/a.jar?v=1"),
    ("--schema-registry-user", "alice:hush"),
    ("--kafka-option", "kafka.ssl.keystore.key=hush"),
    ("--kafka-option", "kafka.sasl.oauthbearer.assertion.passphrase=hush"),
    ("--conf", "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net=hush"),
    ("--conf", "spark.hadoop.fs.azure.sas.fixed.a=hush"),
    ("--conf", "spark.hadoop.google.cloud.auth.service.account.private.key=hush"),
    ("--conf", "spark.hadoop.fs.s3a.encryption.key=hush"),
    ("--master", "spark://u:hush@master:7077"),
    ("--dsn", "postgresql://u:hush@h/d"),
)


@pytest.mark.parametrize("given", SECRETS, ids=[f"{a} {b}" for a, b in SECRETS])
def test_printed_file_has_no_secret_of_any_option(given: tuple[str, str]) -> None:
    done = holdfast("job", "run", *REQUIRED, *given, "--print-config", code=ExitCode.OK)
    assert "hush" not in done.stdout + done.stderr
    assert "is not written" in done.stdout


def test_reference_to_a_secret_is_written() -> None:
    given = ("--kafka-option", "kafka.ssl.keystore.password=env:STORE")
    printed = holdfast("job", "run", *REQUIRED, *given, "--print-config", code=ExitCode.OK).stdout
    assert tomllib.loads(printed)["kafka_option"] == [given[1]]
    given = ("--schema-registry-user", "file:/run/secrets/registry")
    printed = holdfast("job", "run", *REQUIRED, *given, "--print-config", code=ExitCode.OK).stdout
    assert tomllib.loads(printed)["schema_registry_user"] == given[1]


def test_no_secret_is_written() -> None:
    conf = ["spark.hadoop.fs.s3a.secret.key=hush1", "spark.executor.memory=2g"]
    options = JobOptions(
        checkpoint="ck",
        stream="payouts",
        policy=Path("policy.toml"),
        dsn="postgresql://u:hush2@h/d",
        conf=conf,
    )
    lines = list(written(options))
    assert "hush" not in "\n".join(lines)
    assert tomllib.loads("\n".join(lines))["conf"] == conf[1:]
    assert [each for each in lines if each.startswith("# conf spark.hadoop.fs.s3a.secret.key")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("trigger_intervall = '1s'", ("trigger_intervall", "trigger_interval")),
        ("metrics_port = '9464'", ("metrics_port", "whole number")),
        ("doorbell = 1", ("doorbell", "true or false")),
        ("path = 'events'", ("path", "list of texts")),
        ("path = [1]", ("path", "list of texts")),
        ("path = [", ("cannot be read",)),
        ("partitions = 0", ("partitions", "at least 1")),
        ("metrics_port = 70000", ("metrics_port", "0 to 65535")),
        ("format = 'xml'", ("format", "json")),
        ("dsn = ['hush']", ("dsn", "a text")),
    ],
)
def test_unusable_file_is_refused_by_name(
    tmp_path: Path, content: str, words: tuple[str, ...]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(content)
    with pytest.raises(CommandError) as refused:
        read_config(file)
    assert (refused.value.exit_code, refused.value.code) == (ExitCode.USAGE, "invalid_config")
    assert all(word in str(refused.value) for word in (str(file), "Nothing was started", *words))
    assert "hush" not in str(refused.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


def test_command_line_comes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('stream = "payouts"\npolicy = "policy.toml"\nmetrics_port = 9464\npath = ["a"]')
    given = ("--config", str(file), "--checkpoint", "ck", "--metrics-port", "9465")
    printed = holdfast("job", "run", *given, "--print-config", code=ExitCode.OK).stdout
    assert tomllib.loads(printed) == {
        "checkpoint": "ck",
        "stream": "payouts",
        "policy": "policy.toml",
        "path": ["a"],
        "metrics_port": 9465,
    }
    file.write_text(printed)
    again = holdfast("job", "run", "--config", str(file), "--print-config", code=ExitCode.OK)
    assert again.stdout == printed


def test_limits_and_required_options_hold_for_a_file(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('stream = "payouts"\npolicy = "policy.toml"\n')
    refused = holdfast("job", "run", "--config", str(file), code=ExitCode.USAGE)
    assert "--checkpoint" in refused.stderr
    file.write_text("metrics_port = 70000\n")
    refused = holdfast("job", "run", "--config", str(file), *REQUIRED, code=ExitCode.USAGE)
    assert "metrics_port" in refused.stderr


def test_printed_default_is_left_out() -> None:
    printed = holdfast("job", "run", *REQUIRED, "--print-config", code=ExitCode.OK).stdout
    assert json.dumps(tomllib.loads(printed)) == json.dumps(
        {"checkpoint": "ck", "stream": "payouts", "policy": "policy.toml"}
    )


def test_checkpoint_on_s3_prints_the_limits_that_spark_gets() -> None:
    of_s3 = ("--stream", "payouts", "--policy", "p.toml", "--checkpoint", "s3a://bucket/ck")
    own = ("--conf", "spark.hadoop.fs.s3a.retry.limit=9")
    printed = holdfast("job", "run", *of_s3, *own, "--print-config", code=ExitCode.OK).stdout
    assert "# spark.hadoop.fs.s3a.connection.timeout=15s\n" in printed
    assert printed.count("fs.s3a.retry.limit") == 1
    assert f"# {MANAGER_SETTING}={MANAGER_CLASS}\n" in printed
    assert set(tomllib.loads(printed)) == {"checkpoint", "stream", "policy", "conf"}
