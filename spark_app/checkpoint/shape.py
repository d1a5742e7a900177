"""The settings that must not change between two runs on one checkpoint.

A merchant's key group depends on the number of groups, the windows in state depend on the
durations, and the format of the state depends on Spark's settings. A start with different settings
would not fail: merchants would silently start with an empty state.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.input.formats import Format
from holdfast.spark_app.input.sources import (
    Files,
    Kafka,
    Source,
    SourcesDiffer,
    followed_by,
    from_json,
    to_json,
)
from holdfast.spark_app.operator.job import Job
from holdfast.spark_app.runtime.launch import FIXED

FILE: Final = "holdfast.json"
VERSION: Final = 4
"""Version 2 had a format and not the sources, and version 3 no topics."""

WITHOUT_TOPICS = 3
"""What a checkpoint without topics is written as: the Holdfast before can continue it."""

LOCATION: Final = "location"
"""Its name in the file: the path where the checkpoint was begun, see `journal`."""

SOURCES: Final = "sources"
"""Their name in the file."""

LAYOUT: Final = 2
"""Version of the layout of the operator's state (`stored`). Raise it with every change after which
Spark would find an empty state."""

PINNED: Final = (
    "spark.sql.session.timeZone",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.checkpointFormatVersion",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.stateStore.encodingFormat",
)
"""The settings of `launch.FIXED` that affect a checkpoint's files and times."""

_OPTIONS = {
    "stream": "--stream",
    "key_groups": "--key-groups",
    "partitions": "--partitions",
    "watermark_delay_us": "--watermark-delay",
    "late_cutoff_us": "--late-cutoff",
    "future_tolerance_us": "--future-tolerance",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How a checkpoint was begun; durations in microseconds.

    A later start may add sources; all else stays.
    """

    stream: str
    sources: tuple[Source, ...]
    key_groups: int
    partitions: int
    window_us: int
    watermark_delay_us: int
    late_cutoff_us: int
    future_tolerance_us: int
    layout: int = LAYOUT
    spark: Mapping[str, str] = field(default_factory=lambda: {name: FIXED[name] for name in PINNED})

    @classmethod
    def of(cls, job: Job) -> Self:
        """Return the shape of a job."""
        return cls(
            stream=job.stream,
            sources=job.sources or job.declared,
            key_groups=job.group_count,
            partitions=job.partitions,
            **asdict(job.settings),
        )

    def to_json(self, location: str) -> str:
        """Return the text of `FILE`, with the path where the checkpoint is begun."""
        return _text({LOCATION: location, **asdict(self)}, self.sources)

    def require(self, kept: Mapping[str, Any], checkpoint: str) -> None:
        """Raise CommandError unless the checkpoint was begun with this shape."""
        foreign = self.foreign(kept)
        if foreign:
            raise CommandError(
                f"the checkpoint {checkpoint} was written by another version of Holdfast"
                f" ({'; '.join(foreign)}), and this one would not find its state. Nothing was read"
                " or written; run the version that wrote it, or start with a new checkpoint, which"
                " the stream then has to adopt (`holdfast stream adopt`): it continues from the"
                " published windows and holds.",
                code="checkpoint_version_mismatch",
            )
        differences = self.differences(kept)
        if differences:
            raise CommandError(
                f"the checkpoint {checkpoint} was begun with other settings:"
                f" {'; '.join(differences)}. Its state would not fit. Nothing was read or"
                " written; start with the settings as they were. A new checkpoint that begins with"
                " a savepoint (`holdfast job savepoint`) may have other key groups and partitions;"
                " one without it may have other durations too, and the stream has to adopt it"
                " (`holdfast stream adopt`).",
                code="settings_mismatch",
            )

    def differences(self, kept: Mapping[str, Any]) -> list[str]:
        """Describe every setting of the job that differs from the stored one."""
        return [
            f"{_OPTIONS.get(name, name)} was {_shown(name, kept.get(name))},"
            f" is {_shown(name, value)}"
            for name, value in asdict(self).items()
            if name not in ("layout", "spark", SOURCES) and kept.get(name) != value
        ]

    def foreign(self, kept: Mapping[str, Any]) -> list[str]:
        """Describe every difference that only another version of Holdfast can cause."""
        then = {"layout of the state": kept.get("layout", "not set"), **kept.get("spark", {})}
        now = {"layout of the state": self.layout, **self.spark}
        return [
            f"{name} was {then.get(name, 'not set')}, is {value}"
            for name, value in now.items()
            if then.get(name) != value
        ]


def sources_of(
    kept: Mapping[str, Any], declared: Sequence[Source], checkpoint: str
) -> tuple[Source, ...]:
    """Return the sources of a checkpoint in Spark's order, with those that this start adds.

    Raises CommandError when one is missing, and KeyError or ValueError for damaged content.
    """
    try:
        return followed_by(recorded(kept, declared), declared)
    except SourcesDiffer as differences:
        raise CommandError(
            f"the checkpoint {checkpoint} does not fit the sources of this start: {differences}."
            f" Nothing was read or written; {_way_out(declared, kept)}",
            code="sources_mismatch",
        ) from differences


def _way_out(declared: Sequence[Source], kept: Mapping[str, Any]) -> str:
    kinds = {source["kind"] for source in kept.get(SOURCES, ())}
    kinds |= {to_json(source)["kind"] for source in declared}
    advice = "start with every --path that it has, in any order, and new ones if there are any."
    if "kafka" in kinds:
        advice = (
            "start with every --path and --topic that it has, in any order, and the same cluster."
        )
    if "files" in kinds:
        advice += (
            " A directory that gets no more files may be empty; for one that was moved, put a link"
            " in its place."
        )
    return advice


def recorded(kept: Mapping[str, Any], declared: Sequence[Source]) -> list[Source]:
    """Return the sources in `FILE`; one that an older version did not record is the wanted one.

    Raises SourcesDiffer where it is not known, and KeyError or ValueError for damaged content.
    """
    if kept["version"] >= WITHOUT_TOPICS:
        return [from_json(source) for source in kept[SOURCES]]
    first, *others = [source for source in declared if isinstance(source, Files)]
    if others:
        raise SourcesDiffer(
            "an older Holdfast began it with one --path and did not record which; start it once"
            " with that one alone, and then with the others"
        )
    return [replace(first, format=Format(kept["format"]))]


def grown(kept: Mapping[str, Any], location: str, sources: Sequence[Source]) -> str | None:
    """Return the text of `FILE` with these sources; None where it has them."""
    if kept["version"] >= WITHOUT_TOPICS and kept[SOURCES] == [
        to_json(source) for source in sources
    ]:
        return None
    same = {name: value for name, value in kept.items() if name != "format"}
    return _text({**same, LOCATION: location}, sources)


def _text(kept: Mapping[str, Any], sources: Sequence[Source]) -> str:
    has_topics = any(isinstance(each, Kafka) for each in sources)
    version = VERSION if has_topics else WITHOUT_TOPICS
    described = {"version": version, **{n: v for n, v in kept.items() if n != "version"}}
    return json.dumps({**described, SOURCES: [to_json(each) for each in sources]}, indent=2) + "\n"


def _shown(name: str, value: Any) -> str:
    if name.endswith("_us") and isinstance(value, int):
        return f"{value / 1_000_000:g}s"
    return str(value)
