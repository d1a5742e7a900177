"""Whether Spark found each file that a batch was planned to read.

Spark logs the files of a batch for each source (`sources/0/N`), and lists them once more when it
makes the query of the batch. It silently reads a file that is missing then as empty, also with
`ignoreMissingFiles` off, and never reads it again, because the file is in the log. Files disappear
between the two when a driver dies after it planned and something cleans up before the next start,
or a volume is not mounted after a reboot; in a running job, while they wait behind
`maxFilesPerTrigger`.

So the log is compared with what Spark found, not with a new listing: a file that was missing for a
moment would be there again, and would still be read as empty. A file that disappears later is
Spark's own error, because Spark found it and then cannot open it.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


class FileGone(Exception):
    """A file that a batch was planned to read is not there."""


def require_files(query: StreamingQuery, batch_id: int) -> None:
    """Raise FileGone unless Spark found every file of the batch that `query` is about to run.

    Call it in foreachBatch, before anything of the batch is written. It compares two counts that
    the JVM has in memory: nothing is listed or read.
    """
    for index in _indexes(query):
        # With a file whose name could be a Hadoop pattern, Spark lists the others twice.
        planned, found = index.rootPaths().distinct(), index.allFiles()
        if planned.size() != found.size():
            present = {str(file.getPath().toString()) for file in _each(found)}
            names = [str(path.toString()) for path in _each(planned)]
            raise FileGone(describe([name for name in names if name not in present], batch_id))


def describe(gone: list[str], batch_id: int) -> str:
    """Return which files are missing, what was not lost, and what to do."""
    more = len(gone) - 1
    are = f"(and {more} more) are" if more else "is"
    return (
        f"{gone[0].removeprefix('file:')} {are} gone, and batch {batch_id} was planned to read"
        f" {'them' if more else 'it'}. Nothing of the batch was written now, and nothing is lost:"
        f" put {'each' if more else 'it'} back under its name and start again. To drop"
        " its events for good, put an empty file in its place."
    )


def _indexes(query: StreamingQuery) -> Iterator[Any]:
    """Yield Spark's file index of each source of files that has data in the batch."""
    execution: Any = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 - PySpark has no public way
    for leaf in _each(execution.analyzed().collectLeaves()):
        # A source without data is a LocalRelation; one that is not of files has another class.
        if leaf.isStreaming() and leaf.getClass().getSimpleName() == "LogicalRelation":
            yield leaf.relation().location()


def _each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    elements = sequence.iterator()
    while elements.hasNext():
        yield elements.next()
