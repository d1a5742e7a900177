"""The server's log file: limited in size, and quoted in errors."""

from pathlib import Path
from typing import IO

BYTES_MAX = 16 * 2**20
LINES = 5


def open_for_append(path: Path) -> IO[bytes]:
    """Open the log for append; a log larger than `BYTES_MAX` is first renamed to `<name>.1`."""
    if path.exists() and path.stat().st_size > BYTES_MAX:
        path.rename(path.with_name(f"{path.name}.1"))
    path.touch(mode=0o600)
    file = path.open("ab")
    file.seek(0, 2)
    return file


def tail(path: Path, offset: int = 0) -> str:
    """Return the last lines written after `offset`, on one line."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read(BYTES_MAX).decode(errors="replace")
    except OSError as error:
        return f"({error.strerror})"
    return " | ".join(line.strip() for line in text.splitlines()[-LINES:]) or "(nothing)"
