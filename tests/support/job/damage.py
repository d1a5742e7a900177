"""Damage to files of a checkpoint, as a disk or a careless hand does it."""

from collections.abc import Callable
from pathlib import Path

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept


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


def newest_of(checkpoint: Path, kind: str) -> str:
    """Return a file of a kind that the state after the newest batch needs."""
    kept = Kept(Folder(str(checkpoint)))
    assert kept.newest is not None
    files = kept.chains(kept.newest)[0, 0].files
    return [name for name in files if name.endswith(kind)][-1]


def oldest_changelog(checkpoint: Path) -> str:
    """Return a changelog of a kept batch that the newest does not need."""
    kept = Kept(Folder(str(checkpoint)))
    assert kept.newest is not None
    mine = kept.chains(kept.newest)[0, 0].files
    for batch in kept.committed:
        for name in kept.chains(batch)[0, 0].files:
            if name.endswith(".changelog") and name not in mine:
                return name
    raise AssertionError("the newest batch needs all changelogs")


def named(pattern: str) -> Callable[[Path], str]:
    return lambda checkpoint: str(next(checkpoint.glob(pattern)).relative_to(checkpoint))


def newest_in(log: str, back: int = 0) -> Callable[[Path], str]:
    """Return a file of a log: that of the newest batch, or of one so many before it."""

    def find(checkpoint: Path) -> str:
        names = (each.name for each in (checkpoint / log).iterdir())
        return f"{log}/{max(int(name) for name in names if name.isdecimal()) - back}"

    return find


def sums_of(name: str) -> str:
    """Return the checksum file that Hadoop keeps beside a file."""
    folder, _, last = name.rpartition("/")
    return f"{folder}/.{last}.crc"


STARTS, STAYS = ExitCode.DEGRADED, ExitCode.FAILED
BACK = "--batch"
COPY = "from a copy"
AGAIN = "It writes the checksum of"

DAMAGE = {
    "metadata flipped": (named("metadata"), flip, STAYS, COPY),
    "metadata gone": (named("metadata"), gone, STAYS, COPY),
    "settings cut": (named("holdfast.json"), cut, STAYS, COPY),
    "policy flipped": (named("holdfast-policy.json"), flip, STAYS, COPY),
    "initial cut": (named("holdfast-initial.json"), cut, STARTS, "not affected"),
    "newest plan flipped": (newest_in("offsets"), flip, STAYS, BACK),
    "newest plan cut": (newest_in("offsets"), cut, STAYS, BACK),
    "newest plan gone": (newest_in("offsets"), gone, STAYS, BACK),
    "plan before it gone": (newest_in("offsets", 1), gone, STAYS, BACK),
    "older plan gone": (newest_in("offsets", 3), gone, STARTS, "not possible"),
    "newest commit flipped": (newest_in("commits"), flip, STAYS, BACK),
    "newest commit cut": (newest_in("commits"), cut, STAYS, BACK),
    "older commit flipped": (newest_in("commits", 3), flip, STARTS, "not possible"),
    "older commit gone": (newest_in("commits", 3), gone, STARTS, "not affected"),
    "source entry flipped": (newest_in("sources/0"), flip, STAYS, BACK),
    "source entry gone": (newest_in("sources/0"), gone, STAYS, BACK),
    "older source entry flipped": (newest_in("sources/0", 6), flip, STARTS, "not affected"),
    "compact entry cut": (named("sources/0/9.compact"), cut, STAYS, BACK),
    "delta flipped": (lambda c: newest_of(c, ".changelog"), flip, STAYS, BACK),
    "delta cut": (lambda c: newest_of(c, ".changelog"), cut, STAYS, BACK),
    "delta gone": (lambda c: newest_of(c, ".changelog"), gone, STAYS, BACK),
    "older delta flipped": (oldest_changelog, flip, STARTS, "not possible"),
    "snapshot flipped": (lambda c: newest_of(c, ".zip"), flip, STARTS, "older snapshot"),
    "snapshot cut": (lambda c: newest_of(c, ".zip"), cut, STARTS, "older snapshot"),
    "snapshot gone": (lambda c: newest_of(c, ".zip"), gone, STARTS, "older snapshot"),
    "shared file flipped": (lambda c: newest_of(c, ".sst"), flip, STARTS, "older snapshot"),
    "shared file gone": (lambda c: newest_of(c, ".sst"), gone, STARTS, "older snapshot"),
    "checksum flipped": (lambda c: f"{newest_of(c, '.changelog')}.crc", flip, STARTS, AGAIN),
    "sums of an entry emptied": (
        lambda c: sums_of(newest_in("sources/0")(c)),
        emptied,
        STARTS,
        AGAIN,
    ),
    "sums of a plan cut": (lambda c: sums_of(newest_in("offsets")(c)), cut, STARTS, AGAIN),
    "sums of a delta cut": (lambda c: sums_of(newest_of(c, ".changelog")), cut, STARTS, AGAIN),
    "sums of an entry flipped": (
        lambda c: sums_of(newest_in("sources/0")(c)),
        last_bit,
        STAYS,
        BACK,
    ),
    "operator flipped": (named("state/0/_metadata/v2/0"), flip, STAYS, "No kept batch"),
    "schema cut": (named("state/0/_stateSchema/default/0_*"), cut, STAYS, "No kept batch"),
}
