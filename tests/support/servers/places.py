"""Where savepoints and checkpoints of tests lie: a local disk, a real HDFS, object stores."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.servers.gcs import Gcs, gcs
from tests.support.servers.hdfs import hdfs
from tests.support.servers.s3 import S3, s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def place(kind: str, folder: Path, spark: "SparkSession") -> Iterator[str]:
    """Yield the URI of an empty place of a kind, which the session can read and write."""
    if kind == "hdfs":
        with hdfs(folder) as cluster:
            yield f"{cluster.uri}/places"
    elif kind == "s3":
        with s3() as server, in_session(server, spark) as uri:
            yield f"{uri}/places"
    elif kind == "gcs":
        with gcs() as storage, in_session(storage, spark) as uri:
            yield f"{uri}/places"
    else:
        yield f"file://{folder}"


@contextmanager
def in_session(server: S3 | Gcs, spark: "SparkSession") -> Iterator[str]:
    """Yield the URI of a bucket of the server, which the session can read and write."""
    # Hadoop keeps the client of a bucket, with its server's port, until the JVM ends.
    bucket = f"bucket-{server.port}"
    server.make_bucket(bucket)
    with hadoop_settings(spark, server.settings):
        yield f"{server.uri.partition(':')[0]}://{bucket}"


@contextmanager
def hadoop_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Give a session settings of Hadoop for a block."""
    context: Any = spark.sparkContext
    configuration = context._jsc.hadoopConfiguration()
    before = {name: configuration.get(name) for name in settings}
    for name, value in settings.items():
        configuration.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                configuration.unset(name)
            else:
                configuration.set(name, value)
