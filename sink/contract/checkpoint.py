"""Where a checkpoint lies, read as Spark reads it: nothing in its location is decoded."""

from pathlib import Path


def local_folder(location: str | None) -> Path | None:
    """Return the folder of a checkpoint, None where it is not on a local path.

    As Hadoop's `Path`, to which `%20`, `?` and `#` are characters of a name like others.

    >>> local_folder("file:///checkpoints/a%20b")
    PosixPath('/checkpoints/a%20b')
    >>> local_folder("s3a://bucket/checkpoints") is None
    True
    """
    if not location:
        return None
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    path = rest.removeprefix("//")
    return Path(path) if scheme == "file" and path.startswith("/") else None
