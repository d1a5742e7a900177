"""Batches that a checkpoint runs again as they were planned, before Spark plans new ones.

A checkpoint that went back (`job checkpoints restore`, or a savepoint older than its stream) has a
state that is older than what the stream has published. With the files divided into other batches,
an event may be late that was in time, and a correction may come before its window is emitted: the
job would decide otherwise, and the published decisions would stand against a state that does not
know them. So the plans of the batches since are kept in the checkpoint, and each run of the query
gets one of them, until the checkpoint is where it was.

    holdfast-repeat.json                `until`: the newest batch that is repeated
    holdfast-repeat/N/plan              the text of `offsets/N`
    holdfast-repeat/N/sources/I/NAME    what the plan adds to the log of source I
    holdfast-repeat/N/ticks/NAME        the ticks that it reads
    holdfast-repeat/N/source.json       the batch of another query that batch N repeats
"""

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from holdfast.sink.contract.failpoints import failpoint
from holdfast.sink.transaction.continuation import Continuation, Repeated
from holdfast.spark_app.checkpoint.files import NO_OFFSET, CheckpointFiles
from holdfast.spark_app.input import ticks

FILE: Final = "holdfast-repeat.json"
FOLDER: Final = "holdfast-repeat"
VERSION: Final = 1

PLAN: Final = "plan"
SOURCE: Final = "source.json"
TICKS: Final = "ticks"
SOURCES: Final = "sources"


class Step(NamedTuple):
    """A batch whose plan is put back."""

    batch_id: int
    repeated: Repeated


@dataclass(frozen=True, slots=True)
class Repeats:
    """The batches that a checkpoint still has to repeat."""

    files: CheckpointFiles
    until: int

    @classmethod
    def read(cls, files: CheckpointFiles) -> Self | None:
        """Return what a checkpoint repeats; None for one that is not behind its stream.

        Raises CommandError for a damaged file.
        """
        repeats = cls.kept(files)
        if repeats is None or (files.committed() or 0) < repeats.until:
            return repeats
        _end(files)
        return None

    @classmethod
    def kept(cls, files: CheckpointFiles) -> Self | None:
        """Return what a checkpoint repeats or has repeated, and change nothing.

        Raises CommandError for a damaged file.
        """
        kept = files.read_json(FILE, VERSION)
        if kept is None:
            return None
        try:
            return cls(files, int(kept["until"]))
        except (KeyError, TypeError, ValueError) as error:
            raise files.damaged(FILE) from error

    @property
    def rest(self) -> Repeated:
        """What a run announces that plans these batches itself."""
        return Repeated(self.until)

    def put_back(self, sources: int) -> Step | None:
        """Put the next plan back, unless it is there, for a query with so many sources.

        Returns None where all are done, or the next one is not kept. Raises CommandError for a
        damaged file.
        """
        committed = self.files.committed()
        batch_id = 0 if committed is None else committed + 1
        at = f"{FOLDER}/{batch_id}"
        text = self.files.read(f"{at}/{PLAN}") if batch_id <= self.until else None
        if text is None:
            if batch_id > self.until:
                _end(self.files)
            return None
        source = self._source(at)
        if batch_id not in self.files.batches("offsets"):
            # The plan last: what a crash leaves before it is removed by the next start.
            self._copy(f"{at}/{TICKS}", ticks.FOLDER)
            for number in self.files.names(f"{at}/{SOURCES}"):
                self._copy(f"{at}/{SOURCES}/{number}", f"{SOURCES}/{number}")
            failpoint("K3")
            lines = text.splitlines()
            lines += [NO_OFFSET] * (sources + 2 - len(lines))
            self.files.write(f"offsets/{batch_id}", "\n".join(lines))
            failpoint("K4")
        return Step(batch_id, Repeated(self.until, source))

    def _source(self, at: str) -> Continuation | None:
        name = f"{at}/{SOURCE}"
        text = self.files.read(name)
        if text is None:
            return None
        try:
            return source_from_json(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise self.files.damaged(name) from error

    def _copy(self, folder: str, to: str) -> None:
        for name in self.files.names(folder):
            if not name.startswith("."):
                self.files.write(f"{to}/{name}", self.files.read(f"{folder}/{name}") or "")


def _end(files: CheckpointFiles) -> None:
    # Spark removes a tick that it has read, and would read one again that it has forgotten.
    for name in files.names(ticks.FOLDER):
        files.remove(f"{ticks.FOLDER}/{name}")
    files.remove_folder(FOLDER)
    files.remove(FILE)


def to_json(until: int) -> str:
    """Return the text of `FILE`."""
    return json.dumps({"version": VERSION, "until": until}, indent=2) + "\n"


def source_to_json(source: Continuation) -> str:
    """Return the text of `SOURCE`."""
    kept = {
        "query_id": str(source.query_id),
        "batch_id": source.batch_id,
        "digest": source.digest.hex(),
    }
    return json.dumps(kept, indent=2) + "\n"


def source_from_json(kept: dict[str, Any]) -> Continuation:
    """Return what `source_to_json` wrote; else raises KeyError, TypeError or ValueError."""
    digest = bytes.fromhex(kept["digest"])
    return Continuation(UUID(kept["query_id"]), int(kept["batch_id"]), digest)
