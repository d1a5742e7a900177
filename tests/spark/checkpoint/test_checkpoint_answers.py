"""What `job checkpoints` answers: the names of fields, the ledger's times, the printed commands."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.checkpoint_manager.cli import app as commands
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.listing import shown
from holdfast.spark_app.checkpoint_manager.verify import verified
from tests.support.command import holdfast
from tests.support.job.jobs import Play, event

pytestmark = pytest.mark.rest

NEWEST = 3


@pytest.fixture(scope="module")
def made(shared_play: Play) -> Play:
    """A checkpoint with a few batches, which is only read."""
    files = ([event(f"e{number}", f"12:{number:02}", 1)] for number in range(NEWEST))
    shared_play.put(*files)
    shared_play.command()
    return shared_play


def _said(*words: str) -> str:
    """Return what a command prints, in this process."""
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == ExitCode.OK, done.output
    return str(done.stdout)


def _names(answer: Any) -> set[str]:
    """The names of all fields of an answer, but those that are data: settings and kinds."""
    if isinstance(answer, list):
        return set().union(*map(_names, answer))
    if not isinstance(answer, dict):
        return set()
    nested = (v for k, v in answer.items() if k not in ("spark", "pinned", "settings", "changes"))
    return {*answer}.union(*map(_names, nested))


def test_fields_are_named_as_in_the_rest_of_the_product(made: Play) -> None:
    where, batch = ("--checkpoint", str(made.checkpoint), "--json"), str(NEWEST - 2)
    answers = [
        json.loads(_said(*words, *where))
        for words in (
            ("list",),
            ("show", "--batch", batch),
            ("verify",),
            ("prune", "--keep-last", "2", "--dry-run"),
        )
    ]
    for answer in answers:
        assert (answer["checkpoint"], answer["stream"]) == (str(made.checkpoint), "payouts")
        assert _names(answer).isdisjoint(
            {"batch", "newest", "oldest", "planned", "previous", "at", "outbox_at", "judged_at"}
        )
    listed, shown, verified, _ = answers
    [same] = [each for each in listed["batches"] if each["batch_id"] == NEWEST - 2]
    assert same.items() <= shown.items()
    assert listed["last_batch_id"] == verified["last_batch_id"] == NEWEST


def test_list_and_show_read_an_optional_ledger_from_the_environment(made: Play) -> None:
    where = ("--checkpoint", str(made.checkpoint))
    commands = {"list": (), "show": ("--batch", str(NEWEST))}
    for verb, options in commands.items():
        words = ("job", "checkpoints", verb, *where, *options)
        with_it = holdfast(*words, "--json", dsn=made.dsn, process=False)
        assert with_it.returncode == ExitCode.OK, with_it.stderr
        answer = json.loads(with_it.stdout)
        newest = answer["batches"][0] if verb == "list" else answer
        assert newest["written_at"]
        without = holdfast(*words, process=False)
        assert without.returncode == ExitCode.OK
        assert without.stdout.count("The ledger's times are missing: pass --dsn or set") == 1
        gone = holdfast(*words, dsn="host=127.0.0.1 port=1", process=False)
        assert (gone.returncode, gone.stdout) == (ExitCode.OK, without.stdout)
        assert gone.stderr.startswith("the ledger's times are missing: SinkUnavailable")
        assert len(gone.stderr.splitlines()) == 1


def test_show_names_a_snapshot_by_its_batch(made: Play) -> None:
    answer = shown(Folder(str(made.checkpoint)), NEWEST, None)
    for each in answer["state"]:
        at = f"state/{each['operator']}/{each['partition']}"
        [name] = [
            f["file"] for f in answer["files"] if f["file"].endswith(".zip") and at in f["file"]
        ]
        # The state after batch N is version N + 1.
        assert name.startswith(f"{at}/{each['snapshot_batch_id'] + 1}_")
        assert each["changelogs"] == NEWEST - each["snapshot_batch_id"]
    text = _said("show", "--batch", str(NEWEST), "--checkpoint", str(made.checkpoint))
    assert f"snapshot of batch {answer['state'][0]['snapshot_batch_id']} and" in text


def test_verify_prints_the_command_that_removes_what_no_batch_needs(
    made: Play, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(made.checkpoint, tmp_path / "checkpoint"))
    stale = copied / "state/0/0" / f"1_{uuid4()}.changelog"
    stale.write_bytes(b"x")
    (copied / "removed-1").mkdir()
    answer, code = verified(Folder(str(copied)))
    assert code == ExitCode.DEGRADED
    assert f"{stale.relative_to(copied)}, removed-1/" in answer["advice"][-1]
    words = answer["advice"][-1].partition(": holdfast ")[2].split()
    done = holdfast(*words, dsn=made.dsn, process=False)
    assert done.returncode == ExitCode.OK, done.stderr
    answer, code = verified(Folder(str(copied)))
    assert (code, answer["advice"]) == (ExitCode.OK, [])
    assert not (copied / "removed-1").exists()
