"""The answers of `list` and `show`, as JSON: bytes, times in RFC 3339 UTC, milliseconds.

Times are those of files: when a batch was planned (`offsets/N`), when its state was written (its
changelogs), when Spark recorded it (`commits/N`). Between the last two the sink writes; only the
ledger knows when, by the database's clock.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.sink.contract.canonical import rfc3339, rfc3339_from_micros
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint import origin, repeats, retention, shape
from holdfast.spark_app.checkpoint_manager import history
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.kept import Kept
from holdfast.spark_app.checkpoint_manager.ledger import ledger
from holdfast.spark_app.exposure.settings import MILLISECOND_US

_UNKNOWN_IDS = "event ids inside a snapshot are not counted: its files are RocksDB's own"

Document = dict[str, Any]


def listed(folder: Folder, dsn: str | None) -> Document:
    """Return all kept batches, the newest first."""
    kept = Kept(folder)
    written = _written(folder, kept, dsn)
    newest = kept.newest
    waiting = [batch for batch in kept.planned if newest is None or batch > newest]
    return _head(folder) | {
        "last_batch_id": newest,
        "planned_batch_ids": waiting,
        "bytes": sum(stat.size for stat in folder.files.values()),
        "state_bytes": _sized(folder, [n for n in folder.files if n.startswith("state/")]),
        "retention": retained(folder),
        "batches": [_batch(folder, batch, written) for batch in reversed(kept.committed)],
    }


def shown(folder: Folder, batch: int, dsn: str | None) -> Document:
    """Return everything about one committed batch; raises CommandError where it is not kept."""
    kept = Kept(folder)
    require_kept(kept, batch)
    needs = kept.needs(batch)
    plan = folder.plan(batch)
    written = _written(folder, kept, dsn)
    return (
        _head(folder)
        | _batch(folder, batch, written)
        | {
            "sources": list(plan.sources) if plan else None,
            "pinned": plan.conf if plan else None,
            "settings": _settings(folder),
            "retention": retained(folder),
            "state": [
                {
                    "operator": operator,
                    "partition": partition,
                    # The state after batch N is version N + 1.
                    "snapshot_batch_id": None if chain.snapshot is None else chain.snapshot - 1,
                    "changelogs": sum(name.endswith(".changelog") for name in chain.files),
                    "bytes": _sized(folder, chain.files),
                }
                for (operator, partition), chain in kept.chains(batch).items()
            ],
            "changes": _changes(folder, kept, batch),
            "changes_note": _UNKNOWN_IDS,
            "files": [
                {
                    "file": name,
                    "bytes": stat.size if (stat := folder.files.get(name)) else None,
                    "problem": folder.problem(name),
                }
                for name in needs.files
            ],
            "restorable": needs.usable,
            "problems": _problems(needs.problems),
            "replaced": _problems(needs.replaced),
        }
    )


def require_kept(kept: Kept, batch: int) -> None:
    """Raise CommandError unless a batch is committed and kept."""
    if batch in kept.committed:
        return
    newest = kept.newest
    if newest is None:
        reason = "the checkpoint has no committed batch yet"
    elif batch > newest:
        reason = f"batch {batch} is not committed yet: the newest one is {newest}"
    else:
        reason = f"batch {batch} is not kept any more: the oldest one is {min(kept.committed)}"
    raise CommandError(
        f"{reason}. Nothing was changed.", ExitCode.NOTHING_MATCHED, code="unknown_batch"
    )


def retained(folder: Folder) -> Document | None:
    """Return with what retention the newest start ran; None for one that did not record it."""
    kept = folder.own(retention.FILE) if retention.FILE in folder.files else None
    return None if kept is None else {"keep_batches": kept["keep_batches"], "spark": kept["spark"]}


def time(seconds: float | None) -> str | None:
    """Return a file's time in RFC 3339, in milliseconds."""
    if seconds is None:
        return None
    return rfc3339(datetime.fromtimestamp(round(seconds, 3), UTC))


def _head(folder: Folder) -> Document:
    query_id = folder.query_id()
    return {
        "checkpoint": folder.location,
        "stream": stream(folder),
        "query_id": None if query_id is None else str(query_id),
        "repeats_until": repeats_until(folder),
        "restores": [
            {
                "batch_id": each.batch,
                "last_batch_id": each.newest,
                "restored_at": each.begun_at,
            }
            for each in history.restores(folder)
        ],
    }


def repeats_until(folder: Folder) -> int | None:
    """Return the newest batch that the next start repeats; None where it repeats none."""
    kept = folder.own(repeats.FILE) or {}
    until, newest = kept.get("until"), max(folder.batches("commits"), default=-1)
    return until if isinstance(until, int) and until > newest else None


def stream(folder: Folder) -> str | None:
    """Return the stream that the checkpoint's job writes, None where it cannot be read."""
    name = (folder.own(shape.FILE) or {}).get("stream")
    return name if isinstance(name, str) else None


def _settings(folder: Folder) -> Document | None:
    kept = folder.own(shape.FILE)
    return None if kept is None else {name: kept[name] for name in kept if name != "version"}


def _written(folder: Folder, kept: Kept, dsn: str | None) -> Mapping[int, datetime]:
    name, query_id, newest = stream(folder), folder.query_id(), kept.newest
    if dsn is None or name is None or query_id is None or newest is None:
        return {}
    try:
        with ledger(dsn, name) as books:
            return books.written(query_id, min(kept.committed))
    except CommandError as error:
        # The files answer without it.
        print(f"the ledger's times are missing: {error}", file=sys.stderr)  # noqa: T201
    return {}


def _batch(folder: Folder, batch: int, written: Mapping[int, datetime]) -> Document:
    plan, commit = folder.plan(batch), folder.committed(batch)
    changelogs, snapshots = _own_state(folder, batch)
    planned, committed = (_changed(folder, f"{log}/{batch}") for log in ("offsets", "commits"))
    if batch == 0 and origin.FILE in folder.files:
        # The plan and the commit of the batch that took over a savepoint are written again.
        planned = committed = None
    state = max((folder.files[name].changed_at for name in changelogs), default=None)
    outbox = written[batch].timestamp() if batch in written else None
    return {
        "batch_id": batch,
        "watermark": _moment(plan.watermark_ms) if plan else None,
        "next_watermark": _moment(commit.next_watermark_ms) if commit else None,
        "planned_at": time(planned),
        "state_at": time(state),
        "written_at": time(outbox),
        "committed_at": time(committed),
        "phases_ms": {
            "plan_to_state": _between(planned, state),
            "state_to_outbox": _between(state, outbox),
            "outbox_to_commit": _between(outbox, committed),
            "state_to_commit": _between(state, committed),
            "plan_to_commit": _between(planned, committed),
        },
        "changelog_bytes": _sized(folder, changelogs),
        "snapshot_bytes": _sized(folder, snapshots),
    }


def _own_state(folder: Folder, batch: int) -> tuple[list[str], list[str]]:
    """Return the changelogs and the snapshot files that a batch has made."""
    commit = folder.committed(batch)
    changelogs, snapshots = [], []
    for operator, ids in (commit.state_ids if commit else {}).items():
        for partition, unique_id in enumerate(ids):
            at = f"state/{operator}/{partition}"
            stem = f"{at}/{batch + 1}_{unique_id}"
            if f"{stem}.changelog" in folder.files:
                changelogs.append(f"{stem}.changelog")
            if (snapshot := folder.snapshot(f"{stem}.zip")) is not None:
                snapshots += [f"{stem}.zip", *(f"{at}/SSTs/{name}" for name in snapshot.sst_files)]
    return changelogs, snapshots


def _changes(folder: Folder, kept: Kept, batch: int) -> Document | None:
    """Return the uncompressed bytes that a batch changed, by kind of value; None if unknown."""
    chains = kept.chains(batch).values()
    zips = [name for chain in chains for name in chain.files if name.endswith(".zip")]
    snapshots = filter(None, map(folder.snapshot, zips))
    families = {n: name for each in snapshots for n, name in each.column_families.items()}
    sizes: Counter[str] = Counter()
    changelogs, _ = _own_state(folder, batch)
    for name in changelogs:
        if (changelog := folder.changelog(name)) is not None:
            for family, size in changelog.sizes.items():
                named = families.get(family, f"column family {family}")
                sizes["timers" if named.startswith("$") else named] += size
    return dict(sorted(sizes.items())) if changelogs else None


def _sized(folder: Folder, names: Any) -> int:
    return sum(folder.files[name].size for name in names if name in folder.files)


def _changed(folder: Folder, name: str) -> float | None:
    stat = folder.files.get(name)
    return None if stat is None else stat.changed_at


def _between(start: float | None, end: float | None) -> int | None:
    return None if start is None or end is None else round((end - start) * 1000)


def _moment(milliseconds: int) -> str | None:
    return rfc3339_from_micros(milliseconds * MILLISECOND_US) if milliseconds else None


def _problems(problems: Mapping[str, str]) -> list[Document]:
    return [{"file": name, "problem": why} for name, why in problems.items()]
