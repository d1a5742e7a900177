"""A folder with a checkpoint in it as one archive, and back to another place.

A checkpoint names the path where it was begun, and those of the files it has read, in its text
files. There the archive has a word instead of its folder.
"""

import os
import tarfile
import tempfile
from pathlib import Path

WORD = "@FOLDER@"


def pack(folder: Path, archive: Path) -> None:
    """Write the archive of a folder; UnicodeDecodeError: one that is no text names it."""
    path_bytes = str(folder).encode()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(archive, "w:xz") as packed:
        copy = Path(scratch, "copy")
        for path in _files(folder):
            content = path.read_bytes()
            if path_bytes in content:
                content = content.decode().replace(str(folder), WORD).encode()
            elif path.suffix == ".crc" and path_bytes in _of_checksum(path):
                # Of the text with the path, which is another one.
                continue
            copy.write_bytes(content)
            os.utime(copy, (path.stat().st_mtime,) * 2)
            packed.add(copy, str(path.relative_to(folder)), filter=_anonymous)


def unpack(archive: Path, folder: Path) -> None:
    """Make the folder of an archive."""
    with tarfile.open(archive) as packed:
        # Python 3.11 has filters from 3.11.4 on.
        packed.extraction_filter = getattr(tarfile, "data_filter", None)
        packed.extractall(folder)  # noqa: S202 - it is ours
    for path in _files(folder):
        content = path.read_bytes()
        if WORD.encode() in content:
            path.write_bytes(content.replace(WORD.encode(), str(folder).encode()))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _of_checksum(path: Path) -> bytes:
    """The content that Hadoop's checksum file `.name.crc` is of."""
    of = path.with_name(path.name.removeprefix(".").removesuffix(".crc"))
    return of.read_bytes() if of.exists() else b""


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
