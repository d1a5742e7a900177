"""The location of a checkpoint, read as Spark reads it: nothing in it is decoded."""

from pathlib import Path


def local_folder(location: str | None) -> Path | None:
    """Return the folder of a checkpoint, None where it is not on a local path.

    As Hadoop's `Path`, which treats `%20`, `?` and `#` as ordinary characters of a name.

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
