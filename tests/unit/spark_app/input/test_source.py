from pathlib import Path

import pytest

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.input.source import absolute, require_directory

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
