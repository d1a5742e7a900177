"""The sources of a job: directories of event files, and the ticks of the idle clock.

Spark knows a query's sources by their position alone (`sources/0`, `sources/1`, the lines of
`offsets/N`). A checkpoint therefore records them in their order, and every later run keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from spark_app.input.formats import Format
from spark_app.input.source import local


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of event files."""

    path: str
    format: Format

    @property
    def place(self) -> str:
        """The path in one spelling: a local one without its scheme; links are not resolved."""
        folder = local(self.path)
        return normpath(self.path) if folder is None else normpath(folder)


@dataclass(frozen=True, slots=True)
class Ticks:
    """The idle clock (`ticks`)."""


Source = Files | Ticks


class SourcesDiffer(Exception):
    """A start lacks a source of its checkpoint."""


def to_json(source: Source) -> dict[str, str]:
    """Return a source as `from_json` reads it."""
    match source:
        case Files():
            return {"kind": "files", "path": source.path, "format": source.format.value}
        case Ticks():
            return {"kind": "ticks"}


def from_json(kept: Mapping[str, Any]) -> Source:
    """Return what `to_json` wrote; else raises KeyError or ValueError."""
    match kept["kind"]:
        case "files":
            return Files(kept["path"], Format(kept["format"]))
        case "ticks":
            return Ticks()
        case other:
            raise ValueError(f"{other!r} is not a kind of source")


def followed_by(kept: Sequence[Source], wanted: Sequence[Source]) -> tuple[Source, ...]:
    """Return the sources of a checkpoint, and after them those that this start adds.

    The ticks stay, whether wanted or not. Raises SourcesDiffer when a directory is missing, or has
    another format.
    """
    files = {each.place: each for each in wanted if isinstance(each, Files)}
    differences = [
        said
        for each in kept
        if isinstance(each, Files) and (said := _difference(each, files.pop(each.place, None)))
    ]
    if differences:
        raise SourcesDiffer("; ".join(differences))
    ticks = [each for each in wanted if isinstance(each, Ticks) and each not in kept]
    return (*kept, *files.values(), *ticks)


def _difference(kept: Files, now: Files | None) -> str | None:
    if now is None:
        return f"--path {kept.path} is missing"
    if now.format is not kept.format:
        return f"--format was {kept.format.value}, is {now.format.value}"
    return None
