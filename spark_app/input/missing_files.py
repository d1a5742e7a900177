"""Whether Spark found each file that a batch was planned to read.

Spark writes down which files a batch has (`sources/0/N`), and looks for them once more when it
makes the query of the batch. A file that is gone by then it reads as empty, without a word, also
with `ignoreMissingFiles` off; and it never looks for it again, because it is on the list. Files go
away between the two when a driver dies after it planned and something cleans up before the next
start, or a volume is not there after a reboot; in a running job, while they wait behind
`maxFilesPerTrigger`.

So the list is compared with what Spark found, and not with another look at the file system: a file
that was away for a moment would be there again, and would still be read as empty. A file that goes
away later is Spark's own error, because Spark found it and then cannot open it.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


class FileGone(Exception):
    """A file that a batch was planned to read is not there."""


def require_files(query: StreamingQuery, batch_id: int) -> None:
    """Return when Spark found every file of the batch that `query` is about to run.

    To be called in foreachBatch, before anything of the batch is written. Two counts that the JVM
    has at hand are compared: nothing is listed or read. Raises FileGone.
    """
    for index in _indexes(query):
        # Beside a file whose name Hadoop could take for a pattern, Spark lists the others twice.
        planned, found = index.rootPaths().distinct(), index.allFiles()
        if planned.size() != found.size():
            present = {str(file.getPath().toString()) for file in _each(found)}
            names = [str(path.toString()) for path in _each(planned)]
            raise FileGone(describe([name for name in names if name not in present], batch_id))


def describe(gone: list[str], batch_id: int) -> str:
    """Say which files are gone, what was not lost, and what to do."""
    more = len(gone) - 1
    are = f"(and {more} more) are" if more else "is"
    return (
        f"{gone[0].removeprefix('file:')} {are} gone, and batch {batch_id} was planned to read"
        f" {'them' if more else 'it'}. Nothing of the batch was written now, and nothing is lost:"
        f" put {'each' if more else 'it'} back under its name and start again. Only where the"
        " events shall never be read, put an empty file in its place."
    )


def _indexes(query: StreamingQuery) -> Iterator[Any]:
    """Return what Spark found of each list of files in the batch; none in a batch without data."""
    execution: Any = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001 - PySpark has no public way
    for leaf in _each(execution.analyzed().collectLeaves()):
        if leaf.isStreaming() and leaf.getClass().getSimpleName() != "LocalRelation":
            yield leaf.relation().location()


def _each(sequence: Any) -> Iterator[Any]:
    """Return what a sequence of Scala holds."""
    elements = sequence.iterator()
    while elements.hasNext():
        yield elements.next()
