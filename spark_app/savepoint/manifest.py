"""The manifest of a savepoint: what it holds, of which batch, and the checksum of every file.

It is written last, so that a folder with a manifest is complete. Its own checksum is over the text
of all other fields. Imports no Spark.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self
from uuid import UUID

from holdfast.sink.contract.exits import CommandError
from holdfast.sink.transaction.continuation import Continuation
from holdfast.spark_app.exposure import codec
from holdfast.spark_app.exposure.settings import MILLISECOND_US, Settings

FILE: Final = "manifest.json"
VERSION: Final = 2
"""Version of the manifest and of the columns of `tables`."""

WITHOUT_FOLDER: Final = 1
"""What a savepoint whose files lie beside its manifest is written as: the Holdfast before reads
it."""

WAY_OUT: Final = "Nothing was changed; use another savepoint, or a whole copy of this one"

_CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a savepoint, by its path in it."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A savepoint of one batch; times in milliseconds are those of Spark's watermark."""

    savepoint_id: str
    stream: str
    query_id: str
    batch_id: int
    digest: str
    """Of the batch, as the ledger has it; hexadecimal."""
    created_at: str
    holdfast: str
    """For people: which version wrote it."""
    spark: str
    codec: int
    """Version of the columns of the state, as the newest of its frames has it."""
    begun: dict[str, Any]
    """What the checkpoint was begun with, as in `checkpoint.shape`."""
    watermark_ms: int
    """Of the batch; 0 before the first watermark."""
    next_watermark_ms: int
    settled_until_us: int | None
    """The frontier of a checkpoint that began after a published past."""
    offsets: list[str]
    """The lines of the batch's plan, verbatim: version, settings, one line for each source."""
    policies: dict[str, Any]
    """As in `policy_history`."""
    rows: dict[str, int]
    """Number of rows of each table."""
    files: list[File]
    folder: str = ""
    """Where the files lie in the savepoint, with a `/`; empty for beside the manifest."""

    @property
    def proof(self) -> Continuation:
        """The batch in the ledger of which this is the state."""
        return Continuation(UUID(self.query_id), self.batch_id, bytes.fromhex(self.digest))

    @property
    def watermark_us(self) -> int | None:
        """The watermark of the batch, in microseconds; None before the first one."""
        return self.watermark_ms * MILLISECOND_US or None

    @property
    def settings(self) -> Settings:
        """The durations of the job."""
        return Settings(**{name: self.begun[name] for name in Settings.__dataclass_fields__})

    @property
    def source_lines(self) -> list[str]:
        """Spark's offset of each source."""
        return self.offsets[2:]

    def to_json(self) -> str:
        """Return the text of `FILE`."""
        content = {"version": VERSION, **asdict(self)}
        if not self.folder:
            content["version"] = WITHOUT_FOLDER
            del content["folder"]
        return json.dumps({**content, _CHECKSUM: checksum(content)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, folder: str) -> Self:
        """Return what `to_json` wrote.

        Raises CommandError for another text, a damaged one, and one of a newer version.
        """
        try:
            content = json.loads(text)
            version, expected = content["version"], content.pop(_CHECKSUM, None)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(folder, FILE) from None
        # The version first: only this version's rule for the checksum is known.
        if isinstance(version, int) and version > VERSION:
            raise CommandError(
                f"the savepoint {folder} has version {version}, and this Holdfast reads up to"
                f" {VERSION}. Nothing was changed; run the version that wrote it"
                f" ({content.get('holdfast', 'unknown')}) or a newer one.",
                code="savepoint_version_mismatch",
            )
        if expected != checksum(content):
            raise damaged(folder, FILE)
        try:
            return cls._of(content)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise damaged(folder, FILE) from error

    @classmethod
    def _of(cls, content: Mapping[str, Any]) -> Self:
        # Version 1 has no folder.
        content = {"folder": "", **content}
        values = {field.name: content[field.name] for field in fields(cls)}
        found = cls(**values | {"files": [File(**each) for each in values["files"]]})
        _ = found.proof, found.settings, json.loads(found.offsets[1])["conf"]
        tables = {file.name.partition("/")[0] for file in found.files}
        if any(rows and table not in tables for table, rows in found.rows.items()):
            raise ValueError("a table has rows and no file")
        return found

    def began(self, checkpoint: str, place: str, key_groups: int) -> str:
        """Return what a checkpoint was begun with, for a person."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.rows.items())
        return (
            f"began {checkpoint} with the state after batch {self.batch_id} of {self.stream}, from"
            f" the savepoint {place}: {counts}; {key_groups} key groups"
        )

    def require_readable(self, folder: str) -> None:
        """Raise CommandError for columns of the state that this version does not read."""
        if self.codec not in (codec.WITHOUT_HANDS, codec.VERSION):
            raise CommandError(
                f"the state in the savepoint {folder} has version {self.codec}, and this Holdfast"
                f" reads {codec.VERSION}. Nothing was changed; run the version that wrote it"
                f" ({self.holdfast}).",
                code="savepoint_version_mismatch",
            )


def damaged(folder: str, name: str, reason: str = "cannot be read") -> CommandError:
    """Return the error of a damaged file of a savepoint."""
    return CommandError(
        f"{name} in the savepoint {folder} {reason}. {WAY_OUT}.", code="savepoint_damaged"
    )


def checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of all other fields of a manifest."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
