"""The batches that a checkpoint keeps, and the files that each of them needs.

The state after batch N is version N + 1 of each partition: a snapshot of some version, and the
changelog of each version after it. The ids of the versions are in `commits/N`, and those of older
ones in the changelogs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.checkpoint import origin, policy_history, shape
from holdfast.spark_app.checkpoint_manager import spark_files
from holdfast.spark_app.checkpoint_manager.folder import METADATA, MISSING, Folder

EXPIRED = "Spark has removed it, as older than what it keeps"
"""Not damage: of the oldest batch, Spark keeps less than a restore needs."""


@dataclass(frozen=True, slots=True)
class Chain:
    """How a version of one partition's state can be read."""

    snapshot: int | None
    """The version of the snapshot from which it is read; None where it cannot be read."""
    files: tuple[str, ...]
    """The files that are read, in the order in which they are applied."""
    problems: Mapping[str, str]
    """What was found damaged or missing on the way, also where another snapshot was found."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a start at the state after a batch needs."""

    files: tuple[str, ...]
    problems: Mapping[str, str]
    """Files without which the start is refused or fails."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Damaged or missing files for which another one serves."""

    @property
    def usable(self) -> bool:
        return not self.problems


class Kept:
    """The batches of a checkpoint."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.committed = folder.batches("commits")
        self.planned = folder.batches("offsets")
        self.chains = cache(self._chains)
        """Return the chain of each partition, by (operator, partition), after a batch."""

    @property
    def newest(self) -> int | None:
        """The newest committed batch."""
        return max(self.committed, default=None)

    def needs(self, batch: int, *, to_start: bool = False) -> Needs:
        """Return what is needed to start at the state after a committed batch.

        With `to_start`, without a restore: a restore can make a source's log again.
        """
        needed = _NeededFiles(self._folder)
        for name in (METADATA, shape.FILE, policy_history.FILE):
            needed.require(name)
        if origin.FILE in self._folder.files:
            needed.require(origin.FILE)
        needed.require(f"commits/{batch}")
        # Spark reads the plan before it as well.
        for planned in {max(batch - 1, 0), batch}:
            if not needed.require(f"offsets/{planned}") and planned < min(self.planned, default=0):
                needed.problems[f"offsets/{planned}"] = EXPIRED
        following = batch + 1
        if to_start and following in self.planned:
            needed.require(f"offsets/{following}")
        self._sources(
            following if to_start and following in self.planned else batch, needed, to_start
        )
        self._operators(batch, needed)
        for chain in self.chains(batch).values():
            needed.files.extend(chain.files)
            (needed.problems if chain.snapshot is None else needed.replaced).update(chain.problems)
        return Needs(tuple(dict.fromkeys(needed.files)), needed.problems, needed.replaced)

    def restorable(self) -> list[int]:
        """Return the committed batches to which a restore can go back, in ascending order."""
        return [batch for batch in self.committed if self.needs(batch).usable]

    def gaps(self) -> Iterator[str]:
        """Yield the missing files of batches between the oldest and the newest."""
        newest = max([*self.committed, *self.planned], default=0)
        oldest_commit = min(self.committed, default=newest)
        oldest_plan = min(self.planned, default=newest)
        for batch in range(oldest_plan, newest + 1):
            if batch not in self.planned:
                yield f"offsets/{batch}"
        for batch in range(oldest_commit, newest):
            if batch not in self.committed:
                yield f"commits/{batch}"

    def _sources(self, batch: int, needed: "_NeededFiles", to_start: bool) -> None:
        plan = self._folder.plan(batch)
        for source, line in enumerate(plan.sources if plan else ()):
            try:
                position = spark_files.log_offset(line)
            except ValueError:
                continue  # not a source of files
            if position is None:
                continue
            names = self._folder.source_names(source)
            read = spark_files.read_for(position, names)
            files = [f"sources/{source}/{name.text}" for name in read]
            problems = {name: why for name in files if (why := self._folder.problem(name))}
            if problems and not to_start:
                log = self._folder.source_log(source)
                if spark_files.rebuilt(position, names, log) is not None:
                    continue
            needed.files.extend(files)
            needed.problems.update(problems)

    def _operators(self, batch: int, needed: "_NeededFiles") -> None:
        for operator in self._committed_ids(batch) or {}:
            folder = f"state/{operator}/_metadata/v2"
            numbers = (int(n) for n in self._folder.in_folder(folder) if is_whole(n))
            newest = max((n for n in numbers if n <= batch), default=0)
            name = f"{folder}/{newest}"
            if needed.require(name) and (described := self._folder.operator(name)) is not None:
                for schema in described[1]:
                    needed.require(f"state/{schema.rpartition('/state/')[2]}")

    def _committed_ids(self, batch: int) -> Mapping[int, tuple[str, ...]] | None:
        commit = self._folder.committed(batch)
        return None if commit is None else commit.state_ids

    def _chains(self, batch: int) -> dict[tuple[int, int], Chain]:
        return {
            (operator, partition): self._chain(operator, partition, batch)
            for operator, ids in (self._committed_ids(batch) or {}).items()
            for partition in range(len(ids))
        }

    def _chain(self, operator: int, partition: int, batch: int) -> Chain:
        """Go back from a version to the first intact snapshot, through intact changelogs."""
        folder, at = self._folder, f"state/{operator}/{partition}"
        changes: list[str] = []
        problems: dict[str, str] = {}
        known: dict[int, str] = {}
        for version in range(batch + 1, 0, -1):
            unique_id = self._unique_id(operator, partition, version - 1) or known.get(version)
            if unique_id is None:
                problems.setdefault(f"{at}/{version}_*.changelog", MISSING)
                break
            stem = f"{at}/{version}_{unique_id}"
            if (files := self._snapshot_files(f"{stem}.zip", at, problems)) is not None:
                return Chain(version, (*files, *reversed(changes)), problems)
            name = f"{stem}.changelog"
            if (why := folder.problem(name)) is not None:
                problems[name] = why
                break
            changes.append(name)
            if version == 1:
                # The first version has a snapshot: changelogs do not name the kinds of values, and
                # without the names Spark fails, or its JVM dies.
                problems.setdefault(f"{stem}.zip", MISSING)
            if version - 1 not in known and (changelog := folder.changelog(name)) is not None:
                known |= {link.version: link.unique_id for link in changelog.before}
                # The list begins with a version that had a snapshot.
                for first in changelog.before[:1]:
                    expected = f"{at}/{first.version}_{first.unique_id}.zip"
                    if expected not in folder.files:
                        problems.setdefault(expected, MISSING)
        return Chain(None, tuple(reversed(changes)), problems)

    def _unique_id(self, operator: int, partition: int, batch: int) -> str | None:
        ids = (self._committed_ids(batch) or {}).get(operator, ())
        return ids[partition] if partition < len(ids) else None

    def _snapshot_files(
        self, name: str, at: str, problems: dict[str, str]
    ) -> tuple[str, ...] | None:
        """Return the files of a snapshot; None where there is none, or it is damaged."""
        if name not in self._folder.files:
            return None
        if (why := self._folder.problem(name)) is not None:
            problems[name] = why
            return None
        snapshot = self._folder.snapshot(name)
        files = [f"{at}/SSTs/{sst}" for sst in (snapshot.sst_files if snapshot else ())]
        damaged = {file: why for file in files if (why := self._folder.problem(file))}
        problems.update(damaged)
        return None if damaged else (*files, name)


class _NeededFiles:
    """Collects files and what is wrong with them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.files: list[str] = []
        self.problems: dict[str, str] = {}
        self.replaced: dict[str, str] = {}

    def require(self, name: str) -> bool:
        self.files.append(name)
        why = self._folder.problem(name)
        if why is not None:
            self.problems[name] = why
        return why is None
