"""The files of a checkpoint on any file system of Hadoop, read through the JVM of a session."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from holdfast.sink.transaction.lineage import Files, local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MORE = "; For more details see:"
"""Begins an address in Hadoop's messages."""


class HadoopFiles:
    """The files of one checkpoint, as Spark finds it: a path without a scheme is on fs.defaultFS.

    Raises OSError, in one line, where its file system does not answer or cannot be loaded.
    """

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
        path = self._path(name)
        with _answering():
            if not self._system.exists(path):
                return None
            stream = self._system.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

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


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        thrown = str(error.java_exception.toString()).partition(_MORE)[0]
        raise OSError(" ".join(thrown.split())) from error
