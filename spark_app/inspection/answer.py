"""`job inspect`: read a merchant's state and print it."""

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.checkpoint.shape import FILE
from holdfast.spark_app.input.source import absolute
from holdfast.spark_app.input.validate import ID_CHARACTERS_MAX
from holdfast.spark_app.inspection import document, render
from holdfast.spark_app.inspection.diff import difference
from holdfast.spark_app.inspection.document import StateLocation
from holdfast.spark_app.inspection.reader import (
    CheckpointInfo,
    Operator,
    StateReader,
    no_checkpoint,
)
from holdfast.spark_app.inspection.view import Snapshot, view
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator.groups import key_group
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java


@dataclass(frozen=True, slots=True)
class Question:
    """The merchant and the batches to show."""

    checkpoint: str
    merchant_id: str
    batch: int | None = None
    """None for the newest committed one."""
    diff: tuple[int, int] | None = None
    """Show instead what changed between two batches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The output as JSON and as text."""

    document: dict[str, Any]
    text: list[Text]
    nothing: str | None = None
    """Why nothing was found, as a message."""


def run(question: Question, *, as_json: bool) -> None:
    """Print the answer on stdout; raises CommandError, with exit code 3 for an unknown merchant."""
    _require_id(question.merchant_id)
    checkpoint = absolute(question.checkpoint)
    # Before the start of Spark, so that a wrong path fails at once.
    if checkpoint.startswith("/") and not Path(checkpoint, FILE).is_file():
        raise no_checkpoint(checkpoint)
    if not session.launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast inspect")
    try:
        answer = ask(spark, question)
    finally:
        # A JVM that has died was reported already.
        with suppress(Py4JError, OSError):
            spark.stop()
    if as_json:
        json.dump(answer.document, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        _print(answer.text)
    if answer.nothing is not None:
        raise CommandError(answer.nothing, ExitCode.NOTHING_MATCHED)


def ask(spark: SparkSession, question: Question) -> Answer:
    """Return the answer; raises CommandError for what does not exist or cannot be read."""
    try:
        return _answer(spark, question, absolute(question.checkpoint))
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise CommandError(
            f"{question.checkpoint} cannot be read: {diagnose(error).said.rstrip('.')}. Nothing was"
            " changed."
        ) from error


def _answer(spark: SparkSession, question: Question, checkpoint: str) -> Answer:
    info, reader = CheckpointInfo(spark, checkpoint), StateReader(spark, checkpoint)
    begun = info.settings()
    group = key_group(question.merchant_id, begun.key_groups)
    operator = reader.operator()
    location = StateLocation(
        checkpoint=checkpoint,
        merchant_id=question.merchant_id,
        stream=begun.stream,
        key_group=group,
        key_groups=len(begun.key_groups),
        batches=None if operator is None else (operator.oldest, operator.newest),
    )
    if operator is None:
        return Answer(
            document.unbegun(location),
            [],
            f"{checkpoint} has no committed batch yet: try again later.",
        )
    batches = question.diff or (question.batch if question.batch is not None else operator.newest,)
    _require(operator, batches)
    judged_us = {batch: info.watermark_us(batch) for batch in batches}
    remembered = reader.key_group(operator, group, batches)
    snapshots = [
        Snapshot(
            batch=batch,
            judged_us=judged_us[batch],
            group_timer_us=remembered[batch].timer_us,
            settled_until_us=remembered[batch].state.settled_until_us,
            merchant=view(remembered[batch].state, question.merchant_id, begun.settings),
        )
        for batch in batches
    ]
    return (
        _inspected(location, *snapshots) if len(snapshots) == 1 else _compared(location, *snapshots)
    )


def _inspected(location: StateLocation, snapshot: Snapshot) -> Answer:
    found = document.inspected(location, snapshot)
    if snapshot.merchant is None:
        return Answer(found, [], _nothing(location, f"after batch {snapshot.batch}"))
    return Answer(found, list(render.inspected(location, snapshot, snapshot.merchant)))


def _compared(location: StateLocation, before: Snapshot, after: Snapshot) -> Answer:
    found = difference(before, after)
    answer = document.compared(location, found)
    if not found.known:
        where = f"after batch {before.batch} nor after batch {after.batch}"
        return Answer(answer, [], _nothing(location, where))
    return Answer(answer, list(render.compared(location, found)))


def _nothing(location: StateLocation, where: str) -> str:
    return (
        f"there is no state of the merchant {location.merchant_id} {where}: it is not held and has"
        " no window that is open or can be revised. Its published windows are in exposure_window."
    )


def _require_id(merchant_id: str) -> None:
    if not 0 < len(merchant_id) <= ID_CHARACTERS_MAX or min(merchant_id) < " ":
        raise CommandError(
            f"--merchant is not the id of a merchant: it has 1 to {ID_CHARACTERS_MAX} characters,"
            " and none below U+0020. Nothing was read.",
            ExitCode.USAGE,
        )


def _require(operator: Operator, batches: Iterable[int]) -> None:
    for batch in batches:
        if not operator.oldest <= batch <= operator.newest:
            when = "is not committed yet" if batch > operator.newest else "is no longer available"
            raise CommandError(
                f"batch {batch} {when}: the state can be read after the batches"
                f" {operator.oldest} to {operator.newest}. Nothing was changed.",
                ExitCode.NOTHING_MATCHED,
            )


def _print(lines: Iterable[Text]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)
