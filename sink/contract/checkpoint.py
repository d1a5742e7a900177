"""Where a checkpoint lies: its location as Spark reads it, and whether two drivers are safe there.

Nothing in a location is decoded.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.sink.contract.compatibility import StrEnum

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Safety(StrEnum):
    """Whether two drivers on one checkpoint can lose nothing on a file system."""

    TRIED = "tried"
    WITH_MANAGER = "with_manager"
    """Tried, with `MANAGER_CLASS` and a store that has conditional create."""
    UNTRIED = "untried"
    REFUSED = "refused"


class FileSystem(NamedTuple):
    """What is known of a file system of Hadoop."""

    safety: Safety
    reason: str


_COPIES: Final = (
    "a rename there copies and deletes, and replaces a file of that name: of two drivers, one can"
    " put its plan over that of the other, whose events are then never read"
)
_CONDITIONAL: Final = (
    "a file that must be new is one request, which the store refuses where there is a file of that"
    " name (If-None-Match); a rename there would copy, and replace it"
)
_GENERATIONS: Final = (
    "a file that must be new is one upload, which the store refuses where there is a file of that"
    " name (ifGenerationMatch=0); a rename there would copy, and replace it"
)
_HIERARCHICAL: Final = (
    "its rename is atomic and refuses a taken name only with a hierarchical namespace; flat blob"
    " storage copies and deletes, and then two drivers can lose events. Nothing of it was tried"
)
_UNKNOWN: Final = (
    "a checkpoint there was not tried. Its rename has to be atomic and to refuse a taken name, or"
    " two drivers can lose events"
)

FILE_SYSTEMS: Final = {
    "file": FileSystem(Safety.TRIED, "one machine, or a shared volume"),
    "hdfs": FileSystem(Safety.TRIED, "its rename is atomic and refuses a taken name"),
    "abfs": FileSystem(Safety.UNTRIED, _HIERARCHICAL),
    "abfss": FileSystem(Safety.UNTRIED, _HIERARCHICAL),
    "s3a": FileSystem(Safety.WITH_MANAGER, _CONDITIONAL),
    "gs": FileSystem(Safety.WITH_MANAGER, _GENERATIONS),
    "s3": FileSystem(Safety.REFUSED, _COPIES),
    "s3n": FileSystem(Safety.REFUSED, _COPIES),
    "oss": FileSystem(Safety.REFUSED, _COPIES),
    "cos": FileSystem(Safety.REFUSED, _COPIES),
    "cosn": FileSystem(Safety.REFUSED, _COPIES),
}
"""By scheme; any other is untried."""


MANAGER_SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER_CLASS: Final = "holdfast.checkpoint.ConditionalCheckpointFileManager"
"""What writes Spark's checkpoint files where a store has conditional create: `manager_jar`."""


LINKING_CLASS: Final = "holdfast.checkpoint.LinkingCheckpointFileManager"
"""The same on a local disk, by hard links."""


def manager_jar() -> Path:
    """Return where an installation has the jar of both classes, if it was built with one."""
    return Path(__file__).parents[1] / "jvm" / "holdfast-checkpoint.jar"


def scheme_of(location: str) -> str:
    """Return the scheme of a location in lower case; empty for a path without one.

    >>> scheme_of("S3A://bucket/checkpoints"), scheme_of("/checkpoints/a:b")
    ('s3a', '')
    """
    match = _SCHEME.match(location)
    return "" if match is None else match[1].lower()


def file_system(location: str) -> FileSystem:
    """Return what is known of a location's file system; of a path without a scheme, a local one."""
    return FILE_SYSTEMS.get(scheme_of(location) or "file", FileSystem(Safety.UNTRIED, _UNKNOWN))


def refusal(location: str) -> str | None:
    """Return why a checkpoint or a savepoint must not lie there, without a full stop; else None."""
    system = file_system(location)
    if system.safety is not Safety.REFUSED:
        return None
    return (
        f"{location} is on an object store ({scheme_of(location)}), which is refused:"
        f" {system.reason}. Name a directory on a local disk or a shared volume (a path), or on"
        " HDFS (hdfs://), or in a bucket of S3 (s3a://) or of Google's store (gs://)"
    )


def needs_manager(location: str) -> bool:
    """Return whether two drivers are safe there only with `MANAGER_CLASS`."""
    return file_system(location).safety is Safety.WITH_MANAGER


def manager_options() -> str:
    """Return the options of spark-submit that give a session `MANAGER_CLASS`."""
    return f"--jars {manager_jar()} --conf {MANAGER_SETTING}={MANAGER_CLASS}"


def local_folder(location: str | None) -> Path | None:
    """Return the folder of a checkpoint, None where it is not on a local path.

    As Hadoop's `Path`, which treats `%20`, `?` and `#` as ordinary characters of a name.

    >>> local_folder("file:///checkpoints/a%20b")
    PosixPath('/checkpoints/a%20b')
    >>> local_folder("hdfs://namenode/checkpoints") is None
    True
    """
    if not location:
        return None
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    path = rest.removeprefix("//")
    return Path(path) if scheme == "file" and path.startswith("/") else None
