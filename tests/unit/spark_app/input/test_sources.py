"""The sources of a checkpoint: which it has, in which order, and what a later start may change."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.shape import VERSION, Shape, grown, sources_of
from holdfast.spark_app.exposure.policy import Policy
from holdfast.spark_app.input.formats import Format, KeyRule
from holdfast.spark_app.input.source import absolute, require_apart, require_directory
from holdfast.spark_app.input.sources import (
    Files,
    Kafka,
    Source,
    Ticks,
    followed_by,
    from_json,
    to_json,
)
from holdfast.spark_app.operator.job import Job

POLICY = Policy.parse('version = "v1"\n[[default]]\nlimit_minor = 100\nrelease_level_minor = 100\n')
JOB = Job(("/a", "/b"), Format.JSON, "/checkpoint", "payouts", POLICY)


def _files(*names: str) -> list[Source]:
    return [Files(f"/{name}", Format.JSON) for name in names]


def _kept(job: Job = JOB) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(Shape.of(job).to_json("file:/checkpoint"))
    return kept


def test_each_path_is_a_source_and_the_ticks_are_the_last() -> None:
    job = replace(JOB, idle_timeout_ms=1)
    assert job.declared == (*_files("a", "b"), Ticks())
    assert _kept(job)["sources"] == [
        {"kind": "files", "path": "/a", "format": "json"},
        {"kind": "files", "path": "/b", "format": "json"},
        {"kind": "ticks"},
    ]
    assert [from_json(to_json(source)) for source in job.declared] == [*job.declared]


@given(st.permutations("abcdef"), st.integers(1, 6), st.booleans(), st.booleans(), st.randoms())
def test_sources_of_a_checkpoint_keep_their_place(
    names: list[str], had: int, ticked: bool, ticks: bool, random: Any
) -> None:
    kept = _files(*names[:had])
    if ticked:
        kept.insert(random.randint(0, had), Ticks())
    wanted = _files(*random.sample(names, len(names))) + ([Ticks()] if ticks else [])
    sources = followed_by(kept, wanted)
    assert [*sources[: len(kept)]] == kept
    assert set(sources) == {*kept, *wanted}
    assert len(sources) == len(set(sources))


def test_a_path_is_the_same_in_another_spelling() -> None:
    for same in ("/a", "/a/", "file:/a", "file:///a", "/b/../a"):
        assert followed_by(_files("a"), [Files(same, Format.JSON)]) == tuple(_files("a"))
    bucket: list[Source] = [Files("s3a://bucket/a", Format.JSON)]
    assert followed_by(bucket, [Files("s3a://bucket/a/", Format.JSON)]) == tuple(bucket)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (_files("a"), "--path /b is missing. Nothing was read or written; start with every --path"),
        (_files("c"), "--path /a is missing; --path /b is missing"),
        ([Files("/a", Format.PARQUET), *_files("b")], "--format was json, is parquet"),
    ],
)
def test_start_without_a_checkpoints_source_is_refused(wanted: list[Source], message: str) -> None:
    with pytest.raises(CommandError) as raised:
        sources_of(_kept(), wanted, "/checkpoint")
    assert message in str(raised.value)


def test_a_file_of_version_2_has_one_source_and_is_written_as_version_3() -> None:
    old = {**_kept(), "version": 2, "format": "json", "unknown": "kept"}
    del old["sources"]
    assert sources_of(old, [*_files("a"), Ticks()], "/checkpoint") == (*_files("a"), Ticks())
    with pytest.raises(CommandError, match="with that one alone"):
        sources_of(old, _files("a", "b"), "/checkpoint")
    with pytest.raises(CommandError, match="--format was json, is parquet"):
        sources_of(old, [Files("/a", Format.PARQUET)], "/checkpoint")

    text = grown(old, "file:/checkpoint", _files("a"))
    assert text
    new = json.loads(text)
    assert (new["version"], new["unknown"]) == (3, "kept")
    assert "format" not in new
    assert new["sources"] == [{"kind": "files", "path": "/a", "format": "json"}]
    assert grown(new, "file:/checkpoint", _files("a")) is None
    assert grown(new, "file:/checkpoint", _files("a", "b"))


def test_a_source_of_a_newer_version_is_not_guessed() -> None:
    for source in ({"kind": "kafka"}, {"path": "/a"}, {"kind": "files", "path": "/a"}):
        with pytest.raises((KeyError, ValueError)):
            from_json(source)


def test_paths_that_are_equal_or_nested_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b", "a/in", "ab"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    a = str(tmp_path / "a")
    for other in ("a", "a/", "a/../a", "link", "a/in", "link/in", "."):
        for paths in ((a, f"{tmp_path}/{other}"), (f"{tmp_path}/b", f"file:{tmp_path}/{other}", a)):
            with pytest.raises(CommandError, match="would be read twice"):
                require_apart(paths)
    require_apart([a, str(tmp_path / "b"), str(tmp_path / "ab")])
    require_apart(["s3a://bucket/a", "s3a://other/a", a])
    with pytest.raises(CommandError, match="s3a://bucket/a/b lies in s3a://bucket/a"):
        require_apart(["s3a://bucket/a/b", "s3a://bucket/a"])


PAY = Kafka("pay", cluster_id="c1", topic_ids=(("pay", "id1"),), starting="latest")


def test_a_topic_is_recorded_with_its_cluster_and_its_id() -> None:
    pattern = replace(PAY, topic="pay.*", is_pattern=True)
    for source in (PAY, pattern):
        assert from_json(json.loads(json.dumps(to_json(source)))) == source
    kept = _kept(replace(JOB, topics=(PAY,)))
    assert kept["version"] == VERSION
    assert kept["sources"][2]["topic_ids"] == {"pay": "id1"}
    assert _kept()["version"] == VERSION - 1
    assert grown(kept, "file:/checkpoint", [*_files("a", "b"), PAY]) is None
    more = grown(_kept(), "file:/checkpoint", [*_files("a", "b"), PAY])
    assert more
    assert json.loads(more)["version"] == VERSION


def test_a_topic_keeps_its_place_where_it_began_and_its_ids() -> None:
    asked = replace(PAY, starting="earliest", topic_ids=(("pay", "id2"), ("pay2", "id3")))
    sources = followed_by([PAY, Ticks()], [*_files("a"), asked])
    ids = (("pay", "id1"), ("pay2", "id3"))
    assert sources == (replace(PAY, topic_ids=ids), Ticks(), *_files("a"))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([], "--topic pay is missing"),
        ([replace(PAY, topic="other")], "--topic pay is missing"),
        ([replace(PAY, is_pattern=True)], "--topic pay is missing"),
        ([replace(PAY, cluster_id="c2")], "from the cluster c1.* leads to the cluster c2"),
        ([replace(PAY, key=KeyRule.MERCHANT_ID)], "--kafka-key was ignored, is merchant-id"),
    ],
)
def test_start_with_another_topic_is_refused(wanted: list[Source], message: str) -> None:
    kept = _kept(replace(JOB, topics=(PAY,)))
    with pytest.raises(CommandError, match=message) as raised:
        sources_of(kept, [*_files("a", "b"), *wanted], "/checkpoint")
    assert "every --path and --topic" in str(raised.value)


CHECKPOINT = "/elsewhere/checkpoint"


@pytest.mark.parametrize("name", ["ev#1", "ev%201", "ev 1", "2024-11-04T12:00", "ev;a&b=c"])
def test_a_plain_path_is_taken_letter_by_letter(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # What is left of the name when it is read as a URL.
    for cut in ("ev", "ev 1"):
        (tmp_path / cut).mkdir()
    if name != "ev 1":
        with pytest.raises(CommandError, match="there is no directory"):
            require_directory(name, CHECKPOINT)
    (tmp_path / name).mkdir(exist_ok=True)
    require_directory(name, CHECKPOINT)
    require_directory(f"file://{tmp_path}/{name}", CHECKPOINT)
    assert absolute(name) == str(tmp_path / name)


@pytest.mark.parametrize("name", ["ev[1]", "ev{1}", "ev*", "ev?", "ev\\1"])
def test_a_path_that_spark_would_take_for_a_pattern_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name / "events").mkdir(parents=True)
    for path in (str(tmp_path / name), f"file:{tmp_path}/{name}"):
        with pytest.raises(CommandError, match="pattern") as refused:
            require_directory(path, CHECKPOINT)
        assert "\n" not in str(refused.value)
    # Spark reads a relative path as one from the working directory.
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(CommandError, match="pattern"):
        require_directory("events", CHECKPOINT)


def test_a_path_on_another_file_system_is_left_to_spark() -> None:
    assert absolute("s3a://bucket/events") == "s3a://bucket/events"
    require_directory("s3a://bucket/day=*", CHECKPOINT)


def test_no_path_is_not_the_working_directory() -> None:
    with pytest.raises(CommandError, match="there is no directory ''"):
        require_directory("", CHECKPOINT)


def test_a_checkpoint_among_the_event_files_is_refused(tmp_path: Path) -> None:
    for inside in ("", "checkpoint", "a/checkpoint", "a/../checkpoint", "_a=1/checkpoint"):
        for path, checkpoint in (
            (str(tmp_path), str(tmp_path / inside)),
            (f"file://{tmp_path}", f"{tmp_path}/{inside}"),
            (f"s3a://bucket{tmp_path}/", f"s3a://bucket{tmp_path}/{inside}"),
        ):
            with pytest.raises(CommandError, match="checkpoint"):
                require_directory(path, checkpoint)
    for outside in ("_checkpoint", "a/.checkpoint", "_a/checkpoint", "../checkpoint"):
        require_directory(str(tmp_path), str(tmp_path / outside))
    require_directory("s3a://bucket/events", "s3a://bucket/events-checkpoint")
    require_directory("s3a://bucket/events", "s3a://other/events/checkpoint")
