"""`verify`: read every file of a checkpoint, and say what is damaged, what of it matters, and the
way out.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from operator import itemgetter
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.shell import shell_word
from holdfast.spark_app.checkpoint import origin, policy_history, repeats, shape
from holdfast.spark_app.checkpoint_manager import history
from holdfast.spark_app.checkpoint_manager.folder import METADATA, MISSING, Folder, moved_from
from holdfast.spark_app.checkpoint_manager.kept import EXPIRED, Kept, Needs
from holdfast.spark_app.checkpoint_manager.listing import Document, stream
from holdfast.spark_app.exposure.errors import ExposureError
from holdfast.spark_app.inspection.reader import StateReader
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator import stored
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit

UNSUMMED = "its checksum file is damaged, and its content is intact"

_ALWAYS = (METADATA, shape.FILE, policy_history.FILE, origin.FILE)
"""The files that every batch needs: no older batch has another copy of them."""


def verified(
    folder: Folder, *, deep: bool = False, launch: Launch | None = None
) -> tuple[Document, ExitCode]:
    """Check all files; the code is OK, DEGRADED (the next start works) or FAILED (it does not).

    With `deep`, Spark reads the newest state as well, where its files are intact.
    """
    kept = Kept(folder)
    damaged = folder.problems()
    damaged |= dict.fromkeys(kept.gaps(), MISSING)
    needs = {batch: kept.needs(batch) for batch in kept.committed}
    for each in needs.values():
        problems = {**each.problems, **each.replaced}
        damaged |= {name: why for name, why in problems.items() if why != EXPIRED}
    newest = kept.newest
    start = kept.needs(newest, to_start=True) if newest is not None else None
    blocking = _blocking(folder, kept, start)
    damaged |= blocking
    damaged |= dict.fromkeys(folder.unsummed, UNSUMMED)
    for name in folder.unsummed:
        # Spark's checksum is a file with a checksum of its own.
        damaged.pop(f"{name}.crc", None)
    unfinished = history.unfinished(folder)
    decoded = None
    if deep and newest is not None and not blocking:
        from holdfast.spark_app.checkpoint_manager.verify import read_state  # noqa: PLC0415 - starts Spark

        decoded = read_state(folder, newest, launch)
        if decoded["problem"]:
            blocking |= {f"state after batch {newest}": decoded["problem"]}
            damaged |= blocking
    if blocking or unfinished:
        code = ExitCode.FAILED
    else:
        code = ExitCode.DEGRADED if damaged else ExitCode.OK
    usable = [batch for batch, each in needs.items() if each.usable]
    document: Document = {
        "checkpoint": folder.location,
        "stream": stream(folder),
        "result": {0: "intact", 4: "damaged", 1: "unusable"}[code],
        "last_batch_id": newest,
        "last_planned_batch_id": max(kept.planned, default=None),
        "files": len(folder.files),
        "bytes": sum(stat.size for stat in folder.files.values()),
        "damaged": [
            _described(name, why, blocking, needs) for name, why in sorted(damaged.items())
        ],
        "batches": [
            {"batch_id": batch, "restorable": each.usable, "problems": sorted(each.problems)}
            for batch, each in sorted(needs.items(), reverse=True)
        ],
        "moved_from": moved_from(folder.location, folder.own(shape.FILE)),
        "unfinished_restore_batch_id": unfinished.batch if unfinished else None,
        "deep": decoded,
    }
    document["advice"] = _advice(folder, document, blocking, usable)
    return document, code


def _blocking(folder: Folder, kept: Kept, start: Needs | None) -> dict[str, str]:
    """Return what refuses or fails the next start."""
    if start is not None:
        blocking = dict(start.problems)
    else:
        always = (name for name in _ALWAYS if name in folder.files or name != origin.FILE)
        blocking = {name: why for name in always if (why := folder.problem(name)) is not None}
    repeated = (name for name in folder.files if name.startswith((repeats.FOLDER, repeats.FILE)))
    blocking |= {name: why for name in repeated if (why := folder.problem(name)) is not None}
    newest_plan = max(kept.planned, default=-1)
    # Without the plan of a committed batch, the ledger is ahead of the checkpoint.
    blocking |= {f"offsets/{batch}": MISSING for batch in kept.committed if batch > newest_plan}
    return blocking


def _described(
    name: str, why: str, blocking: Mapping[str, str], needs: Mapping[int, Needs]
) -> Document:
    return {
        "file": name,
        "problem": why,
        "needed_to_start": name in blocking,
        "needed_by_batch_ids": [
            batch for batch, each in sorted(needs.items()) if name in each.problems
        ],
        "replaced_for_batch_ids": [
            batch for batch, each in sorted(needs.items()) if name in each.replaced
        ],
    }


def _advice(
    folder: Folder, document: Document, blocking: Mapping[str, str], usable: list[int]
) -> list[str]:
    """Return what the next start does, and the way out."""
    where = shell_word(folder.location)
    restore = f"holdfast job checkpoints restore --checkpoint {where} --batch"
    if (batch := document["unfinished_restore_batch_id"]) is not None:
        return [f"A restore to batch {batch} was interrupted; finish it: {restore} {batch}"]
    if origin.FILE in folder.files and shape.FILE not in folder.files:
        unmade = "The checkpoint was being made from a savepoint, and that did not end."
        return [f"{unmade} Start with the same --from-savepoint again, which completes it."]
    if not blocking:
        lines = [_harmless(document["damaged"])] if document["damaged"] else []
        return [*lines, *_prunable(folder, document, where)]
    advice = ["The next start is refused, or its first batch fails; what the ledger has stands."]
    always = sorted(set(blocking).intersection(_ALWAYS))
    if always:
        advice.append(
            f"Restore {', '.join(always)} from a copy: all batches need the same one."
            + (
                ' `metadata` holds {"id":"ID"}, with the adopted id of `holdfast stream show'
                f" {document['stream']}`."
                if METADATA in always and document["stream"]
                else ""
            )
        )
    elif usable:
        advice.append(f"Go back to the newest intact batch, {usable[-1]}: {restore} {usable[-1]}")
    else:
        advice.append(
            "No kept batch is intact. Start from a savepoint; or begin a new checkpoint and let the"
            " stream adopt it (`holdfast stream adopt`): it continues from the published windows"
            " and holds."
        )
    return advice


def _harmless(damaged: list[dict[str, Any]]) -> str:
    replaced = [each["file"] for each in damaged if each["replaced_for_batch_ids"]]
    unsummed = [each["file"] for each in damaged if each["problem"] == UNSUMMED]
    older = sorted({batch for each in damaged for batch in each["needed_by_batch_ids"]})
    text = "The next start is not affected."
    if replaced:
        text += (
            " Spark reads the state from an older snapshot and more changelogs"
            f" ({', '.join(replaced)})."
        )
    if unsummed:
        text += f" It writes the checksum of {', '.join(unsummed)} again."
    if older:
        text += f" A restore to batch {', '.join(map(str, older))} is not possible."
    return text


def _prunable(folder: Folder, document: Document, where: str) -> list[str]:
    """Return the command that removes what no batch needs, where there is such a thing."""
    unneeded = [
        each["file"]
        for each in document["damaged"]
        if not each["replaced_for_batch_ids"]
        and not each["needed_by_batch_ids"]
        and each["problem"] != UNSUMMED
    ]
    prunable = [*unneeded, *(f"{name}/" for name in history.removed_folders(folder))]
    # `prune` keeps intact batches only; those here are sorted from the newest.
    keep = len(list(takewhile(itemgetter("restorable"), document["batches"])))
    if not prunable or not keep:
        return []
    prune = f"holdfast job checkpoints prune --checkpoint {where} --keep-last {keep}"
    return [f"No batch needs {', '.join(prunable)}. With the job stopped, remove it: {prune}"]


# `verify --deep`: Spark reads the state after a batch, and every stored value is decoded.
#
# Beyond the files' checksums this covers what Spark makes of them, and each value's own CRC.


def read_state(folder: Folder, batch: int, launch: Launch | None) -> Document:
    """Let Spark decode the state after a batch; `problem` is None where all of it is intact.

    Raises CommandError where Spark does not start.
    """
    if folder.tree.spark is not None:
        return _decoded(StateReader(folder.tree.spark, folder.location), batch)
    if not launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast verify", launch)
    try:
        return _decoded(StateReader(spark, folder.location), batch)
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()


def _decoded(reader: StateReader, batch: int) -> Document:
    values: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    problem = None
    try:
        operator = reader.operator()
        if operator is None:
            problem = "Spark finds no state"
        else:
            for kind, content in reader.contents(operator, batch):
                values[kind] += 1
                rows[kind] += 0 if content is None else stored.decode_value(kind, content).num_rows
    except (CommandError, ExposureError) as error:
        problem = str(error)
    except (PySparkException, Py4JError, ConnectionError) as error:
        problem = diagnose(error).said
    return {
        "batch_id": batch,
        "values": dict(sorted(values.items())),
        "merchants": rows[stored.GROUP],
        "windows": rows[stored.WINDOWS],
        "event_ids": rows[stored.IDS],
        "problem": problem,
    }
