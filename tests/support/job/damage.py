"""Damage to a file, as a disk or a careless hand does it."""

from pathlib import Path


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x04
    file.write_bytes(content)


def cut(file: Path) -> None:
    """Leave the first half."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def gone(file: Path) -> None:
    """Remove the file."""
    file.unlink()


def emptied(file: Path) -> None:
    """Leave nothing in it."""
    file.write_bytes(b"")


def last_bit(file: Path) -> None:
    """Change the last bit."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
