"""What the sink asks of the Spark session in which a batch runs, classic or behind Spark Connect.

With Connect, `foreachBatch` runs in a Python worker beside the server. Its DataFrame has neither a
SparkContext nor a JVM, and its session is a clone without queries. So the query id is read from the
checkpoint, by Spark's own readers, and the run id from the queries of the client's session.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa

from holdfast.sink.contract.checkpoint import (
    MANAGER_CLASS,
    MANAGER_SETTING,
    manager_options,
)
from holdfast.sink.contract.store_faults import store_fault
from holdfast.sink.errors import BatchTooLarge, NotStreaming, UnsafeCheckpoint
from holdfast.sink.rows.nullable import nullable_in_utc
from holdfast.sink.transaction.lineage import Files, local_files, unreadable
from holdfast.sink.transaction.plans import Memory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = ("sql.streaming.runId", "spark.jobGroup.id")
_BATCH_ID = "streaming.sql.batchId"
_PATTERN = frozenset("{}[]*?\\")
"""Characters that make a path a pattern of several, to what reads files with Spark."""

_RESULT_LIMIT = "spark.driver.maxResultSize"

UNKNOWN_BYTES = 1 << 50
"""A plan whose source has no size estimate reports 2^63, scaled by row widths."""


class Identity(NamedTuple):
    """The ids of a micro-batch: the query id is the checkpoint's, the run id that of one start."""

    query_id: UUID
    run_id: UUID
    batch_id: int


class Session(Protocol):
    """A session, as the sink needs it."""

    def has(self, df: "DataFrame") -> bool:
        """Return whether a DataFrame belongs to it."""

    def files(self, checkpoint: str) -> Files:
        """Return the files of a checkpoint, as Spark finds it. Raises OSError."""

    def identity(self, df: "DataFrame", batch_id: int, files: Files | None) -> Identity:
        """Return the ids of a batch. Raises `NotStreaming`."""

    def plan_bytes(self, df: "DataFrame") -> int:
        """Return the optimizer's size estimate of a DataFrame in bytes; runs nothing."""

    def require_manager(self, location: str) -> None:
        """Raise `UnsafeCheckpoint` unless this session creates files there conditionally.

        Raises OSError where the store does not answer.
        """

    def memory(self, identity: Identity) -> Memory | None:
        """Return what this driver has planned for a batch; None where it cannot be known."""


def spark_of(df: "DataFrame") -> "SparkSession":
    """Return the Spark session of a DataFrame. Raises `NotStreaming` for anything else."""
    spark: SparkSession | None = getattr(df, "sparkSession", None)
    if spark is None:
        raise NotStreaming(
            f"the sink was called with {type(df).__name__} and no DataFrame of Spark. Nothing was"
            " written; pass the sink to writeStream.foreachBatch(...)."
        )
    return spark


def session_of(spark: "SparkSession", client: str | None) -> Session:
    """Return a session; `client` is the id of the Connect session in which the sink was pickled."""
    return _Connect(spark, client) if _is_connect(spark) else _Classic(spark)


def _is_connect(value: "SparkSession | DataFrame") -> bool:
    return type(value).__module__.startswith("pyspark.sql.connect.")


def client_session() -> str | None:
    """Return the id of the Connect session of this process; None where there is none."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is None:
        return None
    # In another thread than that which made it, a session is not active but still the default.
    session = (
        connect.SparkSession.getActiveSession() or connect.SparkSession._get_default_session()  # noqa: SLF001 - Connect has no public way
    )
    return None if session is None else str(session.session_id)


def collected(df: "DataFrame", schema: pa.Schema) -> pa.Table:
    """As `df.toArrow()`, with all fields nullable: a null in one that is not would stop it.

    Raises `BatchTooLarge`.
    """
    classic: Any = df  # its `toArrow` compares the rows with the schema, and is not in Spark 3.5
    try:
        batches = df.toArrow().to_batches() if _is_connect(df) else classic._collect_as_arrow()  # noqa: SLF001
    except Exception as error:
        if _RESULT_LIMIT not in str(error):
            raise
        raise BatchTooLarge(
            f"the batch is larger than {_RESULT_LIMIT}, the most that Spark lets into the driver."
            " Nothing was written now, and the batch is still in the checkpoint; set path='staged',"
            " so that its rows go from the tasks to Postgres, and restart. Or raise the limit, or"
            " let the source give less at a time and start from the checkpoint as it was before"
            " this batch."
        ) from error
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches([nullable_in_utc(batch) for batch in batches])


class _Classic:
    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._context = spark.sparkContext

    def has(self, df: "DataFrame") -> bool:
        return df.sparkSession.sparkContext is self._context

    def files(self, checkpoint: str) -> Files:
        return files_of(self._spark, checkpoint)

    def identity(self, df: "DataFrame", batch_id: int, files: Files | None) -> Identity:
        """Read the ids from the local properties of Spark's stream thread."""
        del files
        context = df.sparkSession.sparkContext
        query_id = context.getLocalProperty(_QUERY_ID)
        run_id = next(filter(None, map(context.getLocalProperty, _RUN_ID)), None)
        streamed = context.getLocalProperty(_BATCH_ID)
        if not query_id or not run_id or not streamed:
            raise NotStreaming(
                "the sink was not called by foreachBatch on the thread of a streaming query, where"
                " each batch has a query id. Nothing was written; pass the sink to"
                " writeStream.foreachBatch(...), and leave PYSPARK_PIN_THREAD on."
            )
        if int(streamed) != batch_id:
            raise NotStreaming(
                f"Spark runs batch {streamed} on this thread, but the sink was called for batch"
                f" {batch_id}. Nothing was written; call the sink with foreachBatch's own"
                " arguments."
            )
        return Identity(UUID(query_id), UUID(run_id), batch_id)

    def plan_bytes(self, df: "DataFrame") -> int:
        return plan_bytes(df)

    def require_manager(self, location: str) -> None:
        require_manager(self._spark, location)

    def memory(self, identity: Identity) -> Memory | None:
        return memory_of(self._spark, identity)


class _Connect:
    def __init__(self, spark: "SparkSession", client: str | None) -> None:
        self._spark = spark
        self._client = client
        self._ids: tuple[UUID, UUID] | None = None

    def has(self, df: "DataFrame") -> bool:
        return df.sparkSession is self._spark

    def files(self, checkpoint: str) -> Files:
        # A pattern may fit another checkpoint; where the query writes its own it is a name.
        if not _PATTERN.isdisjoint(checkpoint):
            if (local := local_files(checkpoint)) is None:
                raise OSError("behind Spark Connect its path may have none of { } [ ] * ? \\")
            return local
        files = ConnectFiles(self._spark, checkpoint)
        return local_files(files.location) or files

    def identity(self, df: "DataFrame", batch_id: int, files: Files | None) -> Identity:
        """Read the query id from the checkpoint, and its run from the client's session."""
        del df
        if self._ids is None:
            if files is None:
                raise NotStreaming(
                    "with Spark Connect the id of the query is in its checkpoint, and the sink was"
                    " not told where that is. Nothing was written; pass `checkpoint=`, exactly as"
                    " the query's checkpointLocation."
                )
            query_id = _query_id(files)
            self._ids = query_id, self._run_id(query_id)
        return Identity(*self._ids, batch_id)

    def plan_bytes(self, df: "DataFrame") -> int:
        del df
        return UNKNOWN_BYTES

    def require_manager(self, location: str) -> None:
        raise UnsafeCheckpoint(
            f"the checkpoint {location} is on an object store, which was not tried behind Spark"
            " Connect. Nothing was written; name one on HDFS or a shared volume, or run the query"
            " in a driver with its own Spark."
        )

    def memory(self, identity: Identity) -> None:
        del identity  # it is in the server

    def _run_id(self, query_id: UUID) -> UUID:
        url = os.environ.get("SPARK_CONNECT_LOCAL_URL")
        if not url or not self._client:
            raise NotStreaming(
                "the sink was not called by foreachBatch in the worker of a Connect server. Nothing"
                " was written; pass the sink itself to writeStream.foreachBatch(...)."
            )
        from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - not installed everywhere

        client = SparkSession.builder.remote(f"{url};session_id={self._client}").create()
        runs = [UUID(q.runId) for q in client.streams.active if UUID(q.id) == query_id]
        if len(runs) != 1:
            raise NotStreaming(
                f"the client's session {self._client} has {len(runs)} active queries {query_id},"
                " which is the query of this checkpoint. Nothing was written; pass as `checkpoint`"
                " exactly the query's checkpointLocation, and a sink of its own to each query."
            )
        return runs[0]


def _query_id(files: Files) -> UUID:
    try:
        return UUID(json.loads(files.read("metadata") or "")["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(files.location, OSError(f"its file `metadata`: {error}")) from error


def plan_bytes(df: "DataFrame") -> int:
    """Return the optimizer's size estimate of a DataFrame in bytes; runs nothing.

    For a file source it is the size of the files, scaled by row widths: filters do not count.
    """
    plan = df._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - PySpark has no public way
    return int(str(plan.stats().sizeInBytes()))


class ConnectFiles:
    """The files of one checkpoint, read by Spark's data sources.

    Raises OSError, in one line, where its file system does not answer or cannot be loaded.
    """

    is_cheap = False

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.location = self._qualified() or checkpoint
        """The absolute path, with its scheme."""

    def read(self, name: str) -> str | None:
        """Return the text of a file; None where there is none."""
        rows = _rows(
            lambda: self._spark.read.text(f"{self._checkpoint}/{name}", wholetext=True).collect()
        )
        return rows[0][0] if rows else None

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none where there is no such folder."""
        return [path.rsplit("/", 1)[-1] for path in self._paths(folder)]

    def tail(self, name: str, size: int) -> tuple[str, bool]:
        del size
        text = self.read(name)
        if text is None:
            raise FileNotFoundError(name)
        return text, True

    def _paths(self, name: str) -> list[str]:
        files = self._spark.read.format("binaryFile")
        rows = _rows(lambda: files.load(f"{self._checkpoint}/{name}").select("path").collect())
        return [str(path) for (path,) in rows]

    def _qualified(self) -> str | None:
        paths = self._paths("metadata")
        return paths[0].rsplit("/", 1)[0] if paths else None


def _rows(read: Callable[[], list[Any]]) -> list[Any]:
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415 - as above

    try:
        return read()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        raise OSError(" ".join(str(error).split())[:300]) from error
    except PySparkException as error:
        raise OSError(" ".join(str(error).split())[:300]) from error


# The files of a checkpoint on any file system of Hadoop, read through the JVM of a session.

_MORE = "; For more details see:"
"""Begins an address in Hadoop's messages."""


class HadoopFiles:
    """The files of one checkpoint, as Spark finds it: a path without a scheme is on fs.defaultFS.

    Raises OSError, in one line, where its file system does not answer or cannot be loaded.
    """

    is_cheap = True

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's files
        self._root = self._jvm.org.apache.hadoop.fs.Path(checkpoint)
        with _answering():
            self._system = self._root.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above

    @property
    def location(self) -> str:
        """The absolute path, with its scheme."""
        return str(self._system.makeQualified(self._root).toString())

    def read(self, name: str) -> str | None:
        """Return the text of a file; None where there is none."""
        try:
            return self.tail(name)[0]
        except FileNotFoundError:
            return None

    def tail(self, name: str, size: int | None = None) -> tuple[str, bool]:
        """Return at least the last `size` bytes of a file, or all, and whether that is all."""
        path = self._path(name)
        with _answering():
            start = 0
            if size is not None:
                start = max(self._system.getFileStatus(path).getLen() - size, 0)
            # On an object store a question whether it exists would be a request more.
            stream = self._system.open(path)
            try:
                stream.seek(start)
                text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        return text, not start

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none where there is no such folder."""
        path = self._path(folder)
        with _answering():
            if not self._system.exists(path):
                return []
            return [str(status.getPath().getName()) for status in self._system.listStatus(path)]

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)


def files_of(spark: "SparkSession", checkpoint: str) -> Files:
    """Return the files of a checkpoint, without the JVM where Spark has them on a local path.

    Raises OSError.
    """
    files = HadoopFiles(spark, checkpoint)
    return local_files(files.location) or files


def require_manager(spark: "SparkSession", location: str) -> None:
    """Raise `UnsafeCheckpoint` unless Spark writes a checkpoint there by conditional create.

    Two writes of one name try the store, once in a JVM. Raises OSError where it does not answer.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as above

    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - as above
    if spark.conf.get(
        MANAGER_SETTING, None
    ) != MANAGER_CLASS or not jvm.org.apache.spark.util.Utils.classIsLoadable(MANAGER_CLASS):
        raise UnsafeCheckpoint(
            f"the checkpoint {location} is on an object store, and Spark writes it by renames,"
            " which copy there: of two drivers, one can put its plan over that of the other, whose"
            " events are then never read. Nothing was written. Start Spark with"
            f" {manager_options()}"
        )
    with _answering():
        try:
            path = jvm.org.apache.hadoop.fs.Path(location)
            hadoop = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
            jvm.holdfast.checkpoint.ConditionalCheckpointFileManager(path, hadoop).probe()
        except Py4JJavaError as error:
            thrown = error.java_exception
            if thrown.getClass().getSimpleName() == "UnsupportedFileSystemException":
                raise UnsafeCheckpoint(f"{thrown.getMessage()}.") from error
            raise


@contextmanager
def _answering() -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - not where Spark is only a client

    try:
        yield
    except Py4JJavaError as error:
        thrown = str(error.java_exception.toString()).partition(_MORE)[0]
        if (fault := store_fault(_causes(error.java_exception))) is not None:
            raise OSError(f"{fault.said}: {' '.join(thrown.split())[:300]}") from error
        gone = error.java_exception.getClass().getSimpleName() == "FileNotFoundException"
        raise (FileNotFoundError if gone else OSError)(" ".join(thrown.split())) from error


def _causes(thrown: Any) -> Iterator[tuple[str, str]]:
    for _ in range(20):
        if thrown is None:
            return
        yield str(thrown.getClass().getName()), str(thrown.getMessage())
        thrown = thrown.getCause()


# What a driver has planned, by the memory of its JVM.


def memory_of(spark: "SparkSession", identity: Identity) -> Memory | None:
    """Return what the query of this JVM has planned for a batch; None where Spark has none of it.

    Spark keeps its newest two plans in memory, and reads a batch by the file index that it has made
    of its log: nothing of it is asked of the checkpoint.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as above

    try:
        return _memory(spark, identity)
    except (Py4JError, TypeError, AttributeError) as error:
        # Another version of Spark names it otherwise.
        _log.debug("the plan of batch %d in Spark's memory: %s", identity.batch_id, error)
        return None


def _memory(spark: Any, identity: Identity) -> Memory | None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - as above
    query = queries.get(jvm.java.util.UUID.fromString(str(identity.query_id)))
    if query is None:
        return None
    log = query.offsetLog()
    planned = log.get(identity.batch_id)
    if planned.isEmpty():
        return None
    written = jvm.java.io.ByteArrayOutputStream()
    log.serialize(planned.get(), written)
    return Memory(written.toString("UTF-8"), _paths(query))


def _paths(query: Any) -> frozenset[str] | None:
    """Return the files that the batch of a query reads, by path; None where some are patterns."""
    paths = set()
    for leaf in _each(query.lastExecution().analyzed().collectLeaves()):
        # A source without data is a LocalRelation; one that is not of files has another class.
        if leaf.isStreaming() and leaf.getClass().getSimpleName() == "LogicalRelation":
            for path in _each(leaf.relation().location().rootPaths()):
                if not _PATTERN.isdisjoint(str(path.toString())):
                    return None
                paths.add(str(path.toUri().getRawPath()))
    return frozenset(paths)


def _each(sequence: Any) -> Iterator[Any]:
    elements = sequence.iterator()
    while elements.hasNext():
        yield elements.next()
