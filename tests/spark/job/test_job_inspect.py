"""`holdfast job inspect` on the founding example: a real checkpoint, and Spark's state reader."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.job.job_process import QUICK, check_ledger, check_stopped, job_process
from tests.support.job.jobs import Play, event

if TYPE_CHECKING:
    from holdfast.spark_app.inspection.answer import Answer

pytestmark = pytest.mark.rest

FILES = [
    [event("e914", "12:02", 5_000_000, "m_482"), event("e916", "12:14", 3_500_000, "m_482")],
    [
        event("e917", "12:16", 2_500_000, "m_482"),
        event("e918", "12:16:30", 500_000, "m_482"),
        event("e919", "12:17", 1_000_000, "m_482"),
    ],
    # Its batch runs at W = 12:16:30, which emits 12:00-12:15 and blocks.
    [event("e920", "12:24", -1_800_000, "m_482")],
]

OPEN = {"status": "open", "revision": 0, "exposure_minor": 4_000_000, "blocks": 0, "releases": 0}
FIRST_SPAN = {"window_start": "2024-11-04T12:00:00Z", "window_end": "2024-11-04T12:15:00Z"}
SECOND_SPAN = {"window_start": "2024-11-04T12:15:00Z", "window_end": "2024-11-04T12:30:00Z"}
FIRST_OPEN = OPEN | {"exposure_minor": 8_500_000}
AFTER_E919 = {
    "merchant_id": "m_482",
    "stream": "payouts",
    "key_group": 4,
    "key_groups": 4,
    "first_batch_id": 0,
    "last_batch_id": 3,
    "batch_id": 1,
    "watermark": "2024-11-04T12:13:30Z",
    "settled_until": None,
    "key_group_timer": "2024-11-04T12:15:00Z",
    "found": True,
    "held": False,
    "latest_window_end": None,
    "windows": [
        {
            **FIRST_SPAN,
            **FIRST_OPEN,
            "event_ids": ["e914", "e916"],
            "emit_at": "2024-11-04T12:15:00Z",
            "expire_at": "2024-11-04T12:17:00Z",
        },
        {
            **SECOND_SPAN,
            **OPEN,
            "event_ids": ["e917", "e918", "e919"],
            "emit_at": "2024-11-04T12:30:00Z",
            "expire_at": "2024-11-04T12:32:00Z",
        },
    ],
    "timers": [
        {"at": f"2024-11-04T{at}:00Z", "due": due, "window_end": f"2024-11-04T{end}:00Z"}
        for at, due, end in (
            *(("12:15", "emit", "12:15"), ("12:17", "expire", "12:15")),
            *(("12:30", "emit", "12:30"), ("12:32", "expire", "12:30")),
        )
    ],
}
E20_CAME = {
    **SECOND_SPAN,
    "change": "changed",
    "from": OPEN,
    "to": OPEN | {"exposure_minor": 2_200_000},
    "absorbed": ["e920"],
    "forgotten": [],
}
EMITTED = {
    **FIRST_SPAN,
    "change": "changed",
    "from": FIRST_OPEN,
    "to": FIRST_OPEN | {"status": "emitted", "revision": 1, "blocks": 1},
    "absorbed": [],
    "forgotten": [],
}


@pytest.fixture(scope="module")
def played(shared_play: Play) -> Play:
    """The founding example, done: batches 0 to 2 have its files, batch 3 follows the watermark."""
    # With a blank in its path: Spark's state reader does not find such a checkpoint by itself.
    play = replace(shared_play, folder=shared_play.folder / "my files")
    play.folder.mkdir()
    play.put(*FILES)
    play.command()
    return play


@contextmanager
def _away(*paths: Path) -> Iterator[None]:
    """Take files and folders out of the checkpoint for a moment."""
    for path in paths:
        path.rename(path.with_name(f"{path.name}.away"))
    try:
        yield
    finally:
        for path in paths:
            path.with_name(f"{path.name}.away").rename(path)


def _ask(play: Play, merchant_id: str = "m_482", **question: Any) -> "Answer":
    from holdfast.spark_app.inspection.answer import Question, ask
    from holdfast.spark_app.runtime import session

    asked = {"checkpoint": str(play.checkpoint), "merchant_id": merchant_id} | question
    return ask(session.fix(play.spark.newSession()), Question(**asked))


def _lines(answer: "Answer") -> list[str]:
    return [" ".join(line.plain.split()) for line in answer.text]


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    stats = {path: path.stat() for path in folder.rglob("*")}
    return {path: (stat.st_mtime_ns, stat.st_size) for path, stat in stats.items()}


def test_the_founding_example_is_shown_as_it_was_after_each_batch(played: Play) -> None:
    before = _files(played.folder)
    after_e919 = _ask(played, batch=1)
    assert after_e919.document == {"checkpoint": str(played.checkpoint), **AFTER_E919}
    assert _lines(after_e919)[2:] == [
        "12:00-12:15 open 8,500,000 emit@12:15 expire@12:17 ids 2: e914 e916",
        "12:15-12:30 open 4,000,000 emit@12:30 expire@12:32 ids 3: e917 e918 e919",
        "key group 4, one of 4, has its timer at 2024-11-04 12:15:00Z",
    ]
    newest = _ask(played)
    assert _lines(newest) == [
        "m_482 held · emitted up to 12:15 · after batch 3 · watermark 2024-11-04 12:23:30Z",
        "2024-11-04 UTC",
        "12:15-12:30 open 2,200,000 emit@12:30 expire@12:32 ids 4: e917 e918 e919 e920",
        "key group 4, one of 4, has its timer at 2024-11-04 12:30:00Z",
    ]
    assert newest.document["batch_id"] == 3
    assert _files(played.folder) == before


def test_the_difference_between_two_batches_is_e920_and_the_block(played: Play) -> None:
    reply = _ask(played, diff=(1, 2))
    assert reply.document["windows"] == [EMITTED, E20_CAME]
    assert reply.document["held"] == {"from": False, "to": True}
    assert reply.document["latest_window_end"] == {"from": None, "to": "2024-11-04T12:15:00Z"}
    assert reply.document["timers"] == {
        "set": [],
        "gone": [
            {"at": "2024-11-04T12:15:00Z", "due": "emit", "window_end": "2024-11-04T12:15:00Z"}
        ],
    }
    assert _lines(reply)[1:] == [
        "not held -> held",
        "nothing emitted yet -> emitted up to 12:15",
        "2024-11-04 UTC",
        "~ 12:00-12:15 open -> emitted rev 1, 1 block 8,500,000",
        "~ 12:15-12:30 open 4,000,000 -> 2,200,000 +e920",
        "no longer due: emit@12:15",
    ]
    same = _ask(played, diff=(2, 2))
    assert same.document["changed"] is False
    assert same.nothing is None


def test_unknown_batch_is_explained(played: Play) -> None:
    stranger = _ask(played, "m_9")
    assert stranger.document["found"] is False
    assert stranger.nothing
    assert "merchant m_9 after batch 3" in stranger.nothing
    nobody = _ask(played, "m_9", diff=(0, 3))
    assert nobody.nothing
    assert "after batch 0 nor after batch 3" in nobody.nothing

    checkpoint = played.checkpoint
    # As Spark does with batches that are old enough.
    with _away(checkpoint / "commits" / "0", checkpoint / "offsets" / "0"):
        for batch, message in ((0, "is no longer available"), (4, "is not committed yet")):
            words = f"batch {batch} {message}: .* batches 1 to 3"
            with pytest.raises(CommandError, match=words) as raised:
                _ask(played, batch=batch)
            assert raised.value.exit_code == ExitCode.NOTHING_MATCHED
    with _away(checkpoint / "commits"):
        unbegun = _ask(played)
    assert (unbegun.document["found"], unbegun.document["last_batch_id"]) == (False, None)
    assert unbegun.nothing
    assert "no committed batch yet" in unbegun.nothing


def test_merchant_that_is_unknown_is_an_answer_and_exit_code_3(
    played: Play, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, in the session that runs already."""
    from holdfast.spark_app.inspection import answer
    from holdfast.spark_app.runtime import session

    running = session.fix(played.spark.newSession())
    monkeypatch.setattr(running, "stop", lambda: None)
    monkeypatch.setattr(answer, "start_quietly", lambda *_: running)
    question = answer.Question(str(played.checkpoint), "m_9")
    with pytest.raises(CommandError) as raised:
        answer.run(question, as_json=True)
    assert raised.value.exit_code == 3
    assert "\n" not in str(raised.value)
    output = capsys.readouterr()
    assert json.loads(output.out)["found"] is False
    assert output.err == ""


def _complaint(play: Play, **question: Any) -> str:
    with pytest.raises(CommandError) as raised:
        _ask(play, **question)
    message = str(raised.value)
    assert "\n" not in message
    assert "Exception" not in message
    return message


def test_a_checkpoint_that_cannot_be_read_is_one_line(played: Play) -> None:
    checkpoint = played.checkpoint
    metadata = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    full = metadata.read_text()
    with _away(metadata.with_name(".0.crc")):
        metadata.write_text(full.replace(r"\"ids\"", r"\"pairs\""))
        assert "by another version" in _complaint(played)
        metadata.write_text(full)
    with _away(checkpoint / "state" / "0" / "0", checkpoint / "state" / "0" / "1"):
        assert "cannot be read" in _complaint(played)
    with _away(checkpoint / "offsets" / "2"):
        assert "the plan of batch 2 (offsets/2) is not in" in _complaint(played, batch=2)
    with _away(checkpoint / "holdfast.json"):
        assert "there is no holdfast.json in it" in _complaint(played)

    assert "nowhere" in _complaint(played, checkpoint="nowhere://host/checkpoint")

    elsewhere = replace(played, folder=played.folder.with_name("elsewhere"))
    played.folder.rename(elsewhere.folder)
    try:
        assert "begun in another place" in _complaint(elsewhere)
    finally:
        elsewhere.folder.rename(played.folder)


@pytest.mark.timeout(600)
def test_running_job_is_read_and_continues(play: Play, db: psycopg.Connection) -> None:
    play.put(*FILES)
    with job_process(play.folder, play.dsn, *QUICK) as job:
        job.until(lambda: "batch=3 " in job.said)
        shown = _ask(play, batch=1).document
        assert shown == {"checkpoint": str(play.checkpoint), **AFTER_E919}
        play.put([event("e1", "12:31", 100, "m_1")], first=len(FILES))
        job.until(lambda: "batch=5 " in job.said)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.wait() == 0, job.said
        check_stopped(job, "SIGTERM")
    check_ledger(db, play.checkpoint)
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (2,)
