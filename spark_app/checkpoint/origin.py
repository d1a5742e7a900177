"""The savepoint with which a checkpoint begins, stored in it.

It is the first file of such a checkpoint, and the job's settings (`shape`) are the last one. A
checkpoint that has this file and not the other is unfinished: it is begun again under the same
query id, which the stream may have adopted already.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final, Self
from uuid import UUID

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.transaction.continuation import Continuation
from holdfast.spark_app.checkpoint import initial, policy_history, retention, shape
from holdfast.spark_app.checkpoint.files import CheckpointFiles
from holdfast.spark_app.input import ticks

FILE: Final = "holdfast-savepoint.json"
VERSION: Final = 1

_UNPLANNED: Final = {
    *("metadata", shape.FILE, policy_history.FILE, initial.FILE, retention.FILE, ticks.FOLDER),
    *("offsets", "commits", "sources"),
}
"""What a start leaves that ends before its first batch is planned."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the state of a new checkpoint comes from."""

    savepoint_id: str
    location: str
    query_id: str
    """Of this checkpoint."""
    previous_query_id: str
    previous_batch_id: int
    previous_digest: str
    """The batch of the ledger after which this checkpoint continues; hexadecimal."""

    @property
    def proof(self) -> Continuation:
        """That batch, as the ledger has it."""
        digest = bytes.fromhex(self.previous_digest)
        return Continuation(UUID(self.previous_query_id), self.previous_batch_id, digest)

    def to_json(self) -> str:
        """Return the text of `FILE`."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def read(cls, files: CheckpointFiles) -> Self | None:
        """Return the origin of a checkpoint; None for one without a savepoint.

        Raises CommandError for a damaged file.
        """
        kept = files.read_json(FILE, VERSION)
        if kept is None:
            return None
        try:
            origin = cls(**{name: kept[name] for name in cls.__dataclass_fields__})
            _ = UUID(origin.query_id), origin.proof
        except (KeyError, TypeError, ValueError) as error:
            raise files.damaged(FILE) from error
        return origin


def unbound(files: CheckpointFiles) -> bool:
    """Return whether a checkpoint may still begin with anything: no batch of it was planned.

    False where it holds something that no start of the job makes.
    """
    names = {name.removeprefix(".").removesuffix(".crc") for name in files.names(".")}
    return names <= _UNPLANNED and not files.batches("offsets") and not files.batches("commits")


def require_begun(files: CheckpointFiles) -> None:
    """Raise CommandError for a checkpoint that did not get all of its savepoint."""
    origin = Origin.read(files)
    if origin is not None and files.read(shape.FILE) is None:
        raise CommandError(
            f"the checkpoint {files.checkpoint} was being made from the savepoint"
            f" {origin.location}, and that did not end. Nothing was read or written; start with"
            f" --from-savepoint {origin.location} again, which completes it.",
            code="savepoint_start_interrupted",
        )
