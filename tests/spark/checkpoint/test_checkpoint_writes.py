"""How files come into a checkpoint on a local disk: which of two writers wins."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["FileSystemBased", "FileContextBased"])
def test_second_writer_of_a_file_does_not_replace_the_first(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """Of the job's file manager for local disks, and of Spark's default."""
    context: Any = spark.sparkContext
    package = context._jvm.org.apache.spark.sql.execution.streaming.checkpointing
    place = context._jvm.org.apache.hadoop.fs.Path(str(tmp_path / "5"))
    configuration = context._jsc.hadoopConfiguration()
    manager = getattr(package, f"{name}CheckpointFileManager")(place, configuration)
    first, second = (manager.createAtomic(place, False) for _ in range(2))
    first.write(bytearray(b"first"))
    second.write(bytearray(b"second"))
    assert not (tmp_path / "5").exists()
    first.close()
    with pytest.raises(Py4JJavaError, match="AlreadyExists"):
        second.close()
    assert (tmp_path / "5").read_bytes() == b"first"
    stream = manager.open(place)
    assert context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8") == "first"
    stream.close()
    assert (tmp_path / ".5.crc").exists()
