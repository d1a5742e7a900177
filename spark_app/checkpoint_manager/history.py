"""The restores that were done in a checkpoint."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint.files import RESTORING
from holdfast.spark_app.checkpoint_manager.folder import REMOVED, Folder

INTENT: Final = RESTORING
"""Moved into the folder with what was removed when the restore is finished."""

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Restore:
    """One restore."""

    batch: int
    """The batch to which it goes back."""
    newest: int
    """The newest batch before, which is repeated too."""
    removed: str
    """The folder with what was removed."""
    begun_at: str

    def to_json(self) -> str:
        """Return the text of `INTENT`."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def read(cls, folder: Folder, name: str) -> Self:
        """Read a file; raises CommandError for a damaged one."""
        try:
            kept: dict[str, Any] = json.loads(folder.read(name))
            return cls(**{each: kept[each] for each in cls.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(
                f"{folder.location}/{name} cannot be read. Nothing was changed; restore it from a"
                " copy.",
                code="checkpoint_damaged",
            ) from error


def unfinished(folder: Folder) -> Restore | None:
    """Return the restore that a crash has interrupted."""
    return Restore.read(folder, INTENT) if INTENT in folder.files else None


def restores(folder: Folder) -> list[Restore]:
    """Return the finished restores, the newest first."""
    names = [name for name in folder.removed if name.split("/")[1:] == [INTENT]]
    restores_read = [Restore.read(folder, name) for name in names]
    return sorted(restores_read, key=lambda each: each.begun_at, reverse=True)


def removed_folders(folder: Folder) -> list[str]:
    """Return the names of the folders with what restores have removed."""
    return sorted(name for name in folder.tree.folders() if name.startswith(REMOVED))
